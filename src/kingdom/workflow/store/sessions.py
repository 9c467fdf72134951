"""One way to run a statement on either database: ``?`` for parameters, rows as tuples."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import sqlite3

Row = Sequence[Any]


class Session(Protocol):
    """An open transaction."""

    connection: Any  # the driver's: the bus publishes into it
    row_lock: str  # what a SELECT ends with that keeps others from changing the row
    nests_inserts: bool  # whether an INSERT may stand in a WITH

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        """Run a statement and return its rows."""


class SqliteSession:
    """SQLite. Statements run where they are called: each takes microseconds, a thread in between would cost more."""

    row_lock = ""  # whoever writes is alone
    nests_inserts = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        """Run a statement and return its rows."""
        return self.connection.execute(sql, values).fetchall()


class PostgresSession:
    """PostgreSQL, by asyncpg."""

    row_lock = " FOR UPDATE"
    nests_inserts = True

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        """Run a statement and return its rows."""
        rows: Sequence[Row] = await self.connection.fetch(_numbered(sql), *values)
        return rows


@lru_cache(maxsize=256)
def _numbered(sql: str) -> str:
    """``?`` as PostgreSQL wants it: ``$1``, ``$2``, …"""
    numbers = itertools.count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql)
