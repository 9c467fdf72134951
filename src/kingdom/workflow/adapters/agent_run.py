"""One query or report, from its first run to what came of it.

=============  =======================================================================================================
a run ends     what is told
=============  =======================================================================================================
success        ``QueryResponded``, ``ReportGenerated``
skipped        the same: there was nothing to do
failed         ``QueryFailed``, ``ReportFailed``; so does timeout, and killed by somebody else
needs_human    ``QueryFailed`` with the question, and no try is left: the workflow pauses until a person has changed the
               query or said to go on; the conversation stays
rate_limited   nothing: it is sent again when the limit resets, in this attempt
not started    ``QueryFailed``, ``ReportFailed``: its process died as it began, or there was no room for it; but
               ``AgentError`` when the engine is not there, or the order makes no sense
=============  =======================================================================================================

A run that was found again after a restart and turns out to have died with the machine or the former engine is sent
again; so it is at most a few times in one attempt, for it could be what brings the engine down.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.agents.errors import AgentsError, AlreadyStarted, StartFailed
from kingdom.workflow.adapters.orders import RunKind, RunLimits, make_order, query_prompt, run_id
from kingdom.workflow.adapters.recorder import RunEnd, RunOutput, answer_text, failure_reason, log, report_text
from kingdom.workflow.adapters.workspaces import extract_report, missing_sections, report_prompt, write_report
from kingdom.workflow.domain.events import DomainEvent, QueryFailed, QueryResponded, ReportFailed, ReportGenerated
from kingdom.workflow.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kingdom.agents.port import AgentEvent, Agents, Order, Outcome, Running
    from kingdom.workflow.adapters.environment import WorkEnvironment, WorkMcpFiles
    from kingdom.workflow.adapters.orders import AgentSlots
    from kingdom.workflow.adapters.recorder import Recorder
    from kingdom.workflow.domain.work import Task, Work

_MAX_RESENDS: Final = 3  # how often a run that died with its engine is sent again in one attempt
_DEFAULT_RESET_SECONDS: Final = 60.0  # seconds, for a limit that does not say when it resets
_RESET_JITTER: Final = 0.1  # of the wait, so that not all come back in the same moment


@dataclass(frozen=True, slots=True)
class AgentRunDeps:
    """What asking needs."""

    agents: Agents
    recorder: Recorder
    mcp: WorkMcpFiles
    place_of: Callable[[Work], Awaitable[WorkEnvironment]]
    limits: RunLimits
    clock: Callable[[], float]  # seconds since the epoch
    room: AgentSlots
    listener: Callable[[str, AgentEvent], None] | None = None  # told what each run says, by run id


class AgentRun:
    """A query or report that is with an agent."""

    def __init__(self, means: AgentRunDeps, work: Work, task: Task, kind: RunKind, *, report_id: str = "") -> None:
        self.work = work
        self.task = task
        self.kind = kind
        self.key = run_id(work, task, kind)
        self.text: str | None = None  # of a query; not known when it was found again and nobody has said it yet
        self._means = means
        self._report_id = report_id
        self._said = RunOutput()
        self._session = work.session_id
        self._number = 0  # of the run that is under way: how often it was sent in this attempt
        self._lost = 0  # how many of those died with their engine
        self._found = False  # whether it was begun by a former engine
        self._running: Running | None = None
        self._stopping: str | None = None
        self._stopped = asyncio.Event()  # whether somebody wants it ended
        self._woken = asyncio.Event()
        self._inside = False  # whether it has a place

    async def find(self) -> bool:
        """Whether a run of it was begun before, by a former engine; then that one is watched, and no other is begun."""
        while (found := await self._means.agents.adopt(self._named(self._number + 1), self._hear)) is not None:
            if self._running is not None and (await self._running.wait()).status == "killed":
                self._lost += 1
            self._number += 1
            self._running, self._found = found, True
        return self._found

    def give(self, text: str) -> None:
        """Say what a query asks; the first word counts."""
        if self.text is None:
            self.text = text
            self._woken.set()

    async def stop(self, reason: str) -> None:
        """Have it ended; what comes of it is not told any more."""
        self._stopping = reason
        self._stopped.set()
        self._woken.set()
        if self._running is not None:
            await self._running.stop(reason)

    async def run_to_end(self) -> None:
        """From wherever it is to its end."""
        try:
            outcome = await self._last_outcome()
        except StartFailed as error:  # the next one may start
            await self._record(self._failure(str(error)), self._session)
            return
        except (AgentsError, WorkflowError, OSError) as error:
            await self._means.recorder.broken(self.work, f"{self._named(self._number)} cannot be run: {error}")
            return
        finally:
            self._leave()
        if outcome is not None:
            await self._tell(outcome)

    @property
    def run(self) -> str:
        """The id of the run that is under way."""
        return self._named(max(1, self._number))

    async def _last_outcome(self) -> Outcome | None:
        """What came of the run that counts; None when it was stopped."""
        if self._running is None:
            await self.find()
        while True:
            if self._running is None:
                if not await self._may_start() or not await self._enter():
                    return None
                await self._start()
            elif not self._inside:
                self._means.room.enter_over_limit()
                self._inside = True
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
        """Whether a run of a former engine died with it, or gave a report that nobody heard."""
        if not self._found or self._lost >= _MAX_RESENDS:
            return False
        if outcome.status == "killed":
            self._lost += 1
            log.warning("run %s died with a former engine (%s): it is sent again", self.run, outcome.error)
            return True
        unheard = self.kind == "report" and outcome.status == "success" and self._said.nothing
        return unheard and bool(missing_sections(report_text(outcome, self._said), self.task.outline))

    async def _may_start(self) -> bool:
        """Wait until there is something to ask; False when it was stopped."""
        while not self._stopping and self.kind == "query" and self.text is None:
            self._woken.clear()
            await self._woken.wait()
        return not self._stopping

    async def _enter(self) -> bool:
        """Wait for a place; False when it was stopped meanwhile."""
        entering = asyncio.ensure_future(self._means.room.enter())
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((entering, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            self._inside = entering.done()
            entering.cancel()
        return self._inside and not self._stopping

    def _leave(self) -> None:
        if self._inside:
            self._inside = False
            self._means.room.leave()

    def _named(self, number: int) -> str:
        return run_id(self.work, self.task, self.kind, number)

    def _hear(self, event: AgentEvent) -> None:
        self._said.hear(event)
        if self._means.listener:
            self._means.listener(self.run, event)

    # ── a run ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self) -> None:
        self._number += 1
        means, run, self._said = self._means, self.run, RunOutput()
        place = await means.place_of(self.work)
        order = make_order(
            self.work,
            self.task,
            self.kind,
            run=run,
            prompt=self._prompt(place),
            place=place,
            session=self._session,
            limits=means.limits,
            mcp_config=means.mcp.write(run, place.servers),
        )
        try:
            self._running = await self._begin(order)
        except (AgentsError, OSError):
            means.mcp.remove(run)
            raise

    async def _begin(self, order: Order) -> Running:
        try:
            return await self._means.agents.start(order, self._hear)
        except AlreadyStarted:
            found = await self._means.agents.adopt(order.run_id, self._hear)
            if found is None:
                return await self._means.agents.start(order, self._hear)
            return found

    async def _end(self) -> Outcome:
        assert self._running is not None
        if self._stopping:
            await self._running.stop(self._stopping)  # it was asked for while the run was being started or found
        outcome = await self._running.wait()
        self._means.mcp.remove(self.run)
        return outcome

    def _prompt(self, place: WorkEnvironment) -> str:
        if self.kind == "report":
            return report_prompt(self.task, self.task.outline)
        result_path = place.result_path(self.run)
        return query_prompt(self.work, self.task, self.text or "", place, result_path, self._session)

    async def _wait_for_reset(self, outcome: Outcome) -> None:
        now = self._means.clock()
        seconds = max(1.0, outcome.resets_at - now) if outcome.resets_at is not None else _DEFAULT_RESET_SECONDS
        seconds += seconds * _RESET_JITTER * random.random()  # noqa: S311  no secret
        log.warning("run %s: %s; it is sent again in %.0f s", self.run, outcome.error, seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._stopping:
                    self._woken.clear()
                    await self._woken.wait()

    # ── what came of it ───────────────────────────────────────────────────────────────────────────────────────

    async def _tell(self, outcome: Outcome) -> None:
        final = outcome.status == "needs_human"
        if outcome.status in ("success", "skipped"):
            event = await self._answer(outcome)
        else:
            event = self._failure(failure_reason(outcome))
        session = _session_after(self._session, outcome)
        if outcome.status == "failed" and session == self.work.session_id and not outcome.turns and self.task.tries:
            session = None  # it failed twice before it began: the conversation may be lost
        await self._record(event, session, final=final)

    async def _record(self, event: DomainEvent, session: str | None, *, final: bool = False) -> None:
        task = self.task
        await self._means.recorder.tell(RunEnd(self.work.id, task.id, task.attempt, self.key, event, session, final))

    async def _answer(self, outcome: Outcome) -> DomainEvent:
        if self.kind == "query":
            return QueryResponded(self.work.id, self.task.id, answer_text(outcome, self._said))
        try:
            report = extract_report(report_text(outcome, self._said), self.task.outline)
            workspace = (await self._means.place_of(self.work)).workspace
            path = await asyncio.to_thread(write_report, workspace, self.task, report)
        except (WorkflowError, OSError) as error:
            return self._failure(str(error))
        return ReportGenerated(self._report_id, self.task.id, str(path))

    def _failure(self, error: str) -> DomainEvent:
        if self.kind == "report":
            return ReportFailed(self._report_id, self.task.id, error)
        return QueryFailed(self.work.id, self.task.id, error)


def _session_after(before: str | None, outcome: Outcome) -> str | None:
    """The conversation to go on with: a run that never got to the model has begun none."""
    got_there = outcome.status in ("success", "skipped", "needs_human") or outcome.turns or outcome.tokens.total
    return outcome.session_id or before if got_there else before
