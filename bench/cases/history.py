"""Cost grows with work, not with history: draining a table that keeps many DONE events."""

from __future__ import annotations

import asyncio
from functools import partial

from bench import ours, pg
from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Figures, Table
from bench.payload import STREAM, TYPE, encode, payload, payloads
from kingdom.bus import connect

TITLE = "drain on PostgreSQL with history kept"
_CHUNK = 250_000  # rows for each INSERT
_INSERT = f"""
INSERT INTO outbox_event (event_id, stream, event_type, status, finished, attempt_count, last_attempt_at,
                          processed_at, locked_by, payload_json)
SELECT 'history-' || n, '{STREAM}', '{TYPE}', 'DONE', true, 1, now(), now(), 'bench',
       jsonb_build_object('schemaVersion', 1, 'eventId', 'history-' || n, 'type', '{TYPE}', 'occurredAt',
                          '2026-02-17T00:00:00.000Z', 'traceId', 'history-' || n, 'payload', $3::jsonb)
FROM generate_series($1::bigint, $2::bigint) AS n
"""


def drain(context: Context) -> list[Table]:
    server = context.postgres
    kept, count = context.pick((50_000, 6_000), (500_000, 30_000), (10_000_000, 30_000))
    schema = asyncio.run(_with_history(server, kept))
    try:
        outcomes = context.race(
            Contestant("no history", partial(ours.postgres_drain, server, count, batch=100), "a fresh table"),
            Contestant(f"{kept:,} DONE kept", partial(_drain_again, server, schema, count), "the same table each time"),
        )
    finally:
        asyncio.run(pg.execute(server, f"DROP SCHEMA {schema} CASCADE"))
    return [
        Table(
            f"Drain of {count:,} events",
            "events/s",
            outcomes,
            bars={f"{kept:,} DONE kept": [Bar(">=", 0.8, of="no history")]},
            remarks=("The bar is set for 10 million rows: --full measures that",) if context.mode != "full" else (),
        )
    ]


async def _with_history(server: str, kept: int) -> str:
    schema = await pg.create_schema(server)
    async with connect(ours.postgres_url(server, schema)) as bus:
        await bus.setup()
    connection = await pg.connect(server, schema)
    try:
        for first in range(0, kept, _CHUNK):
            last = min(first + _CHUNK, kept) - 1
            await connection.execute(_INSERT, first, last, encode(payload(0)), timeout=600)
        await connection.execute("VACUUM ANALYZE outbox_event", timeout=1800)  # as autovacuum leaves it
    finally:
        await connection.close()
    return schema


async def _drain_again(server: str, schema: str, count: int) -> Figures:
    await pg.execute(server, "CHECKPOINT")
    async with connect(ours.postgres_url(server, schema)) as bus:
        await ours.fill(bus, payloads(count))
        await pg.analyze(server, schema)
        return await ours.work_off(bus, count, batch=100)


PARTS = (drain,)
