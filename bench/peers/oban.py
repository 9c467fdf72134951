"""Oban for Python: psycopg pool, uvloop as its own command line uses, many jobs at a time.

A completed job stays in its table until it is pruned, as ours does. A job that is done is acknowledged by a statement
of its own; the statements of all jobs that ended meanwhile share a transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from time import perf_counter
from typing import Any, cast

import uvloop
from oban import Job, Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

from bench import idle, pg
from bench.harness import Figures
from bench.latency import Latencies
from bench.payload import chunks, payload, payloads
from bench.watch import Clock, Watch

_QUEUE = "bench"


@worker(queue=_QUEUE)
class Accepted:
    """Calls what is measured with the arguments of each job."""

    handle: Callable[[Any], None]

    async def process(self, job: Job) -> None:
        Accepted.handle(job.args)


@contextlib.asynccontextmanager
async def _opened(server: str, *, limit: int = 0) -> AsyncIterator[tuple[Oban, str]]:
    """Oban with its tables in a schema of its own; not started. Without ``limit`` it only enqueues."""
    async with pg.fresh_schema(server) as schema, AsyncConnectionPool(server, min_size=4, max_size=10) as pool:
        await install(pool, schema)
        yield Oban(pool=pool, prefix=schema, queues={_QUEUE: limit} if limit else {}), schema


def drain(server: str, count: int, *, limit: int, watch: Watch | None = None) -> Figures:
    """One queue, no-op jobs, until the last is acknowledged."""
    return uvloop.run(_drain(server, count, limit, watch or Clock()))


async def _drain(server: str, count: int, limit: int, watch: Watch) -> Figures:
    async with _opened(server, limit=limit) as (oban, schema):
        await _fill(oban, payloads(count))
        await pg.analyze(server, schema)
        handled, done = 0, asyncio.Event()

        def handle(_: Any) -> None:
            nonlocal handled
            handled += 1
            if handled == count:
                done.set()

        Accepted.handle = staticmethod(handle)
        async with watch:
            await oban.start()
            await done.wait()
            await oban.stop()  # acknowledges the last jobs
        connection = await pg.connect(server, schema)
        left = await connection.fetchval("SELECT count(*) FROM oban_jobs WHERE state <> 'completed'")
        await connection.close()
    assert handled == count, f"handled {handled} of {count}"
    assert left == 0, f"{left} jobs are not done"
    return watch.figures(count)


def publish_batches(server: str, count: int, size: int) -> Figures:
    """Its own ``enqueue_many``."""
    return uvloop.run(_publish(server, count, size))


def publish_singles(server: str, count: int) -> Figures:
    """One job for each call."""
    return uvloop.run(_publish(server, count, 1))


async def _publish(server: str, count: int, size: int) -> Figures:
    async with _opened(server) as (oban, _):
        await _fill(oban, payloads(size), size)
        documents = payloads(count)
        started = perf_counter()
        if size == 1:
            for document in documents:
                await oban.enqueue(_job(document))
        else:
            await _fill(oban, documents, size)
        return {"rate": count / (perf_counter() - started)}


async def _fill(oban: Oban, documents: list[dict[str, Any]], size: int = 1000) -> None:
    for some in chunks(documents, size):
        await oban.enqueue_many(map(_job, some))


def _job(document: dict[str, Any]) -> Job:
    return cast("Any", Accepted).new(document)  # made by the decorator


def latency(server: str, count: int) -> Figures:
    """A queue that listens."""
    return uvloop.run(_latency(server, count))


async def _latency(server: str, count: int) -> Figures:
    async with _opened(server, limit=10) as (oban, _):
        latencies = Latencies(count)
        Accepted.handle = staticmethod(lambda document: latencies.arrived(str(document["orderAttemptId"])))

        async def publish(number: int) -> None:
            latencies.sent(str(number))
            await oban.enqueue(_job(payload(number)))

        return await latencies.measure(publish, _work(oban), ready=1.0)


def idle_cpu(server: str, seconds: float) -> Figures:
    """A queue with nothing to do."""
    return uvloop.run(_idle(server, seconds))


async def _idle(server: str, seconds: float) -> Figures:
    async with _opened(server, limit=10) as (oban, _):
        return await idle.cpu(_work(oban), seconds)


def _work(oban: Oban) -> Coroutine[Any, Any, None]:
    async def work() -> None:
        async with oban:
            await asyncio.Event().wait()

    return work()
