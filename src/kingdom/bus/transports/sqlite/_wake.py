"""Waking those who wait: at once inside the process, and across processes when the write-ahead log grows.

Every commit of any process appends to the ``-wal`` file, our own included. SQLite's ``data_version`` tells them apart:
on the connection that writes for us it changes with the commits of others only. So a change of the file leads to one
look at that number, and to a wake-up if it moved; our own commits wake nobody twice. When we have written nothing for a
while, it is clear whose change it was, and nobody waits for the look.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Final

from kingdom.base.inotify import IGNORED, MODIFY, FileChange, FileWatcher
from kingdom.bus.errors import BusError

_PAUSE: Final = 0.002  # seconds between two looks: a busy neighbour costs us 500 of them per second at most
_AWAY: Final = 1.0  # seconds before a store that cannot be looked at is tried again

Wake = Callable[[], None]


class Subscribers:
    """Who waits for which stream, and in which event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[object, tuple[asyncio.AbstractEventLoop, Wake]]] = {}

    def add(self, stream: str, wake: Wake) -> Callable[[], None]:
        """Have ``wake`` called in the running loop; returns the undo."""
        key = object()
        self._waiting.setdefault(stream, {})[key] = (asyncio.get_running_loop(), wake)
        return lambda: self._remove(stream, key)

    def _remove(self, stream: str, key: object) -> None:
        waiting = self._waiting.get(stream, {})
        waiting.pop(key, None)
        if not waiting:
            self._waiting.pop(stream, None)

    def ring(self, stream: str) -> None:
        """Wake everyone who waits for ``stream``. Called in a loop, which need not be theirs."""
        waiting = self._waiting.get(stream)
        if not waiting:
            return
        here = asyncio.get_running_loop()
        for loop, wake in list(waiting.values()):
            if loop is here:
                loop.call_soon(wake)
            else:
                with contextlib.suppress(RuntimeError):  # their loop was closed
                    loop.call_soon_threadsafe(wake)

    def ring_all(self) -> None:
        """Wake everyone."""
        for stream in list(self._waiting):
            self.ring(stream)

    def clear(self) -> None:
        """Forget everyone."""
        self._waiting.clear()


class CommitWatcher:
    """Notices the commits of other connections, while somebody here waits for them."""

    def __init__(
        self, path: str, look: Callable[[], Awaitable[int]], busy: Callable[[], bool], subscribers: Subscribers
    ) -> None:
        self._log = f"{path}-wal"
        self._look = look
        self._busy = busy
        self._subscribers = subscribers
        self._watch: FileWatcher | None = None
        self._watching = False
        self._seen: int | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch, in the running loop. Once is enough."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow(), name="kingdom-sqlite-watch")

    async def close(self) -> None:
        """Stop watching. Safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self._watch is not None:
            self._watch.close()
            self._watch, self._watching = None, False

    async def _follow(self) -> None:
        self._watch = FileWatcher(asyncio.get_running_loop())
        while self._watch.available:
            try:
                await self._wait_and_look(self._watch)
            except (BusError, OSError):  # not set up yet, or away: those who wait poll meanwhile
                await asyncio.sleep(_AWAY)

    async def _wait_and_look(self, watch: FileWatcher) -> None:
        if self._watching:
            await self._changed.wait()
        else:
            await self._look()  # the log exists then, for as long as we are connected
            watch.add(self._log, MODIFY, self._on_change)
            self._watching = True
        # Whoever wrote before this line holds the write lock until the commit: our next transaction waits for it and
        # sees it. Whoever writes after it leads to another round.
        self._changed.clear()
        clear = not self._busy()
        if clear:
            self._subscribers.ring_all()
        else:  # most likely it was us: the look can wait until it is in nobody's way
            await asyncio.sleep(_PAUSE)
        version = await self._look()
        if version != self._seen and not clear:
            self._subscribers.ring_all()
        self._seen = version
        await asyncio.sleep(_PAUSE)

    def _on_change(self, changes: list[FileChange]) -> None:
        if any(change.mask & IGNORED for change in changes):  # the log was removed: we were not connected for a while
            self._watching = False
        self._changed.set()


def data_version(connection: sqlite3.Connection) -> int:
    """A number that changes with every commit of another connection."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])
