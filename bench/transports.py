"""An empty bus on each transport that Kingdom has on one machine, for cases that measure all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import ours, pg
from bench.context import Context
from bench.payload import STREAM, TYPE, chunks, payloads
from kingdom.bus import Envelope, EventBus, connect

NAMES: Final = {"postgresql": "PostgreSQL", "sqlite": "SQLite", "files": "files"}


@dataclass(frozen=True)
class Place:
    """Where the buses of one transport are made: a server, or a folder."""

    scheme: str
    address: str

    @classmethod
    def of(cls, context: Context, scheme: str, case: str) -> Place:
        """The place for one case."""
        return cls(scheme, context.postgres if scheme == "postgresql" else str(context.directory(f"{case}-{scheme}")))

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[Fresh]:
        """An empty bus; that of a server is dropped afterwards."""
        if self.scheme != "postgresql":
            yield Fresh(ours.local_url(self.scheme, Path(self.address)))
            return
        async with pg.fresh_schema(self.address) as schema:
            yield Fresh(ours.postgres_url(self.address, schema), self.address, schema)


@dataclass(frozen=True)
class Fresh:
    """The URL of an empty bus."""

    url: str
    server: str = ""
    schema: str = ""

    async def filled(self) -> None:
        """To be called when it has been filled, before anything is measured."""
        if self.schema:
            await pg.analyze(self.server, self.schema)


@asynccontextmanager
async def with_aggregates(place: Place, count: int, aggregates: int, *, ordered: bool) -> AsyncIterator[EventBus]:
    """A fresh bus with events of so many aggregates in turn."""
    async with place.fresh() as fresh, connect(fresh.url) as bus:
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
        await fresh.filled()
        yield bus
