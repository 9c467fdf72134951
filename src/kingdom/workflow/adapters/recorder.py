"""What an agent's run said, and how its end is recorded.

The event and what the Work remembers of it are written in one transaction. The end of a run is recorded once: the task
remembers the last run. Late ends are dropped: the attempt must be the current one. No end is lost: while the store
cannot be written, it is retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

from kingdom.agents.port import AgentEvent, Finished, Text
from kingdom.agents.untrusted import cut_middle
from kingdom.base.times import epoch_seconds
from kingdom.workflow.domain.events import AgentError, AgentStarted, AgentStopped, QuestionAsked, WorkStatusChanged
from kingdom.workflow.domain.statuses import AgentStatus, QueryStatus
from kingdom.workflow.errors import ConcurrentChange, StoreError, WorkflowError
from kingdom.workflow.ports import RecordedEvent

if TYPE_CHECKING:
    from kingdom.agents.port import Outcome
    from kingdom.workflow.domain.events import DomainEvent
    from kingdom.workflow.domain.work import Task, Work
    from kingdom.workflow.ports import WorkflowStore
    from kingdom.workflow.store.transactions import WorkflowTransaction

_MAX_TEXT_CHARS: Final = 16_000  # of an answer or a reason
_MAX_CHOICE_CHARS: Final = 1000
_MAX_CHOICES: Final = 20
_MAX_OUTPUT_CHARS: Final = 2_000_000  # of a run's output kept in memory


@dataclass(slots=True)
class RunOutput:
    """The output of one run, as far as we received it."""

    lines: list[str] = field(default_factory=list)
    finished: Finished | None = None
    size: int = 0

    def add(self, event: AgentEvent) -> None:
        """Add an event."""
        if isinstance(event, Finished):
            self.finished = event
        elif isinstance(event, Text) and self.size < _MAX_OUTPUT_CHARS:
            self.lines.append(event.text)
            self.size += len(event.text)

    @property
    def empty(self) -> bool:
        """Whether nothing was received: the run had ended before we watched it."""
        return self.finished is None and not self.lines

    def text(self, outcome: Outcome) -> str:
        """Return the last message, or everything a program without messages printed."""
        if self.finished is not None and self.finished.text:
            return self.finished.text
        return "\n".join(self.lines) or str((outcome.result or {}).get("summary", ""))


def answer_text(outcome: Outcome, said: RunOutput) -> str:
    """Return the answer to a query: the last message if it begins with the agent's summary, else the summary."""
    summary = str((outcome.result or {}).get("summary", ""))
    text = said.text(outcome)
    return cut_middle(text if text.startswith(summary) else summary, _MAX_TEXT_CHARS)


def report_text(outcome: Outcome, said: RunOutput) -> str:
    """Return the text of a report, from the result file or the last message."""
    given = (outcome.result or {}).get("report")
    return given if isinstance(given, str) else said.text(outcome)


def asked_question(work_id: str, task_id: str, outcome: Outcome) -> QuestionAsked:
    """Return what the agent asks a person. A deadline that is no time is left out."""
    asked = (outcome.result or {}).get("question") or {}
    default, seconds = asked.get("default"), epoch_seconds(asked.get("deadline"))
    return QuestionAsked(
        work_id,
        task_id,
        cut_middle(str(asked.get("text", "")), _MAX_TEXT_CHARS),
        tuple(cut_middle(str(choice), _MAX_CHOICE_CHARS) for choice in asked.get("choices") or ())[:_MAX_CHOICES],
        None if default is None else cut_middle(str(default), _MAX_CHOICE_CHARS),
        None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(),
    )


def failure_reason(outcome: Outcome) -> str:
    """Return why there is no answer."""
    why = outcome.error or f"the run ended as {outcome.status}, and nothing says why"
    return cut_middle(why if outcome.status == "failed" else f"{outcome.status}: {why}", _MAX_TEXT_CHARS)


# ── recording ────────────────────────────────────────────────────────────────────────────────────────────────────────


