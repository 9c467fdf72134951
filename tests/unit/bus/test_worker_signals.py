"""SIGTERM and SIGINT, in this very process: each test puts the handlers back that it found."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from kingdom.bus import Envelope, EventBus
from kingdom.bus.testing.behaviours.base import PATIENCE, SeenEvents, worker_on
from kingdom.bus.worker import on_stop_signal
from tests.support.buses import memory_bus

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture(autouse=True)
def nobodys_handlers() -> Iterator[None]:
    """The handlers of a plain program."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
async def bus() -> AsyncIterator[EventBus]:
    async with memory_bus() as inner:
        yield inner


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_signal_drains_every_worker_of_the_loop(bus: EventBus, number: signal.Signals) -> None:
    seen, finish, workers = SeenEvents(), asyncio.Event(), []
    for stream in ("first", "second"):
        worker = worker_on(bus, stream, signals=True, poll=600)
        workers.append(worker)

        @worker.on("A")
        async def handle(event: Envelope) -> None:
            seen.add(event)
            await finish.wait()

        await bus.publish(stream, Envelope("A"))
    runs = [asyncio.create_task(worker.run()) for worker in workers]
    await seen.reach(2)
    os.kill(os.getpid(), number)
    await asyncio.sleep(0)
    finish.set()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*runs)
    assert [worker.stats.processed["done"] for worker in workers] == [1, 1]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


async def test_the_first_signal_drains_and_the_second_does_what_it_always_does() -> None:
    told = asyncio.Event()
    undo = on_stop_signal(told.set)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(PATIENCE):
        await told.wait()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    undo()


async def test_an_application_with_handlers_of_its_own_decides_itself() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    told = asyncio.Event()
    undo = on_stop_signal(told.set)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0)
    undo()
    assert seen == [signal.SIGTERM]
    assert not told.is_set()


async def test_the_last_to_leave_puts_the_handlers_back() -> None:
    first, second = on_stop_signal(lambda: None), on_stop_signal(lambda: None)
    first()
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    second()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    found: list[object] = []

    async def look() -> None:
        undo = on_stop_signal(lambda: None)
        found.append(signal.getsignal(signal.SIGTERM))
        undo()

    thread = threading.Thread(target=lambda: asyncio.run(look()))
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


async def test_a_worker_may_leave_signals_to_the_application(bus: EventBus) -> None:
    worker, seen = worker_on(bus, "s", signals=False), SeenEvents()
    worker.on("A")(seen.add)
    await bus.publish("s", Envelope("A"))
    run = asyncio.create_task(worker.run())
    await seen.reach(1)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    worker.stop()
    await run
