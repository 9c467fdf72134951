"""PGQueuer: asyncpg driver, durable tables, its autovacuum settings applied.

It deletes a job and writes a log row when it is done, both in WAL-logged tables.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any, Final

import asyncpg
from pgqueuer import AsyncpgDriver, Job, QueueManager
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.queries import Queries

from bench import idle, pg
from bench.harness import Figures
from bench.latency import Latencies
from bench.payload import chunks, encode, payload, payloads
from bench.watch import Clock, Watch

ENTRYPOINT: Final = "accepted"


async def install(connection: asyncpg.Connection) -> Queries:
    """Make its tables (durable is its default) and apply ``pgq autovac``."""
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await queries.optimize_autovacuum()
    return queries


async def fill(queries: Queries, documents: list[dict[str, Any]], size: int = 1000) -> None:
    """Enqueue a job for each payload, ``size`` at a time."""
    for some in chunks(documents, size):
        encoded: list[bytes | None] = [encode(document).encode() for document in some]
        await queries.enqueue([ENTRYPOINT] * len(encoded), encoded, [0] * len(encoded))


async def drain(server: str, count: int, *, batch: int, watch: Watch | None = None) -> Figures:
    """One manager, no-op jobs, until the last is done and logged."""
    watch = watch or Clock()
    async with pg.fresh_schema(server) as schema:
        connection = await pg.connect(server, schema)
        queries = await install(connection)
        await fill(queries, payloads(count))
        await pg.analyze(server, schema)
        manager = QueueManager(queries)
        handled = 0

        @manager.entrypoint(ENTRYPOINT)
        async def accepted(job: Job) -> None:
            nonlocal handled
            handled += 1
            if handled == count:
                manager.shutdown.set()  # run() then writes what it still holds, and returns

        async with watch:
            await manager.run(batch_size=batch)
        left = await connection.fetchval("SELECT count(*) FROM pgqueuer")
        await connection.close()
    assert handled == count, f"handled {handled} of {count}"
    assert left == 0, f"{left} jobs are not done"
    return watch.figures(count)


async def publish_batches(server: str, count: int, size: int) -> Figures:
    """Its own batch enqueue."""
    async with pg.fresh_schema(server) as schema:
        connection = await pg.connect(server, schema)
        queries = await install(connection)
        await fill(queries, payloads(size), size)
        documents = payloads(count)
        started = perf_counter()
        await fill(queries, documents, size)
        seconds = perf_counter() - started
        await connection.close()
    return {"rate": count / seconds}


async def publish_singles(server: str, count: int) -> Figures:
    """One job for each call."""
    async with pg.fresh_schema(server) as schema:
        connection = await pg.connect(server, schema)
        queries = await install(connection)
        await queries.enqueue(ENTRYPOINT, encode(payload(0)).encode())
        documents = payloads(count)
        started = perf_counter()
        for document in documents:
            await queries.enqueue(ENTRYPOINT, encode(document).encode())
        seconds = perf_counter() - started
        await connection.close()
    return {"rate": count / seconds}


async def latency(server: str, count: int) -> Figures:
    """Enqueue on one connection, a manager on a pool."""
    async with pg.fresh_schema(server) as schema:
        connection = await pg.connect(server, schema)
        queries = await install(connection)
        async with asyncpg.create_pool(server, server_settings={"search_path": schema}, min_size=2) as pool:
            manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))
            latencies = Latencies(count)

            @manager.entrypoint(ENTRYPOINT)
            async def accepted(job: Job) -> None:
                latencies.arrived((job.payload or b"").decode())

            async def publish(number: int) -> None:
                document = encode(payload(number))
                latencies.sent(document)
                await queries.enqueue(ENTRYPOINT, document.encode())

            figures = await latencies.measure(publish, _run(manager))
        await connection.close()
    return figures


async def idle_cpu(server: str, seconds: float) -> Figures:
    """A manager with nothing to do."""
    async with pg.fresh_schema(server) as schema:
        connection = await pg.connect(server, schema)
        manager = QueueManager(await install(connection))

        @manager.entrypoint(ENTRYPOINT)
        async def accepted(job: Job) -> None:
            raise AssertionError("there is nothing to do")

        figures = await idle.cpu(_run(manager), seconds)
        await connection.close()
    return figures


async def _run(manager: QueueManager) -> None:
    running = asyncio.create_task(manager.run())
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        manager.shutdown.set()
        await running
        raise
