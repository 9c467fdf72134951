from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kingdom.bus import DeadVerdict, Delivery, Envelope, EventBus, RetryVerdict, TransportUnavailable
from kingdom.bus.metrics import WorkerStats
from kingdom.bus.testing.behaviours.base import PATIENCE
from kingdom.bus.worker_loops import HeldDeliveries, Settler
from tests.support.buses import FaultyBus, memory_bus


class Bench:
    """A settler with what it needs around it, and the deliveries it settles."""

    def __init__(self, bus: FaultyBus, held: list[Delivery], batch: int = 10) -> None:
        self.bus, self.deliveries, self.held, self.stats = bus, held, HeldDeliveries(), WorkerStats("s")
        self.held.add(held)
        self.flushes: list[list[float]] = []
        self.settler = Settler(bus, self.held, batch, self.stats, self.flushes.append)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with memory_bus() as bus:
        await bus.publish("s", [Envelope("A") for _ in range(6)])
        yield Bench(FaultyBus(bus), await bus.claim("s", worker="w", limit=6))


async def statuses(bus: EventBus, deliveries: list[Delivery]) -> list[str]:
    records = [await bus.find(item.event_id) for item in deliveries]
    return [record.status for record in records if record]


async def test_verdicts_of_all_kinds_are_written_together(bench: Bench) -> None:
    done, retry, dead, *rest = bench.deliveries
    bench.settler.done(done)
    bench.settler.retry(RetryVerdict(retry, 5.0, "X"))
    bench.settler.dead(DeadVerdict(dead, "Y"))
    assert bench.settler.backlog == 3
    await bench.settler.flush()
    assert await statuses(bench.bus, [done, retry, dead]) == ["DONE", "PENDING", "DEAD"]
    assert bench.settler.backlog == 0
    assert bench.held.leased == set(rest)
    assert bench.flushes == [[5.0]]


async def test_a_flush_of_nothing_asks_the_store_for_nothing(bench: Bench) -> None:
    bench.bus.faults["settle"] = 1
    await bench.settler.flush()
    assert bench.bus.failed["settle"] == 0
    assert bench.flushes == []


async def test_what_could_not_be_written_is_kept_in_its_order(bench: Bench) -> None:
    bench.bus.faults["settle"] = 1
    first, second, *_ = bench.deliveries
    bench.settler.done(first)
    with pytest.raises(TransportUnavailable):
        await bench.settler.flush()
    bench.settler.done(second)
    assert bench.settler.backlog == 2
    assert first in bench.held.leased
    await bench.settler.flush()
    assert await statuses(bench.bus, [first, second]) == ["DONE", "DONE"]


async def test_a_lease_that_was_lost_is_counted_and_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    lost = bench.deliveries[0]
    await bench.bus.release([lost])
    bench.settler.done(lost)
    await bench.settler.flush()
    assert bench.stats.leases_lost == 1
    [record] = [item for item in caplog.records if item.getMessage() == "lease lost before the verdict was written"]
    assert record.__dict__["eventId"] == lost.event_id
    assert record.__dict__["stream"] == "s"


async def test_the_last_event_of_a_burst_is_written_at_once(bench: Bench) -> None:
    bench.held.waiting.clear()  # nothing else to do
    running = asyncio.create_task(bench.settler.run())
    bench.settler.done(bench.deliveries[0])
    await until(lambda: bool(bench.flushes))
    bench.settler.finish()
    await running
    assert await statuses(bench.bus, bench.deliveries[:1]) == ["DONE"]


async def test_while_there_is_more_to_do_verdicts_wait_for_company(bench: Bench) -> None:
    running = asyncio.create_task(bench.settler.run())
    for delivery in bench.deliveries[:3]:
        bench.settler.done(delivery)
        await asyncio.sleep(0)
    await until(lambda: bool(bench.flushes))
    bench.settler.finish()
    await running
    assert len(bench.flushes) == 1


async def test_finishing_writes_what_is_left_and_ends(bench: Bench) -> None:
    running = asyncio.create_task(bench.settler.run())
    await asyncio.sleep(0)
    for delivery in bench.deliveries:
        bench.settler.done(delivery)
    bench.settler.finish()
    async with asyncio.timeout(PATIENCE):
        await running
    assert await statuses(bench.bus, bench.deliveries) == ["DONE"] * 6


async def test_finishing_with_nothing_to_write_ends_too(bench: Bench) -> None:
    running = asyncio.create_task(bench.settler.run())
    await asyncio.sleep(0)
    bench.settler.finish()
    async with asyncio.timeout(PATIENCE):
        await running
    assert bench.flushes == []


async def until(holds: object) -> None:
    """Let the loop turn until a condition that no signal tells of holds."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # type: ignore[operator]
            await asyncio.sleep(0.001)
