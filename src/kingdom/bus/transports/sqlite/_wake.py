"""Wake subscribers: inside the process at once, across processes when the write-ahead log grows.

Every commit of any process appends to the ``-wal`` file, including our own. ``PRAGMA data_version`` on our write
connection changes with the commits of other connections only. So a change of the file leads to one query of that
number, and to a wake-up if it changed. If we have written nothing for a while, the change cannot be ours, and the
wake-up does not wait for the query.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Final

from kingdom.base.inotify import IGNORED, MODIFY, FileChange, FileWatcher
from kingdom.bus.errors import BusError

_MIN_QUERY_INTERVAL_SECONDS: Final = 0.002  # a busy process beside us costs us at most 500 queries per second
_RETRY_SECONDS: Final = 1.0  # after the store could not be queried

Wake = Callable[[], None]


class Subscribers:
    """The subscribers of each stream, with their event loops."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[object, tuple[asyncio.AbstractEventLoop, Wake]]] = {}

    def add(self, stream: str, wake: Wake) -> Callable[[], None]:
        """Call ``wake`` in the running loop when events may be claimable; return the undo."""
        key = object()
        self._waiting.setdefault(stream, {})[key] = (asyncio.get_running_loop(), wake)
        return lambda: self._remove(stream, key)

    def _remove(self, stream: str, key: object) -> None:
        waiting = self._waiting.get(stream, {})
        waiting.pop(key, None)
        if not waiting:
            self._waiting.pop(stream, None)

    def wake(self, stream: str) -> None:
        """Wake the subscribers of ``stream``. Call it in an event loop; theirs may be another."""
        waiting = self._waiting.get(stream)
        if not waiting:
            return
        here = asyncio.get_running_loop()
        for loop, callback in list(waiting.values()):
            if loop is here:
                loop.call_soon(callback)
            else:
                with contextlib.suppress(RuntimeError):  # the loop was closed
                    loop.call_soon_threadsafe(callback)

    def wake_all(self) -> None:
        for stream in list(self._waiting):
            self.wake(stream)

    def clear(self) -> None:
        self._waiting.clear()


class CommitWatcher:
    """Notices the commits of other connections, and wakes the subscribers."""

    def __init__(
        self, path: str, query: Callable[[], Awaitable[int]], busy: Callable[[], bool], subscribers: Subscribers
    ) -> None:
        self._log = f"{path}-wal"
        self._query = query
        self._busy = busy
        self._subscribers = subscribers
        self._watch: FileWatcher | None = None
        self._watching = False
        self._seen: int | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start watching in the running loop, unless started."""
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
            except (BusError, OSError):  # not set up yet, or away: workers poll meanwhile
                await asyncio.sleep(_RETRY_SECONDS)

    async def _wait_and_look(self, watch: FileWatcher) -> None:
        if self._watching:
            await self._changed.wait()
        else:
            await self._query()  # connects: the log exists as long as we are connected
            watch.add(self._log, MODIFY, self._on_change)
            self._watching = True
        # A process that wrote before this line holds the write lock until it commits: our query waits for it and sees
        # the commit. A process that writes later causes another round.
        self._changed.clear()
        not_ours = not self._busy()
        if not_ours:
            self._subscribers.wake_all()
        else:  # most likely our own commit: the query can wait until it delays nobody
            await asyncio.sleep(_MIN_QUERY_INTERVAL_SECONDS)
        version = await self._query()
        if version != self._seen and not not_ours:
            self._subscribers.wake_all()
        self._seen = version
        await asyncio.sleep(_MIN_QUERY_INTERVAL_SECONDS)

    def _on_change(self, changes: list[FileChange]) -> None:
        if any(change.mask & IGNORED for change in changes):  # the log was removed while we were not connected
            self._watching = False
        self._changed.set()


def data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes with every commit of another connection."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])
