"""Reading once what many visitors look at: twenty open pages cost the disk as much as one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")
_FRESH: Final = 0.2  # seconds for which what was read is given to whoever asks
_MOST: Final = 256  # answers that are remembered


class Shared:
    """Answers of readers, kept for a moment."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def read(self, key: Hashable, reader: Callable[[], Awaitable[T]], fresh: float = _FRESH) -> T:
        """What ``reader`` gives; whoever asks for the same key within a moment gets the same answer."""
        now = self._clock()
        at, task = self._kept.get(key, (0.0, None))
        if task is None or (task.done() and now - at > fresh) or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.ensure_future(_awaited(reader))
            task.add_done_callback(_heard)
            self._forget(now)
            self._kept[key] = now, task
        # one visitor who goes away must not take the answer from the others
        return cast(T, await asyncio.shield(task))

    def _forget(self, now: float) -> None:
        if len(self._kept) >= _MOST:
            self._kept = {key: one for key, one in self._kept.items() if now - one[0] <= _FRESH}


async def _awaited(reader: Callable[[], Awaitable[T]]) -> T:
    return await reader()


def _heard(task: asyncio.Task[Any]) -> None:
    """An error is told to those who asked; with nobody left it is not worth a warning."""
    if not task.cancelled():
        task.exception()
