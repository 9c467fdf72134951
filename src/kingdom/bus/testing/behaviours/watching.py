"""Signals instead of sleeps: what the worker's behaviours wait for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from kingdom.bus.delivery import Delivery
from kingdom.bus.envelope import Envelope
from kingdom.bus.eventbus import EventBus, Seconds
from kingdom.bus.worker import Worker

PATIENCE = 30.0  # seconds after which a signal that has not come never will


class Signal:
    """Something that can be waited for: a count that grows."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def pulse(self) -> None:
        """Something changed. Safe from any thread."""
        self._loop.call_soon_threadsafe(self._changed.set)

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()
        self._changed.clear()


class Tally:
    """The events that handlers saw, in the order they saw them."""

    def __init__(self) -> None:
        self.events: list[Envelope] = []
        self._signal = Signal()

    @property
    def ids(self) -> list[str]:
        """The ids seen so far."""
        return [item.event_id for item in self.events]

    def add(self, item: Envelope) -> None:
        """A handler saw an event. Safe from any thread."""
        self.events.append(item)
        self._signal.pulse()

    async def reach(self, count: int) -> None:
        """Wait until ``count`` events were seen."""
        async with asyncio.timeout(PATIENCE):
            while len(self.events) < count:
                await self._signal.wait()


class WatchedBus(EventBus):
    """The same bus, which tells when a worker's calls have returned."""

    def __init__(self, bus: EventBus) -> None:
        super().__init__(bus.transport, bus.url)
        self._returned: Counter[str] = Counter()
        self._signal = Signal()

    async def claim(self, stream: str, **options: Any) -> list[Delivery]:
        """Claim, and tell."""
        return self._note("claim", await super().claim(stream, **options))

    async def settle(self, **verdicts: Any) -> list[Delivery]:
        """Settle, and tell."""
        return self._note("settle", await super().settle(**verdicts))

    async def extend(self, deliveries: Iterable[Delivery], lease: Seconds) -> list[Delivery]:
        """Extend, and tell."""
        return self._note("extend", await super().extend(deliveries, lease))

    def _note(self, call: str, result: list[Delivery]) -> list[Delivery]:
        self._returned[call] += 1
        self._signal.pulse()
        return result

    async def returns(self, call: str) -> None:
        """Wait until ``call`` returns once more from now on."""
        before = self._returned[call]
        async with asyncio.timeout(PATIENCE):
            while self._returned[call] == before:
                await self._signal.wait()


@asynccontextmanager
async def running(*workers: Worker) -> AsyncIterator[None]:
    """Run workers meanwhile; then stop them and wait until they have drained."""
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*tasks)


def worker_on(bus: EventBus, stream: str, **options: Any) -> Worker:
    """A worker that looks often enough for a test and leaves the signals of the test run alone."""
    return Worker(bus, stream, **{"poll": 0.05, "signals": False, **options})
