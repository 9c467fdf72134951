"""The bare loops on asyncpg: the seed's table, prepared statements, one connection, no library in between.

``payload_json`` holds the 300 bytes of the payload only, the rest is in columns: less to write and to read than the
whole envelope, which is what Kingdom stores. The reference is meant to be hard to reach.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg

from bench import pg
from bench.harness import Figures
from bench.latency import Latencies
from bench.payload import STREAM, TYPE, chunks, encode, payload, payloads
from bench.watch import Clock, Watch

TABLE = """
CREATE TABLE bare_event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    next_retry_at timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    locked_until timestamptz,
    last_attempt_at timestamptz,
    processed_at timestamptz,
    attempt_count integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 10,
    event_id uuid NOT NULL UNIQUE,
    status text NOT NULL DEFAULT 'PENDING',
    stream text NOT NULL,
    event_type text NOT NULL,
    aggregate_type text,
    aggregate_id text,
    locked_by text,
    last_error_code text,
    last_error_message text,
    payload_json jsonb NOT NULL
);
CREATE INDEX bare_event_pending ON bare_event (stream, next_retry_at, id) WHERE status = 'PENDING';
"""
INSERT_ONE = "INSERT INTO bare_event (event_id, stream, event_type, payload_json) VALUES ($1, $2, $3, $4)"
INSERT_MANY = """
INSERT INTO bare_event (event_id, stream, event_type, payload_json)
SELECT e, $2, $3, p FROM unnest($1::uuid[], $4::jsonb[]) AS r (e, p)
"""
CLAIM = """
WITH candidate AS MATERIALIZED (
    SELECT id FROM bare_event
    WHERE stream = $1 AND status = 'PENDING' AND next_retry_at <= now()
    ORDER BY next_retry_at, id LIMIT {limit} FOR UPDATE SKIP LOCKED
)
UPDATE bare_event e
SET status = 'PROCESSING', locked_by = $2, locked_until = now() + interval '30 seconds',
    attempt_count = attempt_count + 1, last_attempt_at = now(), updated_at = now()
FROM candidate c WHERE e.id = c.id
RETURNING e.id, e.event_id, e.event_type, e.attempt_count, e.payload_json
"""
SETTLE = """
UPDATE bare_event SET status = 'DONE', processed_at = now(), updated_at = now(), locked_until = NULL
WHERE id = ANY($1::bigint[]) AND locked_by = $2
"""


async def fill(connection: asyncpg.Connection, documents: list[dict[str, Any]], size: int = 1000) -> None:
    """Insert an event for each payload, ``size`` at a time."""
    insert = await connection.prepare(INSERT_MANY)
    for some in chunks(documents, size):
        await insert.fetch([uuid4() for _ in some], STREAM, TYPE, [encode(document) for document in some])


async def drain(server: str, count: int, *, hold: bool = False, watch: Watch | None = None) -> Figures:
    """Claim 100, call a no-op for each, settle 100, until nothing is left."""
    watch = watch or Clock()
    async with pg.fresh_schema(server) as schema:
        connection = await pg.connect(server, schema)
        await connection.execute(TABLE)
        await fill(connection, payloads(count))
        await pg.analyze(server, schema)
        async with pg.held_snapshot(server, hold=hold):
            claim = await connection.prepare(CLAIM.format(limit=100))
            settle = await connection.prepare(SETTLE)
            handled = 0
            async with watch:
                while rows := await claim.fetch(STREAM, "bare"):
                    for row in rows:
                        await _handle(row["payload_json"])
                    await settle.fetch([row["id"] for row in rows], "bare")
                    handled += len(rows)
        left = await connection.fetchval("SELECT count(*) FROM bare_event WHERE status <> 'DONE'")
        await connection.close()
    assert handled == count, f"handled {handled} of {count}"
    assert left == 0, f"{left} events are not DONE"
    return watch.figures(count)


async def latency(server: str, count: int) -> Figures:
    """INSERT + NOTIFY in one transaction, LISTEN on another connection, then claim one: how long until it is held."""
    async with pg.fresh_schema(server) as schema:
        publisher, listener, worker = [await pg.connect(server, schema) for _ in range(3)]
        await publisher.execute(TABLE)
        insert = await publisher.prepare(INSERT_ONE)
        notify = await publisher.prepare("SELECT pg_notify('bare_event', '')")
        claim = await worker.prepare(CLAIM.format(limit=10))
        settle = await worker.prepare(SETTLE)
        told = asyncio.Event()
        await listener.add_listener("bare_event", lambda *_: told.set())  # nothing is ever prepared on this connection
        latencies = Latencies(count)

        async def consume() -> None:
            while True:
                await told.wait()
                told.clear()
                while rows := await claim.fetch(STREAM, "bare"):
                    for row in rows:
                        latencies.arrived(str(row["event_id"]))
                    await settle.fetch([row["id"] for row in rows], "bare")

        async def publish(number: int) -> None:
            event_id = uuid4()
            latencies.sent(str(event_id))
            async with publisher.transaction():
                await insert.fetch(event_id, STREAM, TYPE, encode(payload(number)))
                await notify.fetch()

        figures = await latencies.measure(publish, consume())
        for connection in (publisher, listener, worker):
            await connection.close()
    return figures


async def _handle(document: str) -> None:
    """The no-op handler."""
