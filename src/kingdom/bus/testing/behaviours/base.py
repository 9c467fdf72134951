"""What the behaviours share: fixtures, and short ways to make events and look at them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import pytest

from kingdom.bus.delivery import Delivery, Depth, Record
from kingdom.bus.envelope import Envelope
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.harness import Harness


class Behaviours:
    """The fixtures of every behaviour. ``harness`` is for the transport's own test class to give."""

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
    """An event."""
    return Envelope(type=event_type, **fields)


def events(count: int, **fields: Any) -> list[Envelope]:
    """Several events, all alike but for their ids."""
    return [event(payload={"number": number}, **fields) for number in range(count)]


def of(aggregate: str, count: int = 1, **fields: Any) -> list[Envelope]:
    """Events of one aggregate."""
    return events(count, aggregate_type="Order", aggregate_id=aggregate, **fields)


def ids(items: Iterable[Envelope | Delivery]) -> list[str]:
    """The ids of envelopes or deliveries."""
    return [item.event_id for item in items]


async def take(bus: EventBus, stream: str, limit: int = 100, **options: Any) -> list[Delivery]:
    """Claim as any worker would; the lease outlives every test that does not say otherwise."""
    return await bus.claim(stream, limit=limit, **{"worker": "anyone", "lease": 1_000_000, **options})


async def take_one(bus: EventBus, stream: str, **options: Any) -> Delivery:
    """Claim the one event there is to claim."""
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
    """What the store knows of an event that it must know."""
    record = await bus.find(event_id)
    assert record is not None, f"the store does not know {event_id}"
    return record


async def depth_of(bus: EventBus, stream: str) -> Depth:
    """How full a stream is; a store may leave out streams that have nothing waiting, held or dead."""
    return (await bus.depth()).get(stream, Depth())


async def counts(bus: EventBus, stream: str) -> tuple[int, int, int]:
    """How many events are pending, processing and dead."""
    depth = await depth_of(bus, stream)
    return depth.pending, depth.processing, depth.dead
