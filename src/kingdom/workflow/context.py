"""What use cases, handlers and the engine share: the store, the services around it, and units of work.

:func:`open_context` wires it. Nothing else creates a :class:`WorkflowContext` but tests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from kingdom.bus.envelope import new_event_id
from kingdom.workflow.domain.events import DomainEvent
from kingdom.workflow.ports import (
    AgentClient,
    Clock,
    GitService,
    Ids,
    LandCompleted,
    QueryRenderer,
    RecordedEvent,
    WorkFiles,
    WorkflowStore,
)
from kingdom.workflow.store import open_store
from kingdom.workflow.store.transactions import WorkflowTransaction

log = logging.getLogger("kingdom.workflow")
WORKFLOW: Final = "Workflow"
"""The type of aggregate under which the events of a workflow are recorded."""
Effect: TypeAlias = Callable[[], Awaitable[None]]
MakeServices: TypeAlias = "Callable[[WorkflowStore, Clock], ExternalServices]"


class WorkflowLocks:
    """One lock per workflow, shared by its handlers and by the use cases that people call."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, workflow_id: str) -> AsyncIterator[None]:
        """Hold the workflow's lock; wait for it if necessary."""
        lock = self._use(workflow_id)
        try:
            async with lock:
                yield
        finally:
            self._done(workflow_id)

    async def take(self, workflow_id: str) -> Callable[[], None] | None:
        """Take the workflow's lock if nobody holds it or waits for it. Return its release function, or None."""
        if workflow_id in self._locks:
            return None
        lock = self._use(workflow_id)
        await lock.acquire()  # does not wait: nobody else knows this lock yet

        def release() -> None:
            lock.release()
            self._done(workflow_id)

        return release

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
    """How often something happened that should be rare."""

    refused: int = 0  # events of an attempt that is over
    effects_failed: int = 0  # external calls after a commit that raised
    retried: int = 0  # events whose handler raised


@dataclass(slots=True)
class WorkflowContext:
    """The store and the external services, the first argument of every use case."""

    store: WorkflowStore
    agents: AgentClient
    git: GitService
    files: WorkFiles
    queries: QueryRenderer
    clock: Clock
    ids: Ids
    land: LandCompleted | None = None  # None: nothing is landed; see open_home
    question_hours: float | None = 24.0  # until a question gets its default; None: somebody else sees to that
    lease_file: Path | None = None  # where agents see until when they may go on, if engines share the store
    locks: WorkflowLocks = field(default_factory=WorkflowLocks)
    counters: EngineCounters = field(default_factory=EngineCounters)

    preparing: set[str] = field(default_factory=set)  # workflows whose start is under way here, without their lock
    delivered: set[tuple[str, int]] | None = None  # during recovery: (task id, attempt) this engine gave to agents

    async def call_external(
        self,
        problem: str,
        call: Effect,
        failed: Callable[[str], RecordedEvent] | None = None,
        save: Callable[[WorkflowTransaction], Awaitable[None]] | None = None,
    ) -> None:
        """Make an external call after a commit. An error becomes the event ``failed`` returns, or a log line.

        ``save`` saves what belongs to that event, in the same transaction.
        """
        try:
            await call()
        except Exception as error:
            self.counters.effects_failed += 1
            log.warning("%s: %s", problem, error, exc_info=error)
            if failed is not None:
                async with self.store.transaction() as tx:
                    if save is not None:
                        await save(tx)
                    tx.record(failed(str(error) or type(error).__name__))

    @asynccontextmanager
    async def unit_of_work(self) -> AsyncIterator[UnitOfWork]:
        """Open a transaction; after its commit, run the effects registered with :meth:`UnitOfWork.after_commit`."""
        async with self.store.transaction() as tx:
            unit = UnitOfWork(tx)
            yield unit
        for effect in unit.effects:
            await effect()


@dataclass(slots=True)
class UnitOfWork:
    """One transaction, and the external calls that follow its commit (never the other way round)."""

    tx: WorkflowTransaction
    effects: list[Effect] = field(default_factory=list)

    def record(self, workflow_id: str, event: DomainEvent, attempt: int | None = None) -> None:
        """Record an event of a workflow."""
        self.tx.record(workflow_event(workflow_id, event, attempt))

    def after_commit(self, effect: Effect) -> None:
        """Run ``effect`` after the commit. It must not raise, and a crash may lose it: recovery repeats it."""
        self.effects.append(effect)


def workflow_event(workflow_id: str, event: DomainEvent, attempt: int | None = None) -> RecordedEvent:
    """Return the event with a workflow as its aggregate."""
    return RecordedEvent(event, WORKFLOW, workflow_id, attempt)


# ── wiring ────────────────────────────────────────────────────────────────────────────────────────────────────────


class TimeOrderedIds:
    """Ids such as ``wf-0198c2…``: UUIDs of version 7, so that later ids sort later."""

    def __init__(self) -> None:
        self._last = ""

    def new(self, kind: str) -> str:
        """Return a new id that starts with ``kind-``."""
        made = new_event_id()
        while made <= self._last:  # the same millisecond, or the clock was set back: keep the order
            made = f"{self._last[:-12]}{int(self._last[-12:], 16) + 1:012x}"
        self._last = made
        return f"{kind}-{made}"


def id_at(kind: str, seconds: float) -> str:
    """Return what sorts before the ids that :class:`TimeOrderedIds` makes from this time on, and after earlier ones."""
    digits = f"{max(round(seconds * 1000), 0):012x}"
    return f"{kind}-{digits[:8]}-{digits[8:]}"


def system_clock() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class ExternalServices:
    """The services around the workflow layer, made for an open store."""

    agents: AgentClient
    git: GitService
    files: WorkFiles
    queries: QueryRenderer


@asynccontextmanager
async def open_context(
    url: str, services: MakeServices, *, clock: Clock = system_clock, ids: Ids | None = None
) -> AsyncIterator[WorkflowContext]:
    """Open the store at ``url``, create or migrate its tables, and yield the context of its workflows."""
    async with open_store(url, clock) as store:
        await store.setup()
        made = services(store, clock)
        yield WorkflowContext(store, made.agents, made.git, made.files, made.queries, clock, ids or TimeOrderedIds())
