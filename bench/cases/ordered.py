"""What order costs: draining an ordered stream beside a plain one, on each transport."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from bench import ours, pg
from bench.context import Context
from bench.harness import Contestant, Figures, Table
from bench.payload import STREAM, TYPE, chunks, payloads
from kingdom.bus import Envelope, EventBus, connect

TITLE = "ordered streams"
_NAMES = {"postgresql": "PostgreSQL", "sqlite": "SQLite", "files": "files"}
_AGGREGATES = 1000


def many(context: Context) -> list[Table]:
    """Events of a thousand aggregates, which take turns."""
    count = context.pick(4_000, 20_000)
    tables = []
    for scheme, name in _NAMES.items():
        drain = partial(_drain_all, scheme, _place(context, scheme), count)
        outcomes = context.race(
            Contestant("plain", partial(drain, ordered=False), "Worker(batch=500)"),
            Contestant("ordered", partial(drain, ordered=True), "Worker(batch=500)"),
        )
        tables.append(Table(f"{name}: {count:,} events of {_AGGREGATES:,} aggregates", "events/s", outcomes))
    return tables


def one(context: Context) -> list[Table]:
    """All events are of one aggregate: each waits for the one before it, however many there are."""
    count, few, many = context.pick((200, 200, 2_000), (1_000, 1_000, 50_000))
    tables = []
    for scheme, name in _NAMES.items():
        drain = partial(_drain_some, scheme, _place(context, scheme), count)
        outcomes = context.race(
            Contestant(f"{few:,} waiting", partial(drain, waiting=few)),
            Contestant(f"{many:,} waiting", partial(drain, waiting=many)),
        )
        tables.append(Table(f"{name}: the first {count:,} events of one aggregate", "events/s", outcomes))
    return tables


def _place(context: Context, scheme: str) -> str:
    return context.postgres if scheme == "postgresql" else str(context.directory(f"ordered-{scheme}"))


@asynccontextmanager
async def _filled(scheme: str, place: str, count: int, aggregates: int, *, ordered: bool) -> AsyncIterator[EventBus]:
    """A fresh bus with events of so many aggregates in turn."""
    async with AsyncExitStack() as stack:
        schema = await stack.enter_async_context(pg.fresh_schema(place)) if scheme == "postgresql" else None
        url = ours.postgres_url(place, schema) if schema else ours.local_url(scheme, Path(place))
        bus = await stack.enter_async_context(connect(url))
        await bus.setup()
        await bus.declare(STREAM, ordered=ordered)
        for some in chunks(list(enumerate(payloads(count))), 1000):
            await bus.publish(
                STREAM,
                [
                    Envelope(type=TYPE, payload=document, aggregate_type="A", aggregate_id=str(number % aggregates))
                    for number, document in some
                ],
            )
        if schema:
            await pg.analyze(place, schema)
        yield bus


async def _drain_all(scheme: str, place: str, count: int, *, ordered: bool) -> Figures:
    async with _filled(scheme, place, count, _AGGREGATES, ordered=ordered) as bus:
        return await ours.work_off(bus, count, batch=500)


async def _drain_some(scheme: str, place: str, count: int, *, waiting: int) -> Figures:
    async with _filled(scheme, place, waiting, 1, ordered=True) as bus:
        return await ours.work_off(bus, count, leave=waiting - count)


PARTS = (many, one)
