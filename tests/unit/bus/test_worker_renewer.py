from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from kingdom.bus import Delivery, Envelope, EventBus
from kingdom.bus.metrics import WorkerStats
from kingdom.bus.options import Seconds
from kingdom.bus.testing.behaviours.base import WatchedBus
from kingdom.bus.worker_loops import HeldDeliveries, LeaseRenewer
from tests.support.buses import memory_bus


@pytest.fixture
async def bus() -> AsyncIterator[EventBus]:
    async with memory_bus() as inner:
        await inner.publish("s", [Envelope("A") for _ in range(3)])
        yield inner


async def test_every_lease_held_is_renewed_and_lost_ones_are_let_go(
    bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    watched, held, stats = WatchedBus(bus), HeldDeliveries(), WorkerStats("s")
    lost, *kept = await bus.claim("s", worker="w", limit=3, lease=60)
    held.add([lost, *kept])
    await bus.release([lost])
    renewing = asyncio.create_task(LeaseRenewer(watched, held, 0.03, stats).run())
    await watched.returns("extend")
    await watched.returns("extend")
    renewing.cancel()
    assert held.leased == set(kept)
    assert list(held.waiting) == kept
    assert stats.leases_lost == 1
    [record] = [item for item in caplog.records if item.getMessage() == "lease lost while the event was held"]
    assert record.__dict__["eventId"] == lost.event_id


async def test_what_was_settled_while_it_was_being_renewed_is_not_lost(bus: EventBus) -> None:
    held, stats, renewed = HeldDeliveries(), WorkerStats("s"), asyncio.Event()

    class Slow(EventBus):
        async def extend(self, deliveries: Iterable[Delivery], lease: Seconds) -> list[Delivery]:
            several = list(deliveries)
            await self.settle(done=several)  # the settler was quicker
            held.leased.difference_update(several)
            lost = await super().extend(several, lease)
            renewed.set()
            return lost

    held.add(await bus.claim("s", worker="w", limit=3, lease=60))
    renewing = asyncio.create_task(LeaseRenewer(Slow(bus.transport, bus.url), held, 0.03, stats).run())
    await renewed.wait()
    await asyncio.sleep(0)
    renewing.cancel()
    assert stats.leases_lost == 0


async def test_an_idle_worker_renews_nothing(bus: EventBus) -> None:
    calls = []

    class Counting(EventBus):
        async def extend(self, deliveries: Iterable[Delivery], lease: Seconds) -> list[Delivery]:
            calls.append(list(deliveries))
            return []

    held = HeldDeliveries()
    renewing = asyncio.create_task(LeaseRenewer(Counting(bus.transport, bus.url), held, 0.003, WorkerStats("s")).run())
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert calls == []
    held.add(await bus.claim("s", worker="w", limit=1, lease=60))
    while not calls:
        await asyncio.sleep(0.001)
    renewing.cancel()
    assert [len(call) for call in calls[:1]] == [1]
