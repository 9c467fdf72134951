"""What use cases and handlers work with, and the steps they take."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from kingdom.workflow.domain.events import DomainEvent
from kingdom.workflow.ports import (
    AgentClient,
    Clock,
    GitService,
    Ids,
    QueryTexts,
    Store,
    Told,
    Transaction,
    WorkFiles,
)

log = logging.getLogger("kingdom.workflow")
Effect: TypeAlias = Callable[[], Awaitable[None]]


class Turns:
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
class Counts:
    """What happened that should be rare."""

    refused: int = 0  # news of an attempt that is over
    effects_failed: int = 0  # calls to the outside, after a commit, that raised
    retried: int = 0  # events whose handler raised


@dataclass(slots=True)
class Parts:
    """The store and the outside, as :mod:`kingdom.workflow.bootstrap` wires them."""

    store: Store
    agents: AgentClient
    git: GitService
    files: WorkFiles
    queries: QueryTexts
    clock: Clock
    ids: Ids
    turns: Turns = field(default_factory=Turns)
    counts: Counts = field(default_factory=Counts)

    delivered: set[tuple[str, int]] | None = None  # while an engine recovers: the tasks it gave to agents itself

    async def outside(
        self,
        what: str,
        call: Effect,
        failed: Callable[[str], Told] | None = None,
        note: Callable[[Transaction], Awaitable[None]] | None = None,
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
    async def step(self) -> AsyncIterator[Step]:
        """A transaction, followed by what it asked to be done once it has committed."""
        async with self.store.transaction() as tx:
            taken = Step(tx)
            yield taken
        for effect in taken.effects:
            await effect()


@dataclass(slots=True)
class Step:
    """One transaction, and the calls to the outside that follow its commit. Never the other way round."""

    tx: Transaction
    effects: list[Effect] = field(default_factory=list)

    def tell(self, workflow_id: str, event: DomainEvent, attempt: int | None = None) -> None:
        """Record an event of a workflow."""
        self.tx.record(told(workflow_id, event, attempt))

    def then(self, effect: Effect) -> None:
        """Have something done once this has committed. It must not raise, and may be lost in a crash."""
        self.effects.append(effect)


def told(workflow_id: str, event: DomainEvent, attempt: int | None = None) -> Told:
    """An event of a workflow."""
    return Told(event, "Workflow", workflow_id, attempt)