R = TypeVar("R")
log = logging.getLogger("kingdom.workflow.agents")
_FIRST_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of a query or report."""

    work_id: str
    task_id: str
    attempt: int  # of the task
    run: str  # the id of its first run
    event: DomainEvent
    session: str | None  # the conversation with which the Work goes on


class Recorder:
    """Records the events of agents in the store."""

    def __init__(self, store: WorkflowStore) -> None:
        self._store = store
        self._broken: dict[str, int] = {}  # attempt by work id, of agents recorded as failed

    async def ended(self, end: RunEnd) -> None:
        """Record how a query or report ended, unless it is recorded already or its attempt is over."""
        await self._surely(lambda tx: _record_end(tx, end), f"the end of run {end.run}")

    async def started(self, work: Work, task: Task | None) -> None:
        """Record that the agent of a Work runs, unless that is recorded already, and works on a query, if any."""
        await self._surely(lambda tx: _record_start(tx, work, task), f"the start of the agent of work {work.id}")

    async def broken(self, work: Work, error: str) -> None:
        """Record that the agent of a Work failed, once per attempt."""
        if self._broken.get(work.id) == work.attempt:
            return
        self._broken[work.id] = work.attempt
        await self._agent(
            work.id, work.attempt, AgentError(work.id, error), (AgentStatus.STARTING, AgentStatus.RUNNING)
        )

    async def stopped(self, work: Work) -> None:
        """Record that the agent of a Work was stopped."""
        await self._agent(work.id, work.attempt, AgentStopped(work.id), (AgentStatus.STARTING, AgentStatus.RUNNING))

    async def _agent(self, work_id: str, attempt: int, event: DomainEvent, when: tuple[AgentStatus, ...]) -> None:
        async def write(tx: WorkflowTransaction) -> None:
            work = await tx.works.find_at_work(work_id)
            if work is None or work.attempt != attempt or work.agent_status not in when:
                log.info("%s of work %s, attempt %s, is out of date", type(event).__name__, work_id, attempt)
                return
            tx.record(RecordedEvent(event, "Workflow", work.workflow_id, attempt))

        await self._surely(write, f"{type(event).__name__} of work {work_id}")

    async def _surely(self, write: Callable[[WorkflowTransaction], Awaitable[None]], what: str) -> None:
        async def try_it() -> None:
            async with self._store.transaction() as tx:
                await write(tx)

        await retry_while_unavailable(try_it, f"{what} cannot be recorded")


async def retry_while_unavailable(call: Callable[[], Awaitable[R]], problem: str) -> R:
    """Return the result of ``call``; repeat it while the store is unavailable. Errors of the domain are raised."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return await call()
        except ConcurrentChange:
            await asyncio.sleep(0)
        except Exception as error:  # an unavailable database raises anything
            if isinstance(error, WorkflowError) and not isinstance(error, StoreError):
                raise
            log.warning("%s, retrying in %g s: %s: %s", problem, pause, type(error).__name__, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)


async def _record_start(tx: WorkflowTransaction, started: Work, asked: Task | None) -> None:
    work = await tx.works.find_at_work(started.id, "" if asked is None else asked.id)
    if work is None or work.attempt != started.attempt:
        return
    if work.agent_status is AgentStatus.STARTING:
        work.agent_started()
        await tx.works.save(work)
        changed = WorkStatusChanged(work.id, work.workflow_id, work.status)
        for event in (AgentStarted(work.id), changed):
            tx.record(RecordedEvent(event, "Workflow", work.workflow_id, work.attempt))
    for task in work.tasks:
        sent = task.query_status is QueryStatus.SENT
        if asked is not None and (task.id, task.attempt) == (asked.id, asked.attempt) and sent:
            task.process()
            await tx.works.save(work)


async def _record_end(tx: WorkflowTransaction, end: RunEnd) -> None:
    work = await tx.find_with_workflow(end.work_id, end.task_id)
    task = next((task for task in work.tasks if task.id == end.task_id), None) if work else None
    if work is None or task is None or task.attempt != end.attempt:
        log.warning("run %s ended after its attempt was over: %s", end.run, end.event)
        return
    if task.heard == end.run:
        log.info("the end of run %s is recorded already", end.run)
        return
    tx.record(RecordedEvent(end.event, "Workflow", work.workflow_id, end.attempt))
    tx.before_commit(lambda: _remember(tx, end))


async def _remember(tx: WorkflowTransaction, end: RunEnd) -> None:
    work = await tx.works.find_at_work(end.work_id, end.task_id)
    assert work is not None, "it was read in this transaction"
    work.session_id = end.session
    for task in work.tasks:
        if task.id == end.task_id:
            task.heard = end.run
    await tx.works.save(work)
