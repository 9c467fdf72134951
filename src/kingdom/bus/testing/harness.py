"""The harness of the conformance suite: where the store is, and how to let time pass for it."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from kingdom.bus.eventbus import EventBus, connect

if TYPE_CHECKING:
    from types import TracebackType


class ManualClock:
    """A clock that stands still until :meth:`advance` is called. It starts at the current time."""

    def __init__(self) -> None:
        self._now = float(int(time.time()))

    def __call__(self) -> float:
        """Return the seconds since the epoch."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        self._now += seconds


class Harness:
    """A bus under test, set up and open, on a store that other buses can use too.

    A transport that takes the ``clock`` of ``connect`` needs nothing more. One whose store has a clock of its own
    (a database) overrides :meth:`advance` to move every time it has stored ``seconds`` into the past: seen from the
    store, that is the same as waiting.
    """

    bus: EventBus
    #: Whether ``subscribe`` wakes up on publish, from the same bus and from another one on the same store.
    wakes = True

    def __init__(self, url: str, *, clock: ManualClock | None = None) -> None:
        self.url = url
        self.clock = clock
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.bus = await self.open()
        await self.bus.setup()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.aclose()

    async def open(self) -> EventBus:
        """Open another bus on the same store, as another process would. The harness closes it."""
        return await self._opened.enter_async_context(connect(self.url, clock=self.clock))

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass for the store."""
        if self.clock is None:
            raise NotImplementedError(f"{type(self).__name__} has no clock: override advance(seconds)")
        self.clock.advance(seconds)

    def now(self) -> datetime:
        """Return the current time by the store's clock."""
        return datetime.now(UTC) if self.clock is None else datetime.fromtimestamp(self.clock(), UTC)
