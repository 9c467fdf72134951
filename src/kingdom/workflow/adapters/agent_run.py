"""One query or report, from its first run to its result.

=============  =======================================================================================================
a run ends     what is recorded
=============  =======================================================================================================
success        ``QueryResponded``, ``ReportGenerated``
skipped        the same: there was nothing to do
failed         ``QueryFailed``, ``ReportFailed``; so does timeout, and killed by somebody else
needs_human    ``QueryFailed`` with the question, without a retry: the workflow pauses until a person changes the query
               or resumes it; the conversation stays
rate_limited   nothing: it is sent again in this attempt when the limit resets
not started    ``QueryFailed``, ``ReportFailed`` if its process died at the start or there was no memory for it;
               ``AgentError`` if the engine is not installed or the order is invalid
=============  =======================================================================================================

A run that died with the machine or with the former engine is sent again after the restart, and one that stopped because
the engine's lease was renewed late at once; but only a few times in one attempt: it could be the run that brings the
engine down.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.agents.errors import AgentsError, AlreadyStarted, StartFailed
from kingdom.workflow.adapters.orders import RunKind, RunLimits, make_order, query_prompt, run_id
from kingdom.workflow.adapters.recorder import (
    RunEnd,
    RunOutput,
    answer_text,
    asked_question,
    failure_reason,
    log,
    report_text,
)
from kingdom.workflow.adapters.workspaces import extract_report, missing_sections, report_prompt, write_report
from kingdom.workflow.domain.events import (
    DomainEvent,
    QueryFailed,
    QueryResponded,
    ReportFailed,
    ReportGenerated,
)
from kingdom.workflow.domain.statuses import AgentStatus
from kingdom.workflow.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kingdom.agents.port import AgentEvent, Agents, Order, Outcome, Running
    from kingdom.workflow.adapters.environment import WorkEnvironment, WorkMcpFiles
    from kingdom.workflow.adapters.recorder import Recorder
    from kingdom.workflow.adapters.slots import AgentSlots
    from kingdom.workflow.domain.work import Task, Work

_MAX_RESENDS: Final = 3  # of a run that died with its engine, in one attempt
_DEFAULT_RESET_SECONDS: Final = 60.0  # for a rate limit without a reset time
_RESET_JITTER: Final = 0.1  # fraction of the wait, so that not all runs return at the same moment


@dataclass(frozen=True, slots=True)
class AgentRunDeps:
    """What an agent run needs."""

    agents: Agents
    recorder: Recorder
    mcp: WorkMcpFiles
    environment_of: Callable[[Work], Awaitable[WorkEnvironment]]
    whole: Callable[[Work], Awaitable[Work]]  # returns a Work with all its tasks
    limits: RunLimits
    clock: Callable[[], float]  # seconds since the epoch
    slots: AgentSlots
    listener: Callable[[str, AgentEvent], None] | None = None  # called with the events of each run, by run id


class AgentRun:
    """A query or report that an agent works on."""

    def __init__(self, deps: AgentRunDeps, work: Work, task: Task, kind: RunKind, *, report_id: str = "") -> None:
        self.work = work
        self.task = task
        self.kind = kind
        self.key = run_id(work, task, kind)
        self.text: str | None = None  # of a query; unknown after a restart until it is sent again
        self._deps = deps
        self._report_id = report_id
        self._output = RunOutput()
        self._session = work.session_id
        self._number = 0  # of the current run: how often it was sent in this attempt
        self._lost = 0  # how many of those died with their engine
        self._found = False  # whether a former engine started it
        self._running: Running | None = None
        self._stopping: str | None = None
        self._stopped = asyncio.Event()  # set when it is to be stopped
        self._woken = asyncio.Event()
        self._has_slot = False  # whether it holds a slot

    async def find(self) -> bool:
        """Find a run that a former engine started; return whether there is one. It is watched, not repeated."""
        while (found := await self._deps.agents.adopt(self._run_id(self._number + 1), self._on_event)) is not None:
            if self._running is not None and (await self._running.wait()).status == "killed":
                self._lost += 1
            self._number += 1
            self._running, self._found = found, True
        return self._found

    def give(self, text: str) -> None:
        """Set the text of a query; only the first call counts."""
        if self.text is None:
            self.text = text
            self._woken.set()

    async def stop(self, reason: str) -> None:
        """Stop the run; its result is not recorded any more."""
        self._stopping = reason
        self._stopped.set()
        self._woken.set()
        if self._running is not None:
            await self._running.stop(reason)

    async def run_to_end(self) -> None:
        """Run it to its end, from wherever it is."""
        try:
            outcome = await self._last_outcome()
        except StartFailed as error:  # a retry may start
            await self._record(self._failure(str(error)), self._session)
            return
        except (AgentsError, WorkflowError, OSError) as error:
            await self._deps.recorder.broken(self.work, f"{self._run_id(self._number)} cannot be run: {error}")
            return
        finally:
            self._leave()
        if outcome is not None:
            await self._record_outcome(outcome)

    @property
    def current_run(self) -> str:
        """The id of the current run."""
        return self._run_id(max(1, self._number))

    async def _last_outcome(self) -> Outcome | None:
        """Return the outcome of the last run; None if it was stopped."""
        if self._running is None:
            await self.find()
        while True:
            if self._running is None:
                if not await self._may_start() or not await self._enter():
                    return None
                await self._start()
            elif not self._has_slot:
                self._deps.slots.enter_over_limit()
                self._has_slot = True
            await self._record_start()
            outcome = await self._end()
            self._leave()
            if self._stopping:
                return None
            if outcome.status == "rate_limited":
                await self._wait_for_reset(outcome)
            elif not self._to_be_sent_again(outcome):
                return outcome
            self._session = _session_after(self._session, outcome)
            self._running, self._found = None, False

    def _to_be_sent_again(self, outcome: Outcome) -> bool:
        """Return whether a run died with a former engine or for this one's lease, or wrote a report that nobody got."""
        if not (self._found or outcome.lease_ended) or self._lost >= _MAX_RESENDS:
            return False
        if outcome.status == "killed":
            self._lost += 1
            log.warning("run %s was lost with its engine (%s): it is sent again", self.current_run, outcome.error)
            return True
        unheard = self.kind == "report" and outcome.status == "success" and self._output.empty
        return unheard and bool(missing_sections(report_text(outcome, self._output), self.task.outline))

    async def _may_start(self) -> bool:
        """Wait until the text is known; return False if it was stopped."""
        while not self._stopping and self.kind == "query" and self.text is None:
            self._woken.clear()
            await self._woken.wait()
        return not self._stopping

    async def _enter(self) -> bool:
        """Wait for a slot; return False if it was stopped meanwhile."""
        entering = asyncio.ensure_future(self._deps.slots.enter())
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((entering, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            self._has_slot = entering.done()
            entering.cancel()
        return self._has_slot and not self._stopping

    def _leave(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._deps.slots.leave()

    def _run_id(self, number: int) -> str:
        return run_id(self.work, self.task, self.kind, number)

    def _on_event(self, event: AgentEvent) -> None:
        self._output.add(event)
        if self._deps.listener:
            self._deps.listener(self.current_run, event)

    # ── a run ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self) -> None:
        self._number += 1
        deps, run, self._output = self._deps, self.current_run, RunOutput()
        environment = await deps.environment_of(self.work)
        order = make_order(
            self.work,
            self.task,
            self.kind,
            run=run,
            prompt=await self._prompt(environment),
            environment=environment,
            session=self._session,
            limits=deps.limits,
            mcp_config=deps.mcp.write(run, environment.servers),
        )
        try:
            self._running = await self._begin(order)
        except (AgentsError, OSError):
            deps.mcp.remove(run)
            raise

    async def _begin(self, order: Order) -> Running:
        try:
            return await self._deps.agents.start(order, self._on_event)
        except AlreadyStarted:
            found = await self._deps.agents.adopt(order.run_id, self._on_event)
            if found is None:
                return await self._deps.agents.start(order, self._on_event)
            return found

    async def _record_start(self) -> None:
        """Record that the agent runs, and that it works on the query.

        Runs inside our own process take no time: of these only the first is recorded.
        """
        assert self._running is not None
        starting = self.work.agent_status is AgentStatus.STARTING
        if starting or (self._running.pid is not None and self.kind == "query"):
            await self._deps.recorder.started(self.work, self.task if self.kind == "query" else None)

    async def _end(self) -> Outcome:
        assert self._running is not None
        if self._stopping:
            await self._running.stop(self._stopping)  # it was stopped while the run was being started or found
        outcome = await self._running.wait()
        self._deps.mcp.remove(self.current_run)
        return outcome

    async def _prompt(self, environment: WorkEnvironment) -> str:
        if self.kind == "report":
            return report_prompt(self.task, self.task.outline)
        result_path = environment.result_path(self.current_run)
        work = self.work
        if work.partial and self._session is None and self.task.order:  # it has the answers to earlier tasks
            work = await self._deps.whole(work)
        return query_prompt(work, self.task, self.text or "", environment, result_path, self._session)

    async def _wait_for_reset(self, outcome: Outcome) -> None:
        now = self._deps.clock()
        seconds = max(1.0, outcome.resets_at - now) if outcome.resets_at is not None else _DEFAULT_RESET_SECONDS
        seconds += seconds * _RESET_JITTER * random.random()  # noqa: S311  no secret
        log.warning("run %s: %s; sending it again in %.0f s", self.current_run, outcome.error, seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._stopping:
                    self._woken.clear()
                    await self._woken.wait()

    # ── the result ────────────────────────────────────────────────────────────────────────────────────────────

    async def _record_outcome(self, outcome: Outcome) -> None:
        if outcome.status == "timeout":  # it hangs: another query would not help it
            await self._deps.recorder.broken(self.work, failure_reason(outcome))
            return
        event: DomainEvent
        if outcome.status in ("success", "skipped"):
            event = await self._answer(outcome)
        elif outcome.status == "needs_human":
            event = asked_question(self.work.id, self.task.id, outcome)
        else:
            event = self._failure(failure_reason(outcome))
        session = _session_after(self._session, outcome)
        if outcome.status == "failed" and session == self.work.session_id and not outcome.turns and self.task.tries:
            session = None  # it failed twice before it started: the conversation may be lost
        await self._record(event, session)

    async def _record(self, event: DomainEvent, session: str | None) -> None:
        task = self.task
        await self._deps.recorder.ended(RunEnd(self.work.id, task.id, task.attempt, self.key, event, session))

    async def _answer(self, outcome: Outcome) -> DomainEvent:
        if self.kind == "query":
            return QueryResponded(self.work.id, self.task.id, answer_text(outcome, self._output))
        try:
            report = extract_report(report_text(outcome, self._output), self.task.outline)
            workspace = (await self._deps.environment_of(self.work)).workspace
            path = await asyncio.to_thread(write_report, workspace, self.task, report)
        except (WorkflowError, OSError) as error:
            return self._failure(str(error))
        return ReportGenerated(self._report_id, self.task.id, str(path))

    def _failure(self, error: str) -> DomainEvent:
        if self.kind == "report":
            return ReportFailed(self._report_id, self.task.id, error)
        return QueryFailed(self.work.id, self.task.id, error)


def _session_after(before: str | None, outcome: Outcome) -> str | None:
    """Return the conversation to go on with: a run that never reached the model started none."""
    got_there = outcome.status in ("success", "skipped", "needs_human") or outcome.turns or outcome.tokens.total
    return outcome.session_id or before if got_there else before
