"""What operators do: purging and requeueing in batches, and what is shown."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import Envelope, EventBus, Inbox, connect
from kingdom.bus.testing import ManualClock
from kingdom.bus.transports.sqlite import _operations

STREAM = "orders"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.db"


@pytest.fixture
async def bus(path: Path, clock: ManualClock) -> AsyncIterator[EventBus]:
    async with connect(f"sqlite://{path}", clock=clock) as bus:
        await bus.setup()
        yield bus


def event(**given: Any) -> Envelope:
    return Envelope(type="Created", **given)


async def finished(bus: EventBus, number: int, stream: str = STREAM, *, dead: bool = False) -> list[Envelope]:
    sent = [event() for _ in range(number)]
    await bus.publish(stream, sent)
    claimed = await bus.claim(stream, worker="w", limit=number)
    await bus.settle(dead=claimed) if dead else await bus.settle(done=claimed)
    return sent


async def transactions(bus: EventBus) -> list[str]:
    """The list that every commit of the bus is noted in from now on."""
    transport: Any = bus.transport
    seen: list[str] = []

    def note(sql: str) -> None:
        if sql == "COMMIT":
            seen.append(sql)

    await transport._writer.run(lambda connection: connection.set_trace_callback(note))
    return seen


async def test_purging_goes_in_batches(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_operations, "BATCH", 10)
    await finished(bus, 35)
    await finished(bus, 25, dead=True)
    seen = await transactions(bus)
    seen.clear()
    assert await bus.purge(0, stream=STREAM, dead=True) == 60
    assert len(seen) >= 4 + 3
    assert (await bus.depth()).get(STREAM) is None


async def test_purging_every_stream_purges_those_nobody_declared(bus: EventBus) -> None:
    for stream in ("a", "b", "c"):
        await finished(bus, 2, stream)
    await bus.declare("d", ordered=True)
    await bus.publish("b", event())
    assert await bus.purge(0) == 6
    assert {stream: depth[:3] for stream, depth in (await bus.depth()).items()} == {"b": (1, 0, 0), "d": (0, 0, 0)}


async def test_requeueing_goes_in_batches(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_operations, "BATCH", 10)
    await finished(bus, 35, dead=True)
    seen = await transactions(bus)
    seen.clear()
    assert await bus.requeue(STREAM, event_type="Created") == 35
    assert len(seen) == 1 + 4
    assert (await bus.depth())[STREAM][:3] == (35, 0, 0)


async def test_marks_of_the_inbox_go_with_their_events_and_not_before(
    bus: EventBus, path: Path, clock: ManualClock
) -> None:
    inbox = Inbox("push")
    done, dead, waiting = await finished(bus, 1), await finished(bus, 1, dead=True), [event()]
    await bus.publish(STREAM, waiting)
    foreign = [event()]  # of a bus elsewhere, whose consumer keeps its inbox here
    with contextlib.closing(sqlite3.connect(path)) as connection:
        with connection:
            for one in (*done, *dead, *waiting, *foreign):
                assert await inbox.first(one, tx=connection)
        clock.advance(1000)
        recent = event()
        with connection:
            await inbox.first(recent, tx=connection)
            connection.execute("UPDATE inbox_event SET received_at = ? WHERE event_id = ?", (clock(), recent.event_id))
        await bus.purge(500, stream="another")
        assert len(connection.execute("SELECT * FROM inbox_event").fetchall()) == 5
        await bus.purge(500)
        kept = {row[0] for row in connection.execute("SELECT event_id FROM inbox_event")}
    assert kept == {dead[0].event_id, waiting[0].event_id, recent.event_id}


async def test_purging_the_inbox_goes_in_batches(
    bus: EventBus, path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_operations, "BATCH", 10)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        rows = [("push", f"event-{number}", clock() - 100) for number in range(45)]
        connection.executemany("INSERT INTO inbox_event VALUES (?, ?, ?)", rows)
    assert await bus.purge(50) == 0
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM inbox_event").fetchone() == (0,)


async def test_a_reason_may_be_any_text(bus: EventBus) -> None:
    await bus.publish(STREAM, event(), event())
    first, second = await bus.claim(STREAM, worker="w", limit=2)
    await bus.settle(dead=[(first, "BAD", "half a character: \ud83d")], retry=[(second, 0, "ODD", "a\0b")])
    [letter] = await bus.dead(STREAM)
    assert letter.error_message == "half a character: ?"
    record = await bus.find(second.event_id)
    assert record is not None
    assert record.error_message == "ab"
