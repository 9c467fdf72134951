"""Waiting until somebody writes to a log, or rotates it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kingdom.bus import inotify
from kingdom.bus.inotify import Change, Watch
from kingdom.journal.errors import unavailable


@asynccontextmanager
async def waking(path: Path, poll: float) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Give a function that waits for the next change of the log, ``poll`` seconds at most.

    A change that happens between two calls is not missed: it lets the next call return at once.
    """
    changed = asyncio.Event()

    def heard(changes: list[Change]) -> None:
        # Other logs lie in the same directory; a closed file of ours begins with the log's stem.
        if any(not change.name or change.name.startswith(path.stem) for change in changes):
            changed.set()

    async def wait() -> None:
        # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with what it waits for.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(poll):
                await changed.wait()
        changed.clear()

    watch = Watch(asyncio.get_running_loop())
    try:
        try:
            watch.add(path.parent, inotify.MODIFY | inotify.CREATE | inotify.MOVED_TO, heard)
        except OSError as error:
            raise unavailable(error, "watch", path.parent) from error
        yield wait
    finally:
        watch.close()
