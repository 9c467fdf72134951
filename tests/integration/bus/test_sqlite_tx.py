"""Publishing inside the caller's own transaction, on the drivers of SQLite and in the ways they begin transactions."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from kingdom.bus import Envelope, EventBus, TransactionMismatch, connect, publish_sync

STREAM = "orders"


class Driver(NamedTuple):
    """A connection of some driver: what is passed as ``tx``, and how it runs a statement and ends a transaction."""

    tx: Any
    execute: Callable[[str], object]
    commit: Callable[[], object]
    rollback: Callable[[], object]


@contextmanager
def implicit(path: Path) -> Iterator[Driver]:
    """The driver begins a transaction by itself: its default."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        yield Driver(connection, connection.execute, connection.commit, connection.rollback)


@contextmanager
def explicit(path: Path) -> Iterator[Driver]:
    """The caller begins and ends transactions by name."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        yield Driver(
            connection,
            connection.execute,
            lambda: connection.execute("COMMIT"),
            lambda: connection.execute("ROLLBACK"),
        )


@contextmanager
def session(path: Path) -> Iterator[Driver]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with Session(engine) as opened:
        yield Driver(opened, lambda sql: opened.execute(sqlalchemy.text(sql)), opened.commit, opened.rollback)


@contextmanager
def connection(path: Path) -> Iterator[Driver]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.connect() as opened:
        yield Driver(opened, lambda sql: opened.execute(sqlalchemy.text(sql)), opened.commit, opened.rollback)


DRIVERS = [implicit, explicit, session, connection]
Opener = Callable[[Path], AbstractContextManager[Driver]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.db"


@pytest.fixture
async def bus(path: Path) -> AsyncIterator[EventBus]:
    with contextlib.closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE customer (name TEXT)")
    async with connect(f"sqlite://{path}") as bus:
        await bus.setup()
        yield bus


def event(**given: Any) -> Envelope:
    return Envelope(type="Created", payload={"nested": {"text": "é \" ' :name %s", "numbers": [1, 2.5, None]}}, **given)


def customers(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as looking:
        return [row[0] for row in looking.execute("SELECT name FROM customer ORDER BY rowid")]


async def ids(bus: EventBus) -> list[str]:
    return [delivery.event_id for delivery in await bus.claim(STREAM, worker="w", limit=100)]


@pytest.mark.parametrize("opened", DRIVERS)
async def test_events_are_there_when_the_caller_commits(bus: EventBus, path: Path, opened: Opener) -> None:
    sent = [event(priority="high", aggregate_type="Order", aggregate_id="7"), event()]
    with opened(path) as driver:
        driver.execute("INSERT INTO customer VALUES ('Ann')")
        assert await bus.publish(STREAM, sent, tx=driver.tx) == [one.event_id for one in sent]
        assert await bus.depth() == {}
        driver.commit()
    claimed = await bus.claim(STREAM, worker="w", limit=10)
    assert [delivery.envelope for delivery in claimed] == sent
    assert customers(path) == ["Ann"]


@pytest.mark.parametrize("opened", DRIVERS)
async def test_a_rolled_back_transaction_leaves_no_trace(bus: EventBus, path: Path, opened: Opener) -> None:
    sent = event()
    with opened(path) as driver:
        await bus.publish(STREAM, sent, tx=driver.tx)  # first of all: the driver may have to begin the transaction
        driver.execute("INSERT INTO customer VALUES ('Ann')")
        driver.rollback()
    assert await ids(bus) == []
    assert customers(path) == []
    assert await bus.publish(STREAM, sent) == [sent.event_id]


@pytest.mark.parametrize("opened", DRIVERS)
async def test_a_savepoint_takes_back_what_was_published_in_it(bus: EventBus, path: Path, opened: Opener) -> None:
    kept, undone, last = event(), event(), event()
    with opened(path) as driver:
        await bus.publish(STREAM, kept, tx=driver.tx)
        driver.execute("SAVEPOINT part")
        await bus.publish(STREAM, undone, tx=driver.tx)
        driver.execute("ROLLBACK TO part")
        await bus.publish(STREAM, last, tx=driver.tx)
        driver.commit()
    assert await ids(bus) == [kept.event_id, last.event_id]


@pytest.mark.parametrize("opened", DRIVERS)
async def test_an_id_known_already_is_left_out(bus: EventBus, path: Path, opened: Opener) -> None:
    old, new = event(), event()
    await bus.publish(STREAM, old)
    with opened(path) as driver:
        assert await bus.publish(STREAM, old, new, tx=driver.tx) == [new.event_id]
        assert publish_sync(STREAM, new, tx=driver.tx) == []
        driver.commit()
    assert await ids(bus) == [old.event_id, new.event_id]


@pytest.mark.parametrize("opened", DRIVERS)
async def test_a_transaction_on_another_file_is_refused(
    bus: EventBus, path: Path, tmp_path: Path, opened: Opener
) -> None:
    other = tmp_path / "other.db"
    async with connect(f"sqlite://{other}") as elsewhere:
        await elsewhere.setup()
    with opened(other) as driver, pytest.raises(TransactionMismatch, match=r"on .*other\.db, but this bus is on .*bus"):
        await bus.publish(STREAM, event(), tx=driver.tx)


async def test_a_file_reached_by_another_name_is_the_same_file(bus: EventBus, path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    with implicit(tmp_path / "link" / "bus.db") as driver:
        await bus.publish(STREAM, event(), tx=driver.tx)
        driver.commit()
    assert len(await ids(bus)) == 1
