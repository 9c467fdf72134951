"""Connections to PostgreSQL: those in doubt are thrown away, and many may set up an empty database at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from kingdom.bus import connect
from kingdom.bus.outbox import migrations
from kingdom.bus.transports.postgresql._connections import Connection, ConnectionPool


@pytest.fixture
async def pool(postgres_url: str) -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool(f"{postgres_url}&pool=1", timeout=5)
    yield pool
    await pool.close()


async def test_a_connection_with_an_operation_under_way_is_not_used_again(pool: ConnectionPool) -> None:
    left_behind: list[asyncio.Future[Any]] = []

    async def two_at_once(connection: Connection) -> None:
        left_behind.append(asyncio.ensure_future(connection.fetch("SELECT pg_sleep(60)")))
        await asyncio.sleep(0)
        await connection.fetch("SELECT 1")

    with pytest.raises(asyncpg.InterfaceError, match="another operation is in progress"):
        await pool.use(two_at_once)
    async with asyncio.timeout(10):
        assert await pool.use(lambda connection: connection.fetchval("SELECT 1")) == 1
    await asyncio.gather(*left_behind, return_exceptions=True)


async def test_work_is_tried_again_on_another_connection(pool: ConnectionPool) -> None:
    pids: list[int] = []

    async def fails_once(connection: Connection) -> int:
        pids.append(connection.get_server_pid())
        if len(pids) == 1:
            raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")
        return await connection.fetchval("SELECT 1")  # type: ignore[no-any-return]

    assert await pool.run(fails_once) == 1
    assert len(set(pids)) == 2


async def test_an_error_that_the_server_reports_keeps_the_connection(pool: ConnectionPool) -> None:
    before = await pool.use(lambda connection: connection.fetchval("SELECT pg_backend_pid()"))
    with pytest.raises(asyncpg.UniqueViolationError):
        await pool.use(lambda connection: connection.execute("DO $$ BEGIN RAISE unique_violation; END $$"))
    assert await pool.use(lambda connection: connection.fetchval("SELECT pg_backend_pid()")) == before


@pytest.fixture
async def empty_database(postgres_server: str) -> AsyncIterator[str]:
    server = await asyncpg.connect(postgres_server)
    await server.execute("CREATE DATABASE empty")
    yield urlsplit(postgres_server)._replace(path="/empty").geturl()
    await server.execute("DROP DATABASE empty WITH (FORCE)")
    await server.close()


async def test_twenty_may_set_up_an_empty_database_at_once(empty_database: str) -> None:
    async with AsyncExitStack() as stack:
        # Each has looked for the tables when it connected, and remembers that there are none.
        buses = [await stack.enter_async_context(connect(f"{empty_database}&pool=1")) for _ in range(20)]
        applied = await asyncio.gather(*(bus.setup() for bus in buses))
    assert sorted(applied, key=len) == [[]] * 19 + [[name for _, name, _ in migrations("postgresql")]]
