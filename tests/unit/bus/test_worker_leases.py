"""A worker does not start an event whose lease may have ended while the event waited in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from kingdom.bus import Delivery, Envelope, EventBus, TransportUnavailable
from kingdom.bus.options import Seconds
from kingdom.bus.testing.behaviours.base import SeenEvents, running, worker_on
from tests.support.buses import memory_bus

LEASE = 1.0


class Away(EventBus):
    """A bus whose store does not answer claims and renewals while ``away``."""

    away = False

    async def claim(self, stream: str, **options: Any) -> list[Delivery]:
        if self.away:
            raise TransportUnavailable("away")
        return await super().claim(stream, **options)

    async def extend(self, deliveries: Iterable[Delivery], lease: Seconds) -> list[Delivery]:
        if self.away:
            raise TransportUnavailable("away")
        return await super().extend(deliveries, lease)


@pytest.fixture
async def bus() -> AsyncIterator[Away]:
    async with memory_bus() as inner:
        yield Away(inner.transport, inner.url)


async def handled_after_an_outage(bus: Away, *, back: bool, claimed_elsewhere: bool) -> list[str]:
    """Return the ids that a worker starts, of which the last one waited in it for longer than its lease."""
    await bus.publish("s", [Envelope("Happened", event_id=name) for name in ("quick", "slow", "waiting")])
    worker = worker_on(bus, "s", concurrency=1, lease=LEASE)
    seen, outage_over = SeenEvents(), asyncio.Event()

    @worker.on("Happened")
    async def handle(event: Envelope) -> None:
        seen.add(event)
        if event.event_id == "slow":
            await outage_over.wait()

    async with running(worker):
        await seen.reach(2)
        while not worker._held.waiting:
            await asyncio.sleep(0.01)
        bus.away = True
        await asyncio.sleep(2 * LEASE)
        if claimed_elsewhere:
            other = EventBus(bus.transport, bus.url)
            assert await other.claim("s", worker="other", ids=["waiting"], lease=60)
        bus.away = not back
        outage_over.set()
        while worker._held.unfinished:
            await asyncio.sleep(0.01)
        return seen.ids


async def test_an_event_that_another_worker_has_claimed_meanwhile_is_not_started(bus: Away) -> None:
    started = await handled_after_an_outage(bus, back=True, claimed_elsewhere=True)
    assert started == ["quick", "slow"]


async def test_an_event_that_is_still_held_is_started(bus: Away) -> None:
    started = await handled_after_an_outage(bus, back=True, claimed_elsewhere=False)
    assert started == ["quick", "slow", "waiting"]


async def test_an_event_whose_lease_cannot_be_checked_is_not_started(bus: Away) -> None:
    started = await handled_after_an_outage(bus, back=False, claimed_elsewhere=True)
    assert started == ["quick", "slow"]


async def test_leases_are_renewed_first_when_the_answer_to_a_claim_took_long() -> None:
    calls: list[str] = []

    class Slow(EventBus):
        async def claim(self, stream: str, **options: Any) -> list[Delivery]:
            claimed = await super().claim(stream, **options)
            await asyncio.sleep(0.6 * LEASE * bool(claimed))
            return claimed

        async def extend(self, deliveries: Iterable[Delivery], lease: Seconds) -> list[Delivery]:
            calls.append("extend")
            return await super().extend(deliveries, lease)

    async with memory_bus() as inner:
        bus = Slow(inner.transport, inner.url)
        await bus.publish("s", Envelope("Happened"))
        worker, seen = worker_on(bus, "s", concurrency=1, lease=LEASE), SeenEvents()

        @worker.on("Happened")
        async def handle(event: Envelope) -> None:
            calls.append("handle")
            seen.add(event)

        async with running(worker):
            await seen.reach(1)
    assert calls[0] == "extend"
    assert calls.count("handle") == 1
