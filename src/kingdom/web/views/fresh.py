"""Looking once for everybody who asks at about the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_SHARE: Final = 4  # a look counts for at least so many times as long as it took


class Fresh(Generic[T]):
    """The result of a look, made anew when it is older than ``seconds``."""

    def __init__(self, look: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._look = look
        self._seconds = seconds
        self._until = 0.0
        self._looking: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """What was seen lately, or is seen now. Raises what looking raises, to everybody who waited for it."""
        if self._looking is None or (self._looking.done() and time.monotonic() >= self._until):
            self._looking = asyncio.create_task(self._take())
        # One who goes away must not take the answer from the others.
        return await asyncio.shield(self._looking)

    async def _take(self) -> T:
        began = time.monotonic()
        try:
            return await self._look()
        finally:
            now = time.monotonic()
            self._until = now + max(self._seconds, _SHARE * (now - began))
