"""What agents have to say, written down: the event, and what the Work remembers of it, in one transaction.

Nothing is told twice: a task remembers the run whose end was told last. Nothing stale is told: the attempt must still
be the current one. And nothing is lost: when the store cannot be written, it is tried again until it can.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kingdom.workflow.domain.errors import WorkflowError
from kingdom.workflow.domain.events import AgentError, AgentStarted, AgentStopped
from kingdom.workflow.domain.statuses import AgentStatus
from kingdom.workflow.ports import Told
from kingdom.workflow.store.errors import ConcurrentChange, StoreError

if TYPE_CHECKING:
    from kingdom.workflow.domain.events import DomainEvent
    from kingdom.workflow.domain.work import Work
    from kingdom.workflow.ports import Store, Transaction

R = TypeVar("R")
log = logging.getLogger("kingdom.workflow.agents")
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0


@dataclass(frozen=True, slots=True)
class News:
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

    def __init__(self, store: Store) -> None:
        self._store = store
        self._broken: dict[str, int] = {}  # the attempt of a Work whose agent was told to be broken

    async def tell(self, news: News) -> None:
        """Record how a query or report ended, unless that was done before or nobody waits for it any more."""
        await self._surely(lambda tx: _tell(tx, news), f"the end of run {news.run}")

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
        async def write(tx: Transaction) -> None:
            work = await tx.works.find(work_id)
            if work is None or work.attempt != attempt or work.agent_status not in when:
                log.info("%s of work %s, attempt %s, is not news any more", type(event).__name__, work_id, attempt)
                return
            tx.record(Told(event, "Workflow", work.workflow_id, attempt))

        await self._surely(write, f"{type(event).__name__} of work {work_id}")

    async def _surely(self, write: Callable[[Transaction], Awaitable[None]], what: str) -> None:
        async def try_it() -> None:
            async with self._store.transaction() as tx:
                await write(tx)

        await patiently(try_it, f"{what} cannot be recorded")


async def patiently(call: Callable[[], Awaitable[R]], problem: str) -> R:
    """What a call returns; while the store is away it is tried again. What the domain refuses is raised."""
    pause = _FIRST_PAUSE
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
            pause = min(2 * pause, _LONGEST_PAUSE)


async def _tell(tx: Transaction, news: News) -> None:
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
    tx.record(Told(news.event, "Workflow", work.workflow_id, news.attempt))
    tx.afterwards(lambda: _remember(tx, news))


async def _remember(tx: Transaction, news: News) -> None:
    work = await tx.works.get(news.work_id)
    work.session_id = news.session
    for task in work.tasks:
        if task.id == news.task_id:
            task.heard = news.run
    await tx.works.save(work)
