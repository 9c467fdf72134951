"""Buses for tests of the worker: in memory, and with faults put in."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kingdom.bus import Delivery, EventBus, TransportUnavailable, connect
from kingdom.bus.transport import Clock


class FaultyBus(EventBus):
    """A bus whose calls fail as often as told, before they reach the store."""

    def __init__(self, bus: EventBus) -> None:
        super().__init__(bus.transport, bus.url)
        self.faults: Counter[str] = Counter()
        self.error: Exception = TransportUnavailable("the database is away")
        self.failed: Counter[str] = Counter()

    async def claim(self, stream: str, **options: Any) -> list[Delivery]:
        self._fail("claim")
        return await super().claim(stream, **options)

    async def settle(self, **verdicts: Any) -> list[Delivery]:
        self._fail("settle")
        return await super().settle(**verdicts)

    async def extend(self, deliveries: Any, lease: Any) -> list[Delivery]:
        self._fail("extend")
        return await super().extend(deliveries, lease)

    async def release(self, deliveries: Any) -> list[Delivery]:
        self._fail("release")
        return await super().release(deliveries)

    def _fail(self, call: str) -> None:
        if self.faults[call]:
            self.faults[call] -= 1
            self.failed[call] += 1
            raise self.error


@asynccontextmanager
async def memory_bus(clock: Clock | None = None) -> AsyncIterator[EventBus]:
    """A bus in memory, set up."""
    async with connect("memory:", clock=clock) as bus:
        await bus.setup()
        yield bus
