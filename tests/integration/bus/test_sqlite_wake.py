"""Wake-ups: by this bus, by another process, by a caller's transaction; and not by ourselves."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import Envelope, EventBus, Worker, connect, publish_sync
from kingdom.bus.transports.sqlite import _writer

STREAM = "orders"
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")


class Woken:
    """Counts wake-ups."""

    def __init__(self, bus: EventBus, stream: str = STREAM) -> None:
        self.count = 0
        self._changed = asyncio.Event()
        self.undo = bus.subscribe(stream, self._wake)

    def _wake(self) -> None:
        self.count += 1
        self._changed.set()

    async def at_least(self, count: int) -> None:
        async with asyncio.timeout(20):
            while self.count < count:
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[EventBus]:
    async with connect(f"sqlite://{tmp_path}/bus.db") as bus:
        await bus.setup()
        yield bus


async def watching(bus: EventBus) -> None:
    """Wait until the bus watches the log of the database."""
    transport: Any = bus.transport
    async with asyncio.timeout(20):
        while not transport._watcher._watching:
            await asyncio.sleep(0.001)


def path_of(bus: EventBus) -> str:
    return bus.url.removeprefix("sqlite://")


PUBLISHER = """
import sys
from kingdom.bus import Envelope, publish_sync
publish_sync("orders", Envelope(type="Created"), url=sys.argv[1])
"""


async def test_another_process_wakes_who_waits(bus: EventBus) -> None:
    woken = Woken(bus)
    await watching(bus)
    before = woken.count
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PUBLISHER, bus.url)
    await woken.at_least(before + 1)
    assert await process.wait() == 0
    woken.undo()


async def test_the_commit_of_a_callers_transaction_wakes_who_waits(bus: EventBus) -> None:
    woken = Woken(bus)
    await watching(bus)
    before = woken.count
    with contextlib.closing(sqlite3.connect(path_of(bus))) as connection, connection:
        publish_sync(STREAM, Envelope(type="Created"), tx=connection)
    await woken.at_least(before + 1)
    assert len(await bus.claim(STREAM, worker="w", limit=10)) == 1
    woken.undo()


async def test_a_call_without_an_event_loop_wakes_who_waits(bus: EventBus) -> None:
    woken = Woken(bus)
    await watching(bus)
    before = woken.count
    await asyncio.to_thread(publish_sync, STREAM, Envelope(type="Created"), url=bus.url)
    await woken.at_least(before + 1)
    assert len(await bus.claim(STREAM, worker="w", limit=10)) == 1
    woken.undo()


async def test_our_own_commits_wake_once_and_those_of_others_once(
    bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine it may be more than a moment until we hear of our own commit, which then wakes for nothing.
    monkeypatch.setattr(_writer, "_BUSY_SECONDS", 60.0)
    woken = Woken(bus)
    await watching(bus)
    await looked_around(bus)
    before = woken.count
    await bus.publish(STREAM, Envelope(type="Created"))
    [delivery] = await bus.claim(STREAM, worker="w")
    await bus.settle(done=[delivery])
    await looked_around(bus)
    assert woken.count == before + 1
    async with connect(bus.url) as other:
        await other.publish(STREAM, Envelope(type="Created"))
    await woken.at_least(before + 2)
    await looked_around(bus)
    assert woken.count == before + 2
    woken.undo()


async def looked_around(bus: EventBus) -> None:
    """Wait until the bus has looked at every change of the log so far, and waits for the next."""
    transport: Any = bus.transport
    neighbours = transport._watcher
    quiet = 0
    async with asyncio.timeout(20):
        while quiet < 3:
            await asyncio.sleep(0.005)
            await bus.claim("nothing", worker="w")  # behind every look that was queued
            quiet = 0 if neighbours._changed.is_set() else quiet + 1


async def test_a_worker_that_has_nothing_to_do_does_not_keep_itself_awake(
    bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = 0
    claim = bus.claim

    async def counting(stream: str, **given: Any) -> Any:
        nonlocal claims
        claims += stream == STREAM
        return await claim(stream, **given)

    monkeypatch.setattr(bus, "claim", counting)
    worker = Worker(bus, STREAM, poll=3600, signals=False)
    worker.on("Created")(lambda event: None)
    running = asyncio.create_task(worker.run())
    await watching(bus)
    [event_id] = await bus.publish(STREAM, Envelope(type="Created"))
    async with asyncio.timeout(20):
        while (record := await bus.find(event_id)) is None or record.status != "DONE":
            await asyncio.sleep(0.001)
    await looked_around(bus)
    before = claims
    await looked_around(bus)
    assert claims == before
    worker.stop()
    await running


async def test_waiting_may_begin_before_the_store_is_set_up(tmp_path: Path) -> None:
    async with connect(f"sqlite://{tmp_path}/bus.db") as early:
        woken = Woken(early)
        async with connect(early.url) as bus:
            await bus.setup()
            await watching(early)
            before = woken.count
            await bus.publish(STREAM, Envelope(type="Created"))
            await woken.at_least(before + 1)
        woken.undo()


async def test_a_loop_in_another_thread_is_woken_in_its_own(bus: EventBus) -> None:
    ready, woken = asyncio.Event(), []
    here = asyncio.get_running_loop()

    async def elsewhere() -> None:
        event, there = asyncio.Event(), asyncio.get_running_loop()

        def wake() -> None:
            woken.append(asyncio.get_running_loop() is there)
            event.set()

        undo = bus.subscribe(STREAM, wake)
        here.call_soon_threadsafe(ready.set)
        async with asyncio.timeout(20):
            await event.wait()
        undo()

    keep = bus.subscribe("other", lambda: None)  # the watch belongs to this loop
    waiting = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
    await ready.wait()
    await bus.publish(STREAM, Envelope(type="Created"))
    await waiting
    assert woken == [True] * len(woken)
    assert woken
    keep()
