"""Record how agents' runs end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from kingdom.agents.port import AgentEvent, Finished, Text
from kingdom.agents.untrusted import cut_middle
from kingdom.workflow.domain.events import AgentError, AgentStarted, AgentStopped
from kingdom.workflow.domain.statuses import AgentStatus
from kingdom.workflow.errors import ConcurrentChange, StoreError, WorkflowError
from kingdom.workflow.ports import RecordedEvent

if TYPE_CHECKING:
    from kingdom.agents.port import Outcome
    from kingdom.workflow.domain.events import DomainEvent
    from kingdom.workflow.domain.work import Work
    from kingdom.workflow.ports import WorkflowStore, WorkflowTransaction


# What an agent said, and what is made of it: the answer to a query, the text of a report, the reason of a failure.


QUESTION_PREFIX: Final = "the agent asks: "  # how the reason begins when an agent cannot go on without a person
_MAX_TEXT_CHARS: Final = 16_000  # characters of an answer or a reason that are kept
_MAX_OUTPUT_CHARS: Final = 2_000_000  # characters of what a run says that are kept meanwhile


@dataclass(slots=True)
class RunOutput:
    """What one run said in our hearing."""

    lines: list[str] = field(default_factory=list)
    finished: Finished | None = None
    size: int = 0

    def hear(self, event: AgentEvent) -> None:
        """Take an event in."""
        if isinstance(event, Finished):
            self.finished = event
        elif isinstance(event, Text) and self.size < _MAX_OUTPUT_CHARS:
            self.lines.append(event.text)
            self.size += len(event.text)

    @property
    def nothing(self) -> bool:
        """Whether nothing was heard: it had ended before we listened."""
        return self.finished is None and not self.lines

    def text(self, outcome: Outcome) -> str:
        """The last message, as far as it was heard; of a program that has none, everything it printed."""
        if self.finished is not None and self.finished.text:
            return self.finished.text
        return "\n".join(self.lines) or str((outcome.result or {}).get("summary", ""))


def answer_text(outcome: Outcome, said: RunOutput) -> str:
    """The answer to a query: the agent's own summary, or its last message where that is all it left."""
    summary = str((outcome.result or {}).get("summary", ""))
    text = said.text(outcome)
    return cut_middle(text if text.startswith(summary) else summary, _MAX_TEXT_CHARS)


def report_text(outcome: Outcome, said: RunOutput) -> str:
    """A report: from the result file, or the last message."""
    given = (outcome.result or {}).get("report")
    return given if isinstance(given, str) else said.text(outcome)


def failure_reason(outcome: Outcome) -> str:
    """Why there is no answer."""
    if outcome.status == "needs_human":
        asked = (outcome.result or {}).get("question") or {}
        choices = ", ".join(map(str, asked.get("choices") or ()))
        return cut_middle(
            f"{QUESTION_PREFIX}{asked.get('text', '')}{f' (choices: {choices})' if choices else ''}", _MAX_TEXT_CHARS
        )
    why = outcome.error or f"the run ended as {outcome.status}, and nothing says why"
    return cut_middle(why if outcome.status == "failed" else f"{outcome.status}: {why}", _MAX_TEXT_CHARS)


# What agents have to say, written down: the event, and what the Work remembers of it, in one transaction.
#
# Nothing is told twice: a task remembers the run whose end was told last. Nothing stale is told: the attempt must still
# be the current one. And nothing is lost: when the store cannot be written, it is tried again until it can.


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
    run: str  # the first run it had: what it is known by
    event: DomainEvent
    session: str | None  # the conversation the Work goes on with
    final: bool = False  # trying again would not help


class Recorder:
    """Writes what agents say into the store."""

    def __init__(self, store: WorkflowStore) -> None:
        self._store = store
        self._broken: dict[str, int] = {}  # the attempt of a Work whose agent was told to be broken

    async def tell(self, news: RunEnd) -> None:
        """Record how a query or report ended, unless that was done before or nobody waits for it any more."""
        await self._surely(lambda tx: _record_end(tx, news), f"the end of run {news.run}")

    async def started(self, work: Work) -> None:
        """Record that the agent of a Work is ready."""
        await self._agent(work.id, work.attempt, AgentStarted(work.id), (AgentStatus.STARTING,))

    async def broken(self, work: Work, error: str) -> None:
        """Record that the agent of a Work cannot work; once for each attempt."""
        if self._broken.get(work.id) == work.attempt:
            return
        self._broken[work.id] = work.attempt
        await self._agent(
            work.id, work.attempt, AgentError(work.id, error), (AgentStatus.STARTING, AgentStatus.RUNNING)
        )

    async def stopped(self, work: Work) -> None:
        """Record that the agent of a Work was ended."""
        await self._agent(work.id, work.attempt, AgentStopped(work.id), (AgentStatus.STARTING, AgentStatus.RUNNING))

    async def _agent(self, work_id: str, attempt: int, event: DomainEvent, when: tuple[AgentStatus, ...]) -> None:
        async def write(tx: WorkflowTransaction) -> None:
            work = await tx.works.find(work_id)
            if work is None or work.attempt != attempt or work.agent_status not in when:
                log.info("%s of work %s, attempt %s, is not news any more", type(event).__name__, work_id, attempt)
                return
            tx.record(RecordedEvent(event, "Workflow", work.workflow_id, attempt))

        await self._surely(write, f"{type(event).__name__} of work {work_id}")

    async def _surely(self, write: Callable[[WorkflowTransaction], Awaitable[None]], what: str) -> None:
        async def try_it() -> None:
            async with self._store.transaction() as tx:
                await write(tx)

        await retry_while_unavailable(try_it, f"{what} cannot be recorded")


async def retry_while_unavailable(call: Callable[[], Awaitable[R]], problem: str) -> R:
    """What a call returns; while the store is away it is tried again. What the domain refuses is raised."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return await call()
        except ConcurrentChange:
            await asyncio.sleep(0)
        except Exception as error:  # a database that is away raises anything
            if isinstance(error, WorkflowError) and not isinstance(error, StoreError):
                raise
            log.warning("%s, it is tried again in %g s: %s: %s", problem, pause, type(error).__name__, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)


async def _record_end(tx: WorkflowTransaction, news: RunEnd) -> None:
    work = await tx.find_with_workflow(news.work_id)
    task = next((task for task in work.tasks if task.id == news.task_id), None) if work else None
    if work is None or task is None or task.attempt != news.attempt:
        log.warning("run %s ended, and nobody waits for it any more: %s", news.run, news.event)
        return
    if task.heard == news.run:
        log.info("the end of run %s was told before", news.run)
        return
    if news.final:
        task.give_up()
        await tx.works.save(work)
    tx.record(RecordedEvent(news.event, "Workflow", work.workflow_id, news.attempt))
    tx.before_commit(lambda: _remember(tx, news))


async def _remember(tx: WorkflowTransaction, news: RunEnd) -> None:
    work = await tx.works.get(news.work_id)
    work.session_id = news.session
    for task in work.tasks:
        if task.id == news.task_id:
            task.heard = news.run
    await tx.works.save(work)
