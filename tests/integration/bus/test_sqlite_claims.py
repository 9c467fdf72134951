"""Claims: shared by processes, indifferent to history, and undisturbed by rows that somebody damaged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import Envelope, EventBus, connect
from kingdom.bus.outbox import statement
from kingdom.bus.transports.sqlite import _claim

STREAM = "orders"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.db"


@pytest.fixture
async def bus(path: Path) -> AsyncIterator[EventBus]:
    async with connect(f"sqlite://{path}") as bus:
        await bus.setup()
        yield bus


def event(event_type: str = "Created", **given: Any) -> Envelope:
    return Envelope(type=event_type, **given)


def execute(path: Path, sql: str, *given: Any) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql, given).fetchall()


# ── several processes ────────────────────────────────────────────────────────────────────────────────────────────

CONSUMER = """
import asyncio, sys
from kingdom.bus import connect
async def main(url, stream):
    async with connect(url) as bus:
        while claimed := await bus.claim(stream, worker="w", limit=7):
            print(*(delivery.event_id for delivery in claimed), sep="\\n")
            await bus.settle(done=claimed[::2], retry=claimed[1::2])
asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_that_claim_the_same_stream_never_share_an_attempt(bus: EventBus) -> None:
    sent = [event() for _ in range(400)]
    await bus.publish(STREAM, sent)
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", CONSUMER, bus.url, STREAM, stdout=asyncio.subprocess.PIPE
        )
        for _ in range(3)
    ]
    said = [(await process.communicate())[0].decode().split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    claims = [event_id for ids in said for event_id in ids]
    attempts = {event.event_id: await bus.find(event.event_id) for event in sent}
    # Every claim that was handed out is counted once by the store: none was handed out twice.
    assert len(claims) == sum(record.attempts for record in attempts.values() if record)
    assert {record.status for record in attempts.values() if record} == {"DONE"}
    assert set(claims) == set(attempts)


# ── nothing to do ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_claim_that_finds_nothing_writes_nothing(bus: EventBus, path: Path) -> None:
    await bus.publish(STREAM, event(), event("Delayed", not_before=datetime.now(UTC) + timedelta(days=1)))
    await bus.claim(STREAM, worker="w", types=["Created"])
    log = Path(f"{path}-wal")
    before = log.read_bytes(), log.stat().st_mtime_ns
    for types in (None, ["Created"], ["Nobody"], [f"Type{number}" for number in range(40)]):
        assert await bus.claim(STREAM, worker="w", limit=10, types=types) == []
        assert await bus.claim("empty", worker="w", limit=10, types=types) == []
    assert (log.read_bytes(), log.stat().st_mtime_ns) == before


async def test_declaring_what_is_declared_already_writes_nothing(bus: EventBus, path: Path) -> None:
    await bus.declare(STREAM, ordered=True, dead_head="park")
    await bus.publish(STREAM, event())
    log = Path(f"{path}-wal")
    before = log.read_bytes()
    await bus.declare(STREAM, ordered=True, dead_head="park")
    assert log.read_bytes() == before


# ── many types ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("asked", [None, 250])
async def test_more_types_than_one_statement_takes_are_merged_in_order(bus: EventBus, asked: int | None) -> None:
    sent = [event(f"Type{number % 250}", priority=("high", "normal", "low")[number % 3]) for number in range(500)]
    for one in sent:
        await bus.publish(STREAM, one)
    types = None if asked is None else [f"Type{number}" for number in range(asked)]
    expected = [one.event_id for rank in ("high", "normal", "low") for one in sent if one.priority == rank]
    claimed: list[str] = []
    while batch := await bus.claim(STREAM, worker="w", limit=120, types=types):
        assert len(batch) == min(120, 500 - len(claimed))
        claimed += [delivery.event_id for delivery in batch]
    assert claimed == expected


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def steps(bus: EventBus, work: Callable[[], Awaitable[object]]) -> int:
    """How many instructions SQLite's machine runs for some work: its cost, without a clock."""
    transport: Any = bus.transport
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    await transport._writer.run(lambda connection: connection.set_progress_handler(tick, 10))
    await work()
    await transport._writer.run(lambda connection: connection.set_progress_handler(None, 0))
    return count * 10


async def cost_of_a_claim(path: Path, bulk: list[Envelope], *, ordered: bool = False, finish: bool = False) -> int:
    """The cost of claiming and settling 20 events in a stream that holds ``bulk`` as well."""
    async with connect(f"sqlite://{path}") as bus:
        await bus.setup()
        await bus.declare(STREAM, ordered=ordered)
        await bus.publish(STREAM, bulk)
        if finish:
            await bus.settle(done=await bus.claim(STREAM, worker="w", limit=len(bulk)))
        await bus.publish(STREAM, [event(aggregate_id=f"own-{number}") for number in range(40)])

        async def work() -> None:
            claimed = await bus.claim(STREAM, worker="w", limit=20, types=["Created"])
            assert len(claimed) == 20
            assert await bus.settle(done=claimed) == []

        return await steps(bus, work)


MANY = 4000
LATER = datetime.now(UTC) + timedelta(days=1)
BULKS: dict[str, Callable[[int], dict[str, Any]]] = {
    "done": lambda n: {"bulk": [event() for _ in range(n)], "finish": True},
    "delayed": lambda n: {"bulk": [event(not_before=LATER) for _ in range(n)]},
    "delayed of a higher priority": lambda n: {"bulk": [event(not_before=LATER, priority="high") for _ in range(n)]},
    "of types nobody asks for": lambda n: {"bulk": [event("Other") for _ in range(n)]},
    "of one aggregate": lambda n: {"bulk": [event(aggregate_id="one") for _ in range(n)], "ordered": True},
    "of as many aggregates": lambda n: {"bulk": [event(aggregate_id=str(i)) for i in range(n)], "ordered": True},
}


@pytest.mark.parametrize("kind", BULKS)
async def test_the_cost_of_a_claim_does_not_grow_with_events_that(kind: str, tmp_path: Path) -> None:
    few = await cost_of_a_claim(tmp_path / "few.db", **BULKS[kind](20))
    many = await cost_of_a_claim(tmp_path / "many.db", **BULKS[kind](MANY))
    assert many < 1.2 * few


async def test_the_cost_of_a_claim_does_not_grow_with_what_others_hold(tmp_path: Path) -> None:
    costs = []
    for number in (20, MANY):
        async with connect(f"sqlite://{tmp_path}/{number}.db") as bus:
            await bus.setup()
            await bus.publish(STREAM, [event() for _ in range(number)])
            assert len(await bus.claim(STREAM, worker="w", limit=number)) == number
            await bus.publish(STREAM, [event() for _ in range(20)])
            costs.append(await steps(bus, lambda bus=bus: bus.claim(STREAM, worker="w", limit=20)))  # type: ignore[misc]
    assert costs[1] < 1.2 * costs[0]


# ── plans ────────────────────────────────────────────────────────────────────────────────────────────────────────

PARTS = {"claim_select", "claim_pending", "claim_expired", "claim_bury"}  # looked at as one
ONE_ROW = {"publish_tx", "declare", "declared"}
NAMES = {file.stem for file in Path(_claim.__file__).parent.joinpath("sql").glob("*.sql")} - PARTS - ONE_ROW
STATEMENTS = {name: statement("sqlite", name) for name in sorted(NAMES)} | {
    "claim": _claim._statement(2),
    "bury": _claim._bury(),
}
TABLES = ("outbox_event", "inbox_event", "e", "h", "i")  # as the statements call them


@pytest.mark.parametrize("analysed", [False, True], ids=["fresh", "analysed"])
async def test_every_statement_searches_and_none_scans_the_table(bus: EventBus, path: Path, analysed: bool) -> None:
    assert len(STATEMENTS) > 20
    await bus.publish(STREAM, [event() for _ in range(1000)])
    await bus.settle(done=await bus.claim(STREAM, worker="w", limit=900))
    if analysed:
        execute(path, "ANALYZE")
    scans = {}
    for name, sql in STATEMENTS.items():
        given: Any = [None] * sql.count("?") if "?" in sql else dict.fromkeys(_names(sql))
        with contextlib.closing(sqlite3.connect(path)) as connection:
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
        scans[name] = [line for line in plan if line.startswith("SCAN") and line.split()[1] in TABLES]
    assert {name: found for name, found in scans.items() if found} == {}


def _names(sql: str) -> list[str]:
    return re.findall(r":([a-z_0-9]+)", sql)


async def test_the_parts_of_a_claim_are_merged_without_sorting(bus: EventBus, path: Path) -> None:
    sql = _claim._statement(3)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", dict.fromkeys(_names(sql)))]
    assert sum("MERGE" in line for line in plan) == 11  # between 3 types × 3 priorities, and 3 priorities of expired
    assert sum("USING INDEX outbox_event_ready (stream=? AND blocked=? AND event_type=?" in line for line in plan) == 9
    held = "USING INDEX outbox_event_held (stream=? AND priority=? AND locked_until<?"
    assert sum(held in line for line in plan) == 3 + 1  # the last one looks for what is spent
    assert sum("TEMP B-TREE" in line for line in plan) == 3  # for the expired, who keep their places


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────────────

DAMAGE = {
    "not JSON": "{half",
    "not an object": "[1, 2]",
    "without an id": json.dumps({"type": "Created", "occurredAt": "2026-01-01T00:00:00Z"}),
    "empty": "",
    "with our separator": '{"a": "\x1e"}',
    "not text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_an_envelope_that_somebody_damaged_goes_dead_and_holds_up_nothing(
    bus: EventBus, path: Path, damage: str
) -> None:
    sent = [event() for _ in range(3)]
    await bus.publish(STREAM, sent)
    execute(path, "UPDATE outbox_event SET payload_json = ? WHERE event_id = ?", DAMAGE[damage], sent[1].event_id)
    claimed = await bus.claim(STREAM, worker="w", limit=3)
    assert [delivery.envelope for delivery in claimed] == [sent[0], sent[2]]
    [letter] = await bus.dead(STREAM)
    assert (letter.event_id, letter.error_code, letter.envelope.type) == (
        sent[1].event_id,
        "INVALID_ENVELOPE",
        "Created",
    )
    assert (await bus.depth())[STREAM][:3] == (0, 2, 1)


async def test_a_claim_larger_than_one_value_of_sqlite_takes_fewer(bus: EventBus) -> None:
    transport: Any = bus.transport
    await bus.publish(STREAM, [event(payload={"text": "x" * 10_000}) for _ in range(16)])
    await transport._writer.run(lambda connection: connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000))
    claimed = []
    while batch := await bus.claim(STREAM, worker="w", limit=16):
        assert len(batch) == 4
        claimed += batch
    assert len({delivery.event_id for delivery in claimed}) == 16
