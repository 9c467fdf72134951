"""FastStream with its outbox, a table of PostgreSQL that is the queue: SQLAlchemy on asyncpg, LISTEN.

A job that is done is deleted, 100 at a time by each worker. A crash between a handler's end and that delivers it again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any

from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData, func, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from bench import idle, pg
from bench.harness import Figures
from bench.latency import Latencies
from bench.payload import chunks, payload, payloads
from bench.watch import Clock, Watch

_QUEUE = "bench"


class _Outbox:
    """A broker on an empty table."""

    def __init__(self, engine: AsyncEngine, schema: str) -> None:
        metadata = MetaData(schema=schema)
        self._table = make_outbox_table(metadata, table_name="outbox")
        self._metadata = metadata
        self.engine = engine
        self.broker = OutboxBroker(engine, outbox_table=self._table, logger=None)

    async def make_table(self) -> None:
        async with self.engine.begin() as connection:
            await connection.run_sync(self._metadata.create_all)

    async def left(self) -> int:
        async with self.engine.connect() as connection:
            return int((await connection.execute(select(func.count()).select_from(self._table))).scalar_one())

    async def publish(self, documents: list[dict[str, Any]]) -> None:
        """In a transaction of their own."""
        async with self.engine.begin() as connection:
            if len(documents) == 1:
                await self.broker.publish(documents[0], queue=_QUEUE, session=connection)
            else:
                await self.broker.publish_batch(*documents, queue=_QUEUE, session=connection)

    async def fill(self, documents: list[dict[str, Any]], size: int = 1000) -> None:
        for some in chunks(documents, size):
            await self.publish(some)

    async def work(self) -> None:
        """Handle until cancelled."""
        await self.broker.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self.broker.stop()


@contextlib.asynccontextmanager
async def _opened(server: str) -> AsyncIterator[tuple[_Outbox, str]]:
    url = server.replace("postgresql://", "postgresql+asyncpg://", 1)
    async with pg.fresh_schema(server) as schema:
        engine = create_async_engine(url, pool_size=20)
        try:
            outbox = _Outbox(engine, schema)
            await outbox.make_table()
            yield outbox, schema
        finally:
            await engine.dispose()


async def drain(server: str, count: int, *, workers: int, watch: Watch | None = None) -> Figures:
    """One subscriber, no-op handlers, until the last job is deleted."""
    watch = watch or Clock()
    async with _opened(server) as (outbox, schema):
        handled, done = 0, asyncio.Event()

        @outbox.broker.subscriber(
            _QUEUE,
            max_workers=workers,
            fetch_batch_size=1000,
            min_fetch_interval=0.001,
            terminal_flush_batch_size=100,
        )
        async def accepted(body: dict[str, Any]) -> None:
            nonlocal handled
            handled += 1
            if handled == count:
                done.set()

        await outbox.fill(payloads(count))
        await pg.analyze(server, schema)
        async with watch:
            await outbox.broker.start()
            await done.wait()
            await outbox.broker.stop()  # deletes the last ones
        left = await outbox.left()
    assert handled == count, f"handled {handled} of {count}"
    assert left == 0, f"{left} jobs are not done"
    return watch.figures(count)


async def publish_batches(server: str, count: int, size: int) -> Figures:
    """Its own ``publish_batch``; with a size of 1 its ``publish``."""
    async with _opened(server) as (outbox, _):
        await outbox.fill(payloads(size), size)
        documents = payloads(count)
        started = perf_counter()
        await outbox.fill(documents, size)
        return {"rate": count / (perf_counter() - started)}


async def latency(server: str, count: int) -> Figures:
    """A subscriber that listens."""
    async with _opened(server) as (outbox, _):
        latencies = Latencies(count)

        @outbox.broker.subscriber(_QUEUE, max_workers=4, min_fetch_interval=0.001)
        async def accepted(body: dict[str, Any]) -> None:
            latencies.arrived(str(body["orderAttemptId"]))

        async def publish(number: int) -> None:
            latencies.sent(str(number))
            await outbox.publish([payload(number)])

        return await latencies.measure(publish, outbox.work(), ready=1.0)


async def idle_cpu(server: str, seconds: float) -> Figures:
    """A subscriber with nothing to do, with its own intervals."""
    async with _opened(server) as (outbox, _):

        @outbox.broker.subscriber(_QUEUE, max_workers=4)
        async def accepted(body: dict[str, Any]) -> None:
            raise AssertionError("there is nothing to do")

        return await idle.cpu(outbox.work(), seconds)
