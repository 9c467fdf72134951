"""Fixtures and helpers of the behaviours."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from kingdom.bus.delivery import Delivery, Depth, Record
from kingdom.bus.envelope import Envelope
from kingdom.bus.eventbus import EventBus
from kingdom.bus.options import Seconds
from kingdom.bus.testing.harness import Harness
from kingdom.bus.worker import Worker


class Behaviours:
    """The fixtures of every behaviour. The test class of the transport defines ``harness``."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def harness(self) -> Harness:
        """The transport under test."""
        raise NotImplementedError(f"{type(self).__name__} must define the fixture `harness`")

    @pytest.fixture
    def bus(self, harness: Harness) -> EventBus:
        """A bus on the store under test."""
        return harness.bus

    @pytest.fixture
    def stream(self) -> str:
        """A stream that no other test uses."""
        return f"conformance.{uuid4().hex}"


def event(event_type: str = "Happened", **fields: Any) -> Envelope:
    return Envelope(type=event_type, **fields)


def events(count: int, **fields: Any) -> list[Envelope]:
    """Return several events that differ in their ids and numbers."""
    return [event(payload={"number": number}, **fields) for number in range(count)]


def of(aggregate: str, count: int = 1, **fields: Any) -> list[Envelope]:
    """Events of one aggregate."""
    return events(count, aggregate_type="Order", aggregate_id=aggregate, **fields)


def ids(items: Iterable[Envelope | Delivery]) -> list[str]:
    """The ids of envelopes or deliveries."""
    return [item.event_id for item in items]


async def take(bus: EventBus, stream: str, limit: int = 100, **options: Any) -> list[Delivery]:
    """Claim as any worker would; the default lease outlives every test."""
    return await bus.claim(stream, limit=limit, **{"worker": "anyone", "lease": 1_000_000, **options})


async def take_one(bus: EventBus, stream: str, **options: Any) -> Delivery:
    """Claim the only claimable event."""
    [delivery] = await take(bus, stream, **options)
    return delivery


async def bury(bus: EventBus, stream: str, *envelopes: Envelope, code: str = "REJECTED") -> None:
    """Publish events and let them go DEAD."""
    await bus.publish(stream, envelopes)
    assert await bus.settle(dead=[(item, code, "because") for item in await take(bus, stream)]) == []


async def finish(bus: EventBus, stream: str, *envelopes: Envelope) -> None:
    """Publish events and let them become DONE."""
    await bus.publish(stream, envelopes)
    assert await bus.settle(done=await take(bus, stream)) == []


async def known(bus: EventBus, event_id: str) -> Record:
    """Return the record of an event, which must exist."""
    record = await bus.find(event_id)
    assert record is not None, f"the store does not know {event_id}"
    return record


async def depth_of(bus: EventBus, stream: str) -> Depth:
    """Return the depth of a stream; a store may omit streams with nothing to count."""
    return (await bus.depth()).get(stream, Depth())


async def counts(bus: EventBus, stream: str) -> tuple[int, int, int]:
    """Return the numbers of pending, processing and dead events."""
    depth = await depth_of(bus, stream)
    return depth.pending, depth.processing, depth.dead


# ── signals instead of sleeps ─────────────────────────────────────────────────────────────────────────────────────

PATIENCE = 30.0  # seconds to wait for a signal


class Signal:
    """A change that can be waited for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def pulse(self) -> None:
        """Report a change. Safe from any thread."""
        self._loop.call_soon_threadsafe(self._changed.set)

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()
        self._changed.clear()


class SeenEvents:
    """The events that handlers saw, in the order they saw them."""

    def __init__(self) -> None:
        self.events: list[Envelope] = []
        self._signal = Signal()

    @property
    def ids(self) -> list[str]:
        """The ids seen so far."""
        return [item.event_id for item in self.events]

    def add(self, item: Envelope) -> None:
        """Record that a handler saw an event. Safe from any thread."""
        self.events.append(item)
        self._signal.pulse()

    async def reach(self, count: int) -> None:
        """Wait until ``count`` events were seen."""
        async with asyncio.timeout(PATIENCE):
            while len(self.events) < count:
                await self._signal.wait()


class WatchedBus(EventBus):
    """The same bus, which reports when a worker's calls have returned."""

    def __init__(self, bus: EventBus) -> None:
        super().__init__(bus.transport, bus.url)
        self._returned: Counter[str] = Counter()
        self._signal = Signal()

    async def claim(self, stream: str, **options: Any) -> list[Delivery]:
        return self._note("claim", await super().claim(stream, **options))

    async def settle(self, **verdicts: Any) -> list[Delivery]:
        return self._note("settle", await super().settle(**verdicts))

    async def extend(self, deliveries: Iterable[Delivery], lease: Seconds) -> list[Delivery]:
        return self._note("extend", await super().extend(deliveries, lease))

    def _note(self, call: str, result: list[Delivery]) -> list[Delivery]:
        self._returned[call] += 1
        self._signal.pulse()
        return result

    async def returns(self, call: str) -> None:
        """Wait until ``call`` returns the next time."""
        before = self._returned[call]
        async with asyncio.timeout(PATIENCE):
            while self._returned[call] == before:
                await self._signal.wait()


@asynccontextmanager
async def running(*workers: Worker) -> AsyncIterator[None]:
    """Run workers in the background; then stop them and wait until they have drained."""
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*tasks)


def worker_on(bus: EventBus, stream: str, **options: Any) -> Worker:
    """Return a worker that polls often and leaves signals alone."""
    return Worker(bus, stream, **{"poll": 0.05, "signals": False, **options})
