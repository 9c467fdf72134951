"""Ordered streams: whoever writes, of each aggregate only the first unfinished event can be claimed."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest

from kingdom.bus import Envelope, EventBus, connect, publish_sync

STREAM = "orders"
DeadHead = Literal["go-on", "park"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.db"


@pytest.fixture
async def bus(path: Path) -> AsyncIterator[EventBus]:
    async with connect(f"sqlite://{path}") as bus:
        await bus.setup()
        yield bus


def event(aggregate: str) -> Envelope:
    return Envelope(type="Created", aggregate_type="Order", aggregate_id=aggregate)


def execute(path: Path, sql: str, *given: Any) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
        return connection.execute(sql, given).fetchall()


def expected_free(path: Path, dead_head: DeadHead) -> set[int]:
    """The first unfinished event of each aggregate, found the slow way."""
    heads: dict[str, tuple[int, str]] = {}
    rows = execute(path, "SELECT id, aggregate_id, status FROM outbox_event ORDER BY id")
    for number, aggregate, status in rows:
        if status in ("PENDING", "PROCESSING") or (status == "DEAD" and dead_head == "park"):
            heads.setdefault(aggregate, (number, status))
    return {number for number, status in heads.values() if status != "DEAD"}


def free(path: Path) -> set[int]:
    sql = "SELECT id FROM outbox_event WHERE blocked = 0 AND status IN ('PENDING', 'PROCESSING')"
    return {row[0] for row in execute(path, sql)}


@pytest.mark.parametrize("dead_head", ["go-on", "park"])
@pytest.mark.parametrize("seed", range(4))
async def test_what_is_free_is_right_after_anything_that_can_happen(
    bus: EventBus, path: Path, dead_head: DeadHead, seed: int
) -> None:
    rng = random.Random(seed)
    await bus.declare(STREAM, ordered=True, dead_head=dead_head)
    for _ in range(120):
        match rng.randrange(8):
            case 0 | 1:
                await bus.publish(STREAM, [event(rng.choice("abc")) for _ in range(rng.randrange(1, 5))])
            case 2 | 3 | 4:
                claimed = await bus.claim(STREAM, worker="w", limit=rng.randrange(1, 4))
                fates: dict[str, list[Any]] = {"done": [], "retry": [], "dead": [], "released": []}
                for delivery in claimed:
                    fates[rng.choice(list(fates))].append(delivery)
                await bus.release(fates.pop("released"))
                await bus.settle(**fates)
            case 5:
                ids = [row[0] for row in execute(path, "SELECT event_id FROM outbox_event")]
                await bus.requeue(STREAM, rng.sample(ids, min(3, len(ids))))
            case 6:
                await bus.purge(0, dead=rng.random() < 0.3)
            case 7:  # a person with a shell
                new = rng.choice(("PENDING", "DONE", "DEAD"))
                execute(
                    path,
                    "UPDATE outbox_event SET status = ?, processed_at = 0, locked_by = NULL, locked_until = NULL "
                    "WHERE id IN (SELECT id FROM outbox_event WHERE status <> 'PROCESSING' ORDER BY random() LIMIT 2)",
                    new,
                )
        assert free(path) == expected_free(path, dead_head)


async def test_declaring_computes_what_the_triggers_would_have(bus: EventBus, path: Path) -> None:
    await bus.publish(STREAM, [event(name) for name in "abcabcab"])
    claimed = await bus.claim(STREAM, worker="w", limit=3)
    await bus.settle(dead=claimed[:2])
    declarations: list[DeadHead] = ["go-on", "park", "go-on"]
    for dead_head in declarations:
        await bus.declare(STREAM, ordered=True, dead_head=dead_head)
        assert free(path) == expected_free(path, dead_head)
    await bus.declare(STREAM, ordered=False)
    unfinished = execute(path, "SELECT id FROM outbox_event WHERE status IN ('PENDING', 'PROCESSING')")
    assert free(path) == {row[0] for row in unfinished}


async def test_events_of_one_transaction_of_a_caller_keep_their_order(bus: EventBus, path: Path) -> None:
    await bus.declare(STREAM, ordered=True)
    sent = [event("a"), event("a"), event("b"), event("a")]
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        publish_sync(STREAM, sent[:3], tx=connection)
        publish_sync(STREAM, sent[3], tx=connection)
    handled = []
    while claimed := await bus.claim(STREAM, worker="w", limit=10):
        handled.append([delivery.event_id for delivery in claimed])
        await bus.settle(done=claimed)
    first, second, other, third = (item.event_id for item in sent)
    assert handled == [[first, other], [second], [third]]


async def test_the_end_of_an_event_wakes_who_waits_for_the_next_of_its_aggregate(bus: EventBus) -> None:
    import asyncio

    await bus.declare(STREAM, ordered=True)
    await bus.publish(STREAM, event("a"), event("a"))
    claimed = await bus.claim(STREAM, worker="w", limit=10)
    woken = asyncio.Event()
    undo = bus.subscribe(STREAM, woken.set)
    await bus.settle(done=claimed)
    async with asyncio.timeout(10):
        await woken.wait()
    undo()
