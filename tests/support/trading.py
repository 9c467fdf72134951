"""A database of its own for the trading example: bus and domain tables, nothing in them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import urlsplit, urlunsplit

import psycopg

from examples.trading import events
from examples.trading.orders import Signal, record_signal
from examples.trading.store import Database
from examples.trading.workers import Settings, connect_all
from kingdom.bus import EventBus

_numbers = itertools.count(1)

SIGNAL = Signal("EXTREME_FLIP", "KRW-BTC", "bid", Decimal(91000000), Decimal("0.01"))


@dataclass(frozen=True)
class Trading:
    """The buses and the database of one test."""

    url: str
    bus: EventBus
    database: Database
    handled: EventBus  # where events are handled: often the same

    async def signal(self) -> int:
        """Record a signal; returns its intent's id."""
        async with self.database.transaction() as conn:
            return await record_signal(conn, self.bus, SIGNAL)

    async def query(self, sql: str, *arguments: object) -> list[tuple[object, ...]]:
        """The rows of a query."""
        async with self.database.transaction() as conn:
            cursor = await conn.execute(sql, arguments)
            return await cursor.fetchall()

    async def any(self, sql: str) -> bool:
        """Whether a query has rows."""
        return bool(await self.query(sql))

    async def attempts(self, intent_id: int) -> list[str]:
        """The states of an intent's attempts, in their order."""
        rows = await self.query(
            "SELECT status FROM order_attempt WHERE order_intent_id = %s ORDER BY attempt_no", intent_id
        )
        return [str(row[0]) for row in rows]

    async def idle(self) -> bool:
        """Whether nothing is waiting or being handled on any of the five streams."""
        depth = await self.bus.depth()
        return all(not (depth[name].pending or depth[name].processing) for name in events.STREAMS if name in depth)


@asynccontextmanager
async def trading_database(server: str, handled: str = "") -> AsyncIterator[Trading]:
    """Make a database on the server, with the tables of the bus and of the example, and the bus at ``handled``."""
    name = f"trading{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    url = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    async with connect_all(Settings(url, "", handled)) as buses, Database(url) as database:
        for bus in dict.fromkeys(buses):
            await bus.setup()
        await database.create_tables()
        yield Trading(url, buses[0], database, buses[1])
