"""The bare INSERT and Kingdom in one process, some events each in turn.

What an event costs is mostly waiting: for the disk, and for the other process to be scheduled. Both change by a third
from one second to the next, and from one process to another. Taken in short turns on one loop, the two meet the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any
from uuid import uuid4

from bench import pg
from bench.bare import postgres as bare
from bench.harness import Figures
from bench.ours import event, fill, postgres_url
from bench.payload import STREAM, TYPE, chunks, encode, payloads
from kingdom.bus import connect

_PAUSE = 0.03  # seconds between turns, not counted: a notification that is owed is sent by then
Documents = list[dict[str, Any]]
Publish = Callable[[Documents], Awaitable[None]]


async def publish(server: str, count: int, *, size: int, turn: int) -> Figures:
    """Events each second, ``size`` for each call and commit, ``turn`` in a row: ``bare`` and ``kingdom``."""
    async with (
        pg.fresh_schema(server) as ours,
        pg.fresh_schema(server) as theirs,
        connect(postgres_url(server, ours)) as bus,
    ):
        await bus.setup()
        connection = await pg.connect(server, theirs)
        await connection.execute(bare.TABLE)
        insert = await connection.prepare(bare.INSERT_ONE)

        async def bare_singles(documents: Documents) -> None:
            for document in documents:
                await insert.fetch(uuid4(), STREAM, TYPE, encode(document))

        async def singles(documents: Documents) -> None:
            for document in documents:
                await bus.publish(STREAM, event(document))

        async def bare_batches(documents: Documents) -> None:
            await bare.fill(connection, documents, size)

        async def batches(documents: Documents) -> None:
            await fill(bus, documents, size)

        publishers = (bare_singles, singles) if size == 1 else (bare_batches, batches)
        figures = await _in_turns(dict(zip(("bare", "kingdom"), publishers, strict=True)), payloads(count), turn)
        await connection.close()
    return figures


async def _in_turns(publishers: dict[str, Publish], documents: Documents, turn: int) -> Figures:
    for publish in publishers.values():  # plans and look-ups are made before the clock starts
        await publish(documents[:turn])
    seconds = dict.fromkeys(publishers, 0.0)
    for number, some in enumerate(chunks(documents, turn)):
        for name in list(publishers) if number % 2 else reversed(publishers):
            await asyncio.sleep(_PAUSE)
            started = perf_counter()
            await publishers[name](some)
            seconds[name] += perf_counter() - started
    return {name: len(documents) / spent for name, spent in seconds.items()}
