"""A store that goes away and comes back: workers wait for it and say so once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from kingdom.bus import Envelope, RetryPolicy, StorageFull, Worker
from kingdom.bus.testing.behaviours.base import SeenEvents, running, worker_on
from kingdom.bus.worker_loops import Outage
from tests.support.buses import FaultyBus, memory_bus


@pytest.fixture
async def bus() -> AsyncIterator[FaultyBus]:
    async with memory_bus() as inner:
        yield FaultyBus(inner)


def counting(bus: FaultyBus, **options: object) -> tuple[Worker, SeenEvents]:
    worker, seen = worker_on(bus, "s", **options), SeenEvents()

    @worker.on("A")
    async def handle(event: Envelope) -> None:
        seen.add(event)

    return worker, seen


async def test_waits_grow_up_to_a_cap_and_start_over_after_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("kingdom.bus.worker_loops.asyncio", SimpleNamespace(sleep=sleep))
    outage = Outage("claim events")
    for _ in range(40):
        await outage.wait(OSError("away"))
    outage.over()
    await outage.wait(OSError("away"))
    expected = [min(5.0, 0.1 * 2**number) for number in range(40)] + [0.1]
    assert all(0.8 * exact <= wait <= 1.2 * exact for wait, exact in zip(waits, expected, strict=True))


async def test_an_outage_is_told_once_when_it_begins_and_once_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("claim events", first=0.0)
    for _ in range(3):
        await outage.wait(OSError("away"))
    outage.over()
    outage.over()
    assert [record.getMessage() for record in caplog.records] == [
        "cannot claim events, trying again until the store answers: away",
        "can claim events again after 3 failed tries",
    ]


async def test_a_worker_outlives_a_store_that_cannot_be_claimed_from(bus: FaultyBus) -> None:
    await bus.publish("s", Envelope("A"))
    bus.faults["claim"] = 2
    worker, seen = counting(bus)
    async with running(worker):
        await seen.reach(1)
    assert bus.failed["claim"] == 2


async def test_verdicts_are_kept_until_the_store_takes_them(bus: FaultyBus) -> None:
    [event_id] = await bus.publish("s", Envelope("A"))
    bus.faults["settle"] = 2
    worker, seen = counting(bus)
    async with running(worker):
        await seen.reach(1)
        await bus.publish("s", Envelope("A"))
        await seen.reach(2)
        while bus.faults["settle"]:
            await asyncio.sleep(0.01)
    record = await bus.find(event_id)
    assert record is not None
    assert (record.status, record.attempts) == ("DONE", 1)


async def test_a_full_disk_is_waited_out_as_well(bus: FaultyBus) -> None:
    await bus.publish("s", Envelope("A"))
    bus.error = StorageFull("no room left")
    bus.faults["claim"] = bus.faults["settle"] = 1
    worker, seen = counting(bus)
    async with running(worker):
        await seen.reach(1)
        while bus.faults["settle"]:
            await asyncio.sleep(0.01)
    assert (bus.failed["claim"], bus.failed["settle"]) == (1, 1)


async def test_a_worker_that_stops_while_the_store_is_away_says_what_was_not_written(
    bus: FaultyBus, caplog: pytest.LogCaptureFixture
) -> None:
    [event_id] = await bus.publish("s", Envelope("A"))
    worker, seen = counting(bus)
    bus.faults["settle"] = 1000
    async with running(worker):
        await seen.reach(1)
    assert "1 verdicts were not written, their leases will end: the database is away" in caplog.text
    record = await bus.find(event_id)
    assert record is not None
    assert record.status == "PROCESSING"  # until its lease ends


async def test_leases_that_could_not_be_renewed_are_tried_again(
    bus: FaultyBus, caplog: pytest.LogCaptureFixture
) -> None:
    await bus.publish("s", Envelope("A"))
    worker, finish, started = worker_on(bus, "s", lease=0.3, concurrency=1), asyncio.Event(), asyncio.Event()

    @worker.on("A")
    async def handle(event: Envelope) -> None:
        started.set()
        await finish.wait()

    async with running(worker):
        await started.wait()
        bus.faults["extend"] = 1  # not before: a claim that took long is extended before its handler starts
        while bus.faults["extend"]:
            await asyncio.sleep(0.01)
        finish.set()
    assert "leases could not be renewed: the database is away" in caplog.text
    assert worker.stats.processed["done"] == 1


async def test_an_error_that_is_no_outage_ends_the_worker(bus: FaultyBus) -> None:
    bus.error = ZeroDivisionError("a bug in the transport")
    bus.faults["claim"] = 1
    worker, _ = counting(bus, retry=RetryPolicy())
    with pytest.raises(ZeroDivisionError, match="a bug in the transport"):
        await worker.run()


async def test_what_a_worker_held_when_it_failed_is_given_back(bus: FaultyBus) -> None:
    [event_id] = await bus.publish("s", Envelope("A"))
    worker, started = worker_on(bus, "s", concurrency=1, lease=0.3), asyncio.Event()

    @worker.on("A")
    async def handle(event: Envelope) -> None:
        started.set()
        bus.faults["extend"] = 1
        await asyncio.Event().wait()

    bus.error = ZeroDivisionError("a bug in the transport")
    with pytest.raises(ZeroDivisionError, match="a bug in the transport"):
        await worker.run()
    assert started.is_set()
    record = await bus.find(event_id)
    assert record is not None
    assert (record.status, record.attempts) == ("PENDING", 0)


async def test_a_release_that_fails_does_not_keep_the_worker_from_stopping(bus: FaultyBus) -> None:
    await bus.publish("s", Envelope("A"))
    worker, started = worker_on(bus, "s", grace=0), asyncio.Event()

    @worker.on("A")
    async def handle(event: Envelope) -> None:
        started.set()
        await asyncio.Event().wait()

    bus.faults["release"] = 1000
    async with running(worker):
        await started.wait()
    assert bus.failed["release"] == 1
