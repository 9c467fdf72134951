"""What a worker refuses, with what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from kingdom.bus import Dispatcher, Envelope, EventBus, InvalidName, InvalidOption, Worker
from kingdom.bus.testing.behaviours.base import SeenEvents, running, worker_on
from tests.support.buses import memory_bus


@pytest.fixture
async def bus() -> AsyncIterator[EventBus]:
    async with memory_bus() as inner:
        yield inner


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, r"Worker\(concurrency=0\): must be 1 or more"),
        ({"concurrency": "8"}, r"Worker\(concurrency='8'\): must be a whole number, 1 or more"),
        ({"lease": None}, r"Worker\(lease\) = None: must be seconds, as a number or a timedelta"),
        ({"retry": 5}, r"Worker\(retry=5\): must be a RetryPolicy, as RetryPolicy\(max_attempts=5\)"),
        ({"classify": "dead"}, r"Worker\(classify='dead'\): must be a function of the exception"),
        ({"batch": 0}, r"Worker\(batch=0\): must be 1 or more"),
        ({"lease": 0}, r"Worker\(lease\) = 0: must be more than zero seconds"),
        ({"lease": timedelta(seconds=-1)}, r"Worker\(lease\) = .*: must be more than zero seconds"),
        ({"grace": -1}, r"Worker\(grace\) = -1: must be more than zero seconds"),
        ({"poll": 0}, r"Worker\(poll\) = 0: must be more than zero seconds"),
        ({"poll": float("inf")}, r"Worker\(poll\) = inf"),
    ],
)
def test_an_option_out_of_its_range_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Worker(EventBus(None, "memory:"), "s", **options)  # type: ignore[arg-type]


def test_a_url_in_place_of_the_bus_is_refused() -> None:
    with pytest.raises(InvalidOption, match="Worker takes an open bus, not its URL"):
        Worker("sqlite:shop.db", "s")  # type: ignore[arg-type]


def test_bad_names_are_refused() -> None:
    bus = EventBus(None, "memory:")  # type: ignore[arg-type]
    with pytest.raises(InvalidName, match="stream name 'a/b'"):
        Worker(bus, "a/b")
    with pytest.raises(InvalidName, match="worker name 'a b'"):
        Worker(bus, "s", name="a b")


async def test_a_worker_without_a_handler_is_refused_and_told_how(bus: EventBus) -> None:
    with pytest.raises(InvalidOption, match=r"no handler: register one with @worker\.on\('EventType'\)"):
        await Worker(bus, "s").run()


async def test_a_worker_runs_once_at_a_time(bus: EventBus) -> None:
    worker, seen = worker_on(bus, "s"), SeenEvents()
    worker.on("A")(seen.add)
    await bus.publish("s", Envelope("A"))
    async with running(worker):
        await seen.reach(1)
        with pytest.raises(InvalidOption, match="running already: create another one"):
            await worker.run()


async def test_a_worker_stopped_before_it_runs_returns_at_once_and_may_run_later(bus: EventBus) -> None:
    worker, seen = worker_on(bus, "s"), SeenEvents()
    worker.on("A")(seen.add)
    worker.stop()
    await worker.run()
    await bus.publish("s", Envelope("A"))
    async with running(worker):
        await seen.reach(1)
    assert len(seen.events) == 1


async def test_a_worker_may_be_stopped_from_another_thread(bus: EventBus) -> None:
    worker = worker_on(bus, "s", poll=600)
    worker.on("A")(print)
    run = asyncio.create_task(worker.run())
    await asyncio.sleep(0)
    await asyncio.to_thread(worker.stop)
    async with asyncio.timeout(30):
        await run


async def test_workers_may_share_a_dispatcher(bus: EventBus) -> None:
    dispatcher, seen = Dispatcher(), SeenEvents()
    dispatcher.on("A")(seen.add)
    for stream in ("first", "second"):
        await bus.publish(stream, Envelope("A"))
    async with running(*(worker_on(bus, stream, dispatcher=dispatcher) for stream in ("first", "second"))):
        await seen.reach(2)


async def test_a_lease_says_who_holds_it(bus: EventBus) -> None:
    worker, seen, finish = worker_on(bus, "s", name="order-executor"), SeenEvents(), asyncio.Event()

    @worker.on("A")
    async def handle(event: Envelope) -> None:
        seen.add(event)
        await finish.wait()

    [event_id] = await bus.publish("s", Envelope("A"))
    async with running(worker):
        await seen.reach(1)
        record = await bus.find(event_id)
        finish.set()
    assert record is not None
    assert (record.locked_by or "").startswith("order-executor@")
