"""The store itself: made once, shared by many, outliving them."""
# ruff: noqa: D102 - the names of the tests are the documentation

from __future__ import annotations

import asyncio

from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import Behaviours, counts, event, events, ids, of, take
from kingdom.bus.testing.harness import Harness


class Storing(Behaviours):
    """``setup``, ``open``, ``close``."""

    async def test_setting_up_again_changes_nothing(self, bus: EventBus, stream: str) -> None:
        [event_id] = await bus.publish(stream, event())
        await bus.declare(f"{stream}.ordered", ordered=True)
        assert await bus.setup() == []
        assert ids(await take(bus, stream)) == [event_id]
        await bus.publish(f"{stream}.ordered", of("1", 2))
        assert len(await take(bus, f"{stream}.ordered")) == 1

    async def test_setting_up_from_two_buses_at_once_is_safe(self, harness: Harness, stream: str) -> None:
        other = await harness.open()
        assert list(await asyncio.gather(harness.bus.setup(), other.setup(), other.setup())) == [[], [], []]
        [event_id] = await harness.bus.publish(stream, event())
        assert ids(await take(other, stream)) == [event_id]

    async def test_events_outlive_the_bus_that_published_them(self, harness: Harness, stream: str) -> None:
        publisher, consumer = await harness.open(), await harness.open()
        several = events(3)
        await publisher.publish(stream, several)
        await publisher.close()
        assert ids(await take(consumer, stream)) == ids(several)

    async def test_what_a_closed_bus_held_comes_back_when_the_lease_ends(self, harness: Harness, stream: str) -> None:
        worker = await harness.open()
        [event_id] = await harness.bus.publish(stream, event())
        await take(worker, stream, lease=30)
        await worker.close()
        assert await take(harness.bus, stream) == []
        await harness.advance(31)
        assert ids(await take(harness.bus, stream)) == [event_id]

    async def test_closing_twice_is_safe(self, harness: Harness, stream: str) -> None:
        other = await harness.open()
        await other.publish(stream, event())
        await other.close()
        await other.close()
        assert await counts(harness.bus, stream) == (1, 0, 0)
