"""Procrastinate: psycopg pool, 30 jobs at a time, successful jobs deleted. It fetches one job for each query."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any

import procrastinate

from bench import idle, pg
from bench.harness import Figures
from bench.latency import Latencies
from bench.payload import chunks, payload, payloads
from bench.watch import Clock, Watch

logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it would log each job


@contextlib.asynccontextmanager
async def app(server: str) -> AsyncIterator[tuple[procrastinate.App, str]]:
    """An app with its tables in a schema of its own."""
    async with pg.fresh_schema(server) as schema:
        connector = procrastinate.PsycopgConnector(
            conninfo=server, kwargs={"options": f"-csearch_path={schema}"}, min_size=8, max_size=35
        )
        made = procrastinate.App(connector=connector)
        async with made.open_async():
            await made.schema_manager.apply_schema_async()
            yield made, schema


async def drain(server: str, count: int, *, concurrency: int, watch: Watch | None = None) -> Figures:
    """One worker, no-op jobs, until nothing is left; without LISTEN, which a drain does not need."""
    watch = watch or Clock()
    async with app(server) as (made, schema):
        handled = 0

        @made.task(name="accepted")
        async def accepted(**_: Any) -> None:
            nonlocal handled
            handled += 1

        await _fill(accepted, payloads(count))
        await pg.analyze(server, schema)
        async with watch:
            await made.run_worker_async(
                concurrency=concurrency,
                wait=False,
                listen_notify=False,
                delete_jobs="successful",
                install_signal_handlers=False,
            )
    assert handled == count, f"handled {handled} of {count}"
    return watch.figures(count)


async def publish_batches(server: str, count: int, size: int) -> Figures:
    """Its own batch defer."""
    async with app(server) as (made, _):
        accepted = _task(made)
        await _fill(accepted, payloads(size), size)
        documents = payloads(count)
        started = perf_counter()
        await _fill(accepted, documents, size)
        seconds = perf_counter() - started
    return {"rate": count / seconds}


async def publish_singles(server: str, count: int) -> Figures:
    """One job for each call."""
    async with app(server) as (made, _):
        accepted = _task(made)
        await accepted.defer_async(**payload(0))
        documents = payloads(count)
        started = perf_counter()
        for document in documents:
            await accepted.defer_async(**document)
        seconds = perf_counter() - started
    return {"rate": count / seconds}


async def latency(server: str, count: int) -> Figures:
    """A worker that listens."""
    async with app(server) as (made, _):
        latencies = Latencies(count)

        @made.task(name="accepted")
        async def accepted(**document: Any) -> None:
            latencies.arrived(str(document["orderAttemptId"]))

        async def publish(number: int) -> None:
            latencies.sent(str(number))
            await accepted.defer_async(**payload(number))

        return await latencies.measure(publish, _work(made), ready=1.0)


async def idle_cpu(server: str, seconds: float) -> Figures:
    """A worker with nothing to do."""
    async with app(server) as (made, _):
        _task(made)
        return await idle.cpu(_work(made), seconds)


async def _work(made: procrastinate.App) -> None:
    await made.run_worker_async(concurrency=30, delete_jobs="successful", install_signal_handlers=False)


def _task(made: procrastinate.App) -> Any:
    @made.task(name="accepted")
    async def accepted(**_: Any) -> None: ...

    return accepted


async def _fill(task: Any, documents: list[dict[str, Any]], size: int = 1000) -> None:
    for some in chunks(documents, size):
        await task.batch_defer_async(*some)
