"""``tx=`` works whatever kind of rows the caller's connection returns."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from kingdom.bus import Envelope, Inbox, connect, publish_sync
from tests.support.trading import trading_database


def as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.postgres
@pytest.mark.parametrize("cursor_factory", [psycopg.AsyncCursor, psycopg.AsyncRawCursor])
async def test_psycopg_async_connections_that_return_dictionaries(postgres_server: str, cursor_factory: Any) -> None:
    event = Envelope(type="Happened")
    async with trading_database(postgres_server) as place:
        options = {"row_factory": dict_row, "cursor_factory": cursor_factory}
        async with await psycopg.AsyncConnection.connect(place.url, **options) as conn:
            assert await place.bus.publish("rows", event, tx=conn) == [event.event_id]
            assert await Inbox("me").first(event, tx=conn)
            assert not await Inbox("me").first(event, tx=conn)
        assert (await place.bus.depth())["rows"].pending == 1


@pytest.mark.postgres
async def test_psycopg_connections_that_return_dictionaries(postgres_server: str) -> None:
    event = Envelope(type="Happened")
    async with trading_database(postgres_server) as place:
        with psycopg.connect(place.url, row_factory=dict_row) as conn:
            assert publish_sync("rows", event, tx=conn) == [event.event_id]
        assert (await place.bus.depth())["rows"].pending == 1


async def test_sqlite3_connections_that_return_dictionaries(tmp_path: Path) -> None:
    event = Envelope(type="Happened")
    async with connect(f"sqlite://{tmp_path}/bus.db") as bus:
        await bus.setup()
        conn = sqlite3.connect(tmp_path / "bus.db")
        conn.row_factory = as_dict
        assert await bus.publish("rows", event, tx=conn) == [event.event_id]
        conn.commit()
        conn.close()
        assert (await bus.depth())["rows"].pending == 1
