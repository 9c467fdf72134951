"""One engine per store: a second one refuses, and says who has it."""

from __future__ import annotations

import os
import socket
import time

from kingdom.bus.connecting import shown_url
from kingdom.workflow.domain.errors import WorkflowError
from kingdom.workflow.ports import EngineLock, Store


class StoreTaken(WorkflowError):
    """Another engine runs on this store."""

    code = "SYS_ENGINE_RUNNING"


class Lease:
    """The right to run the workflows of a store. Ends with the process, however it ends."""

    def __init__(self, store: Store, owner: str | None = None) -> None:
        self._store = store
        self.owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        self.epoch = 0
        self._lock: EngineLock | None = None

    async def take(self) -> None:
        """Take it; raises :class:`StoreTaken`."""
        self._lock = await self._store.lock_engine()
        if self._lock is None:
            owner, since = await self._store.engine_owner()
            seconds = max(0, int(time.time() - since))
            raise StoreTaken(
                f"an engine runs on {shown_url(self._store.bus.url)} already: {owner}, for {seconds} s. "
                "There is one for each store; stop that one first, or give this one another store"
            )
        self.epoch = await self._store.record_engine(self.owner, time.time())

    async def release(self) -> None:
        """Give it back; may be repeated."""
        lock, self._lock = self._lock, None
        if lock is not None:
            await lock.release()

    def drop(self) -> None:
        """Lose it at once, as a killed process does."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.drop()
