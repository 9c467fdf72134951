"""Moving a stream between buses, from PostgreSQL to Kafka and back among them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import Envelope, EventBus, InvalidOption, connect, move
from kingdom.cli import app
from tests.support import move_victim
from tests.support.forking import fate


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[EventBus]:
    async with connect(f"files://{tmp_path}/files") as bus:
        await bus.setup()
        yield bus


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[EventBus]:
    async with connect(f"sqlite:///{tmp_path}/bus.db") as bus:
        await bus.setup()
        yield bus


def events(count: int) -> list[Envelope]:
    return [
        Envelope(type="Placed", aggregate_type="Order", aggregate_id=str(number % 4), payload={"n": number})
        for number in range(count)
    ]


async def drained(bus: EventBus, stream: str) -> list[Envelope]:
    """Handle everything, and return it in that order."""
    found = []
    while held := await bus.claim(stream, worker="w", limit=100):
        found += [delivery.envelope for delivery in held]
        await bus.settle(done=held)
    return found


@pytest.mark.kafka
async def test_an_ordered_stream_moves_to_kafka_and_back(postgres_bus: EventBus, kafka_url: str) -> None:
    published = events(40)
    async with connect(kafka_url) as kafka:
        await kafka.setup()
        for bus in (postgres_bus, kafka):
            await bus.declare("orders", ordered=True)
        await postgres_bus.publish("orders", published)
        for _ in range(2):  # both still have the ids from before
            assert await move(postgres_bus, kafka, "orders") == (40, 0, 0)
            assert (await postgres_bus.depth())["orders"][:3] == (0, 0, 0)
            assert (await kafka.depth())["orders"].pending == 40
            assert await move(kafka, postgres_bus, "orders", batch=7) == (40, 0, 0)
            assert (await kafka.depth())["orders"][:3] == (0, 0, 0)
    got = await drained(postgres_bus, "orders")
    assert {event.event_id: event.to_dict() for event in got} == {
        event.event_id: event.to_dict() for event in published
    }
    for aggregate in "0123":
        own = [event.payload["n"] for event in got if event.aggregate_id == aggregate]
        assert own == sorted(own)


async def test_events_keep_their_fields_and_what_was_moved_before_is_left_out(
    files: EventBus, sqlite: EventBus
) -> None:
    event = Envelope(type="Placed", aggregate_id="7", priority="high", attributes={"market": "KRW"}, trace_id="t1")
    await files.publish("orders", event)
    await sqlite.publish("orders", event)  # a move that was killed before it finished it at the source
    counts: list[int] = []
    assert (await move(files, sqlite, "orders", progress=counts.append)).events == 1
    assert counts == [1]
    [got] = await drained(sqlite, "orders")
    assert (got.to_dict(), got.priority, got.aggregate_id) == (event.to_dict(), "high", "7")


async def test_what_was_handled_at_the_target_is_not_handled_again(files: EventBus, sqlite: EventBus) -> None:
    """A move was killed after it had published, and a worker of the target was quick."""
    [event] = events(1)
    await files.publish("orders", event)
    await sqlite.publish("orders", event)
    await drained(sqlite, "orders")
    assert (await move(files, sqlite, "orders")).events == 1
    assert await drained(sqlite, "orders") == []


async def test_what_cannot_be_claimed_is_waited_for_or_left(files: EventBus, sqlite: EventBus) -> None:
    now, later = Envelope(type="Placed"), Envelope(type="Due", not_before=datetime.now(UTC) + timedelta(hours=1))
    held_by_worker = Envelope(type="Placed")
    await files.publish("orders", held_by_worker)
    held = await files.claim("orders", worker="w", lease=300)
    await files.publish("orders", [now, later])
    assert await move(files, sqlite, "orders", wait=False) == (1, 2, 0)
    moving = asyncio.create_task(move(files, sqlite, "orders"))
    await files.release(held)
    async with asyncio.timeout(60):
        while (await sqlite.depth())["orders"].pending < 2:
            await asyncio.sleep(0.05)
    assert not moving.done()  # it waits for the third
    moving.cancel()
    await asyncio.gather(moving, return_exceptions=True)


async def test_dead_letters_stay_unless_they_are_wanted(files: EventBus, sqlite: EventBus) -> None:
    await files.publish("orders", events(3))
    await files.settle(dead=await files.claim("orders", worker="w", limit=2))
    assert await move(files, sqlite, "orders") == (1, 0, 2)
    assert await move(files, sqlite, "orders", dead=True) == (2, 0, 0)
    assert (await sqlite.depth())["orders"].pending == 3


@pytest.mark.timeout(300)
async def test_a_move_that_is_killed_at_any_step_loses_and_doubles_nothing(
    sqlite: EventBus, files: EventBus, stride: int
) -> None:
    step, published = 0, 0
    while True:
        await sqlite.publish("orders", events(12))
        published += 12
        code = await asyncio.to_thread(fate, move_victim.run, sqlite.url, files.url, "orders", step)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        step += stride
    assert step > 0
    await _end_leases(sqlite)
    assert (await move(sqlite, files, "orders")).waiting == 0
    assert len(await drained(files, "orders")) == published


async def _end_leases(bus: EventBus) -> None:
    """Return what dead processes hold."""
    import sqlite3

    connection = sqlite3.connect(bus.url.removeprefix("sqlite://"))
    with connection:
        connection.execute("UPDATE outbox_event SET locked_until = 0 WHERE status = 'PROCESSING'")
    connection.close()


async def test_what_cannot_be_moved_is_said(files: EventBus, sqlite: EventBus) -> None:
    with pytest.raises(InvalidOption, match="both URLs are the same"):
        await move(files, files, "orders")
    with pytest.raises(InvalidOption, match="batch=0"):
        await move(files, sqlite, "orders", batch=0)


async def test_the_command_moves_and_says_what_is_left(
    files: EventBus, sqlite: EventBus, capsys: pytest.CaptureFixture[str]
) -> None:
    await files.publish("orders", events(3))
    await files.settle(dead=await files.claim("orders", worker="w", limit=1))
    arguments: list[Any] = ["bus", "move", "orders", "--from", files.url, "--to", sqlite.url, "--yes"]
    assert await asyncio.to_thread(app.run, arguments) == 0
    told = capsys.readouterr().out
    assert told == "2 events of orders moved\nleft behind: 0 delayed, held or parked, 1 dead letter\n"
