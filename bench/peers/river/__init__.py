"""River, a queue in Go: the program beside this module works, with schemas made here.

Its jobs stay in their table, marked as completed; a batch of completions is written at a time. Its one process uses all
cores.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from bench import pg
from bench.harness import Figures
from bench.peers import GoPeer, Program
from bench.watch import Clock, Watch


async def drain(server: str, count: int, *, watch: Watch | None = None) -> Figures:
    """One client, no-op jobs, until the last completion is written."""
    watch = watch or Clock()
    async with _opened(server) as (program, schema):
        await program.ask("fill", count=count)
        await pg.analyze(server, schema)
        async with watch:
            await program.ask("drain", count=count)
        connection = await pg.connect(server, schema)
        rows = await connection.fetch("SELECT state::text, count(*) FROM river_job GROUP BY state")
        await connection.close()
    states = {row["state"]: row["count"] for row in rows}
    assert states == {"completed": count}, f"the jobs are {states}"
    return watch.figures(count)


async def publish_batches(server: str, count: int, size: int) -> Figures:
    """Its own batch insert: ``InsertManyFast``, with COPY."""
    return await _measure("publish-batches", server, count=count, size=size)


async def publish_singles(server: str, count: int) -> Figures:
    """One job for each call."""
    return await _measure("publish-singles", server, count=count)


async def latency(server: str, count: int) -> Figures:
    """One client inserts, another waits for notifications."""
    return await _measure("latency", server, count=count)


async def idle_cpu(server: str, seconds: float) -> Figures:
    """A client with nothing to do."""
    return await _measure("idle", server, seconds=seconds)


async def _measure(command: str, server: str, **arguments: Any) -> Figures:
    async with _opened(server) as (program, _):
        return await program.ask(command, **arguments)


@contextlib.asynccontextmanager
async def _opened(server: str) -> AsyncIterator[tuple[Program, str]]:
    """The program, connected, with its tables in an empty schema."""
    async with pg.fresh_schema(server) as schema, GoPeer("river").running() as program:
        await program.ask("open", server=server, schema=schema)
        yield program, schema
