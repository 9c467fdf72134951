"""How a worker claims: carefully at first, ahead of its handlers later, and never more than it can give back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kingdom.bus import Delivery, Envelope, EventBus
from kingdom.bus.testing.behaviours.base import PATIENCE, SeenEvents, running, worker_on
from tests.support.buses import memory_bus


class SlowBus(EventBus):
    """A bus whose claims can be held up after they have taken their events."""

    def __init__(self, bus: EventBus) -> None:
        super().__init__(bus.transport, bus.url)
        self.claims: list[int] = []
        self.taken, self.let_go = asyncio.Event(), asyncio.Event()
        self.let_go.set()

    async def claim(self, stream: str, **options: Any) -> list[Delivery]:
        claimed = await super().claim(stream, **options)
        self.claims.append(len(claimed))
        self.taken.set()
        await self.let_go.wait()
        return claimed


@pytest.fixture
async def bus() -> AsyncIterator[SlowBus]:
    async with memory_bus() as inner:
        yield SlowBus(inner)


async def test_a_new_worker_begins_with_one_event(bus: SlowBus) -> None:
    await bus.publish("s", [Envelope("A") for _ in range(50)])
    worker, seen, finish = worker_on(bus, "s"), SeenEvents(), asyncio.Event()

    @worker.on("A")
    async def handle(event: Envelope) -> None:
        seen.add(event)
        await finish.wait()

    async with running(worker):
        await seen.reach(1)
        assert (await bus.depth())["s"].processing == 1
        finish.set()
        await seen.reach(50)
    assert bus.claims[0] == 1
    assert max(bus.claims) > 1


async def test_a_claim_under_way_when_the_worker_stops_is_given_back(bus: SlowBus) -> None:
    await bus.publish("s", Envelope("A"))
    worker, seen = worker_on(bus, "s"), SeenEvents()
    worker.on("A")(seen.add)
    bus.let_go.clear()
    run = asyncio.create_task(worker.run())
    await bus.taken.wait()
    worker.stop()
    await asyncio.sleep(0)
    bus.let_go.set()
    async with asyncio.timeout(PATIENCE):
        await run
    [delivery] = await bus.claim("s", worker="w")
    assert (seen.events, delivery.attempt) == ([], 1)


async def test_a_handler_that_swallows_its_cancellation_does_not_keep_the_worker(bus: SlowBus) -> None:
    await bus.publish("s", Envelope("A"))
    worker, seen, finish = worker_on(bus, "s", grace=0), SeenEvents(), asyncio.Event()

    @worker.on("A")
    async def stubborn(event: Envelope) -> None:
        seen.add(event)
        while not finish.is_set():
            try:
                await finish.wait()
            except asyncio.CancelledError:
                continue

    try:
        async with running(worker):
            await seen.reach(1)
        [delivery] = await bus.claim("s", worker="w")
        assert delivery.attempt == 1
    finally:
        finish.set()
