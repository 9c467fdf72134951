"""What use cases and handlers work with, and how it is wired."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from kingdom.bus.envelope import new_event_id
from kingdom.workflow.domain.events import DomainEvent
from kingdom.workflow.ports import (
    AgentClient,
    Clock,
    GitService,
    Ids,
    QueryRenderer,
    RecordedEvent,
    WorkFiles,
    WorkflowStore,
    WorkflowTransaction,
)
from kingdom.workflow.store import open_store

# Ids of workflows and what belongs to them.


class TimeOrderedIds:
    """``wf-0198c2…``: UUIDs of version 7, so that what is made later sorts later."""

    def __init__(self) -> None:
        self._last = ""

    def new(self, kind: str) -> str:
        """An id nobody has."""
        made = new_event_id()
        while made <= self._last:  # of the same millisecond, or the clock was set back: the order is kept here
            made = f"{self._last[:-12]}{int(self._last[-12:], 16) + 1:012x}"
        self._last = made
        return f"{kind}-{made}"


# What use cases and handlers work with, and the steps they take.


log = logging.getLogger("kingdom.workflow")
Effect: TypeAlias = Callable[[], Awaitable[None]]


class WorkflowLocks:
    """One at a time per workflow: its handlers, and the use cases people call."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, workflow_id: str) -> AsyncIterator[None]:
        """Wait for the workflow's turn."""
        lock = self._use(workflow_id)
        try:
            async with lock:
                yield
        finally:
            self._done(workflow_id)

    async def take(self, workflow_id: str) -> Callable[[], None] | None:
        """The workflow's turn, if nobody has it or waits for it; returns what gives it back. Never waits."""
        if workflow_id in self._locks:
            return None
        lock = self._use(workflow_id)
        await lock.acquire()  # at once: nobody else knows it yet

        def give_back() -> None:
            lock.release()
            self._done(workflow_id)

        return give_back

    def _use(self, workflow_id: str) -> asyncio.Lock:
        lock, users = self._locks.get(workflow_id) or (asyncio.Lock(), 0)
        self._locks[workflow_id] = lock, users + 1
        return lock

    def _done(self, workflow_id: str) -> None:
        lock, users = self._locks[workflow_id]
        if users == 1:
            del self._locks[workflow_id]
        else:
            self._locks[workflow_id] = lock, users - 1


@dataclass(slots=True)
class EngineCounters:
    """What happened that should be rare."""

    refused: int = 0  # news of an attempt that is over
    effects_failed: int = 0  # calls to the outside, after a commit, that raised
    retried: int = 0  # events whose handler raised


@dataclass(slots=True)
class WorkflowContext:
    """The store and the outside, as :mod:`kingdom.workflow.context` wires them."""

    store: WorkflowStore
    agents: AgentClient
    git: GitService
    files: WorkFiles
    queries: QueryRenderer
    clock: Clock
    ids: Ids
    turns: WorkflowLocks = field(default_factory=WorkflowLocks)
    counts: EngineCounters = field(default_factory=EngineCounters)

    delivered: set[tuple[str, int]] | None = None  # while an engine recovers: the tasks it gave to agents itself

    async def outside(
        self,
        what: str,
        call: Effect,
        failed: Callable[[str], RecordedEvent] | None = None,
        note: Callable[[WorkflowTransaction], Awaitable[None]] | None = None,
    ) -> None:
        """Call somebody outside, after a commit. What goes wrong becomes an event, or else a line in the log.

        ``note`` saves what else has to be known together with that event.
        """
        try:
            await call()
        except Exception as error:
            self.counts.effects_failed += 1
            log.warning("%s: %s", what, error, exc_info=error)
            if failed is not None:
                async with self.store.transaction() as tx:
                    if note is not None:
                        await note(tx)
                    tx.record(failed(str(error) or type(error).__name__))

    @asynccontextmanager
    async def step(self) -> AsyncIterator[UnitOfWork]:
        """A transaction, followed by what it asked to be done once it has committed."""
        async with self.store.transaction() as tx:
            taken = UnitOfWork(tx)
            yield taken
        for effect in taken.effects:
            await effect()


@dataclass(slots=True)
class UnitOfWork:
    """One transaction, and the calls to the outside that follow its commit. Never the other way round."""

    tx: WorkflowTransaction
    effects: list[Effect] = field(default_factory=list)

    def tell(self, workflow_id: str, event: DomainEvent, attempt: int | None = None) -> None:
        """Record an event of a workflow."""
        self.tx.record(workflow_event(workflow_id, event, attempt))

    def then(self, effect: Effect) -> None:
        """Have something done once this has committed. It must not raise, and may be lost in a crash."""
        self.effects.append(effect)


def workflow_event(workflow_id: str, event: DomainEvent, attempt: int | None = None) -> RecordedEvent:
    """An event of a workflow."""
    return RecordedEvent(event, "Workflow", workflow_id, attempt)


# Wiring: everything a workflow engine is made of, put together in one place.


MakeServices: TypeAlias = "Callable[[WorkflowStore, Clock], ExternalServices]"


def system_clock() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class ExternalServices:
    """What is outside of the workflow layer, made for a store that is open."""

    agents: AgentClient
    git: GitService
    files: WorkFiles
    queries: QueryRenderer


@asynccontextmanager
async def open_context(
    url: str, outside: MakeServices, *, clock: Clock = system_clock, ids: Ids | None = None
) -> AsyncIterator[WorkflowContext]:
    """The parts of the workflows at a store's URL, whose tables are made or migrated first."""
    async with open_store(url, clock) as store:
        await store.setup()
        made = outside(store, clock)
        yield WorkflowContext(store, made.agents, made.git, made.files, made.queries, clock, ids or TimeOrderedIds())
