"""Consuming in the caller's own transaction: what handling an event wrote, and its end, commit together."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from kingdom.bus import Envelope, connect
from kingdom.bus.errors import TransactionMismatch
from kingdom.bus.eventbus import EventBus


class Database:
    """A bus, and transactions of somebody else on the same database."""

    def __init__(self, bus: EventBus, url: str, path: Path) -> None:
        self.bus = bus
        self._url = url
        self._path = path

    @asynccontextmanager
    async def transaction(self, *, commit: bool = True) -> AsyncIterator[Any]:
        if self._url.startswith("sqlite"):
            own = sqlite3.connect(self._path, isolation_level=None)
            own.execute("BEGIN IMMEDIATE")
            yield own
            own.execute("COMMIT" if commit else "ROLLBACK")
            own.close()
            return
        plain, _, schema = self._url.partition("?schema=")
        if not schema:
            plain, _, schema = self._url.partition("&schema=")
        connection = await asyncpg.connect(plain, server_settings={"search_path": schema})
        transaction = connection.transaction()
        await transaction.start()
        yield connection
        await (transaction.commit() if commit else transaction.rollback())
        await connection.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{tmp_path}/bus.db"


@pytest.fixture
async def database(url: str, tmp_path: Path) -> AsyncIterator[Database]:
    async with connect(url) as bus:
        await bus.setup()
        await bus.declare("line", ordered=True, dead_head="park")
        yield Database(bus, url, tmp_path / "bus.db")


def in_line(number: int) -> Envelope:
    named = f"evt-{number}"
    return Envelope(type="Step", payload={}, aggregate_type="Thing", aggregate_id="1", event_id=named)


async def test_an_event_consumed_in_a_transaction_is_done_once_it_commits(database: Database) -> None:
    await database.bus.publish("line", in_line(1))
    async with database.transaction() as tx:
        assert await database.bus.consume("line", "evt-1", tx=tx)
        assert not await database.bus.consume("line", "evt-1", tx=tx)
    record = await database.bus.find("evt-1")
    assert record is not None
    assert (record.status, record.attempts) == ("DONE", 1)


async def test_a_rolled_back_transaction_leaves_the_event_as_it_was(database: Database) -> None:
    await database.bus.publish("line", in_line(1))
    async with database.transaction(commit=False) as tx:
        assert await database.bus.consume("line", "evt-1", tx=tx)
    (held,) = await database.bus.claim("line", worker="w")
    assert (held.event_id, held.attempt) == ("evt-1", 1)


async def test_an_aggregate_is_consumed_in_its_order_also_within_one_transaction(database: Database) -> None:
    await database.bus.publish("line", in_line(1), in_line(2))
    async with database.transaction() as tx:
        assert not await database.bus.consume("line", "evt-2", tx=tx)
        assert await database.bus.consume("line", "evt-1", tx=tx)
        assert await database.bus.consume("line", "evt-2", tx=tx)
    assert (await database.bus.depth())["line"].pending == 0


async def test_what_somebody_holds_or_what_died_is_not_consumed(database: Database) -> None:
    await database.bus.publish("line", in_line(1), in_line(2))
    (held,) = await database.bus.claim("line", worker="w")
    async with database.transaction() as tx:
        assert not await database.bus.consume("line", "evt-1", tx=tx)
    await database.bus.settle(dead=[held])
    async with database.transaction() as tx:
        assert not await database.bus.consume("line", "evt-1", tx=tx)
        assert not await database.bus.consume("line", "evt-2", tx=tx)  # parked behind the dead one
        assert not await database.bus.consume("line", "evt-9", tx=tx)  # there is none


async def test_a_delayed_event_waits_for_its_time(database: Database) -> None:
    await database.bus.publish("line", in_line(1))
    (held,) = await database.bus.claim("line", worker="w")
    await database.bus.settle(retry=[(held, 60)])
    async with database.transaction() as tx:
        assert not await database.bus.consume("line", "evt-1", tx=tx)


async def test_a_bus_without_transactions_says_so() -> None:
    async with connect("memory://consume") as bus:
        with pytest.raises(TransactionMismatch, match="needs a bus on sqlite: or postgresql:"):
            await bus.consume("line", "evt-1", tx=object())
