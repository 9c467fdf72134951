"""Writing into somebody else's transaction.

``tx=`` may be an open transaction of any of the common drivers. Each is wrapped into one small shape: run a statement
with named parameters, get rows back. Statements are written once, with ``:name`` placeholders (and ``CAST`` instead of
``::``), and translated to the driver's own style. Nothing here commits, rolls back or closes: that is the caller's.

Drivers are recognised by the module of the object's class, so that none of them has to be imported.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from kingdom.bus.errors import TransactionMismatch

Dialect = Literal["postgresql", "sqlite"]
Rows = Sequence[Sequence[Any]]
Params = Mapping[str, Any]

_NAME: Final = re.compile(r"(?<!:):([a-z_]+)")
_KINDS: Final = "psycopg (sync or async), asyncpg, sqlite3, or SQLAlchemy (Session, AsyncSession, Connection)"


@dataclass(frozen=True, slots=True)
class Transaction:
    """The caller's transaction: its database's dialect, and how to run a statement in it."""

    dialect: Dialect
    run_sync: Callable[[str, Params], Rows] | None = None
    run_async: Callable[[str, Params], Awaitable[Rows]] | None = None

    async def run(self, sql: str, params: Params) -> Rows:
        """Run one statement and return its rows, whichever kind of driver it is."""
        if self.run_async is not None:
            return await self.run_async(sql, params)
        assert self.run_sync is not None
        return self.run_sync(sql, params)


def adopt(tx: Any) -> Transaction:
    """Recognise a transaction object, or raise :class:`TransactionMismatch` that says what is accepted."""
    for base in type(tx).__mro__:
        package = base.__module__.partition(".")[0]
        if package in _ADOPTERS:
            return _ADOPTERS[package](tx, {item.__name__ for item in type(tx).__mro__})
    raise TransactionMismatch(f"tx= is a {type(tx).__module__}.{type(tx).__qualname__}; it takes {_KINDS}")


def require(transaction: Transaction, dialect: Dialect, url: str) -> None:
    """Raise :class:`TransactionMismatch` when a transaction is not of the bus's kind of database."""
    if transaction.dialect != dialect:
        raise TransactionMismatch(
            f"tx= is a transaction on {transaction.dialect}, but this bus is on {dialect} ({url}): "
            "an event can only join a transaction of the database it is stored in"
        )


def _adopt_psycopg(tx: Any, names: set[str]) -> Transaction:
    if "BaseConnection" not in names:
        raise TransactionMismatch(f"tx= is a psycopg {type(tx).__name__}; pass the connection")
    from psycopg import AsyncCursor, Cursor
    from psycopg.rows import tuple_row

    # Cursors of our own: the connection's may return dictionaries (dict_row) or take numbered parameters only.
    if "AsyncConnection" in names:

        async def run_async(sql: str, params: Params) -> Rows:
            async with AsyncCursor(tx, row_factory=tuple_row) as cursor:
                await cursor.execute(_pyformat(sql), dict(params))
                return await cursor.fetchall() if cursor.description else ()

        return Transaction("postgresql", run_async=run_async)

    def run(sql: str, params: Params) -> Rows:
        with Cursor(tx, row_factory=tuple_row) as cursor:
            cursor.execute(_pyformat(sql), dict(params))
            return cursor.fetchall() if cursor.description else ()

    return Transaction("postgresql", run_sync=run)


def _adopt_asyncpg(tx: Any, names: set[str]) -> Transaction:
    if not names & {"Connection", "PoolConnectionProxy"}:
        raise TransactionMismatch(f"tx= is an asyncpg {type(tx).__name__}; pass the connection it belongs to")

    async def run(sql: str, params: Params) -> Rows:
        text, order = _numbered(sql)
        return await tx.fetch(text, *(params[name] for name in order))  # type: ignore[no-any-return]

    return Transaction("postgresql", run_async=run)


def _adopt_sqlite3(tx: Any, names: set[str]) -> Transaction:
    if "Connection" not in names:
        raise TransactionMismatch(f"tx= is an sqlite3 {type(tx).__name__}; pass the connection")

    def run(sql: str, params: Params) -> Rows:
        # sqlite3 opens its implicit transaction for plain INSERTs only, not for those that start with WITH.
        if not tx.in_transaction and tx.isolation_level is not None:
            tx.execute(f"BEGIN {tx.isolation_level}")
        cursor = tx.cursor()
        cursor.row_factory = None  # the connection's own may return dictionaries
        return cursor.execute(sql, dict(params)).fetchall()  # type: ignore[no-any-return]

    return Transaction("sqlite", run_sync=run)


def _adopt_sqlalchemy(tx: Any, names: set[str]) -> Transaction:
    from sqlalchemy import text

    if names & {"scoped_session", "async_scoped_session"}:  # Flask-SQLAlchemy's db.session: the one of this scope
        tx = tx()
        names = {item.__name__ for item in type(tx).__mro__}
    if not names & {"Session", "AsyncSession", "Connection", "AsyncConnection"}:
        raise TransactionMismatch(f"tx= is an SQLAlchemy {type(tx).__name__}; pass the Session or the Connection")
    bind = tx.get_bind() if names & {"Session", "AsyncSession"} else tx
    dialect = bind.dialect.name
    if dialect not in ("postgresql", "sqlite"):
        raise TransactionMismatch(f"tx= is an SQLAlchemy transaction on {dialect}; postgresql and sqlite are supported")
    if names & {"AsyncSession", "AsyncConnection"}:

        async def run_async(sql: str, params: Params) -> Rows:
            result = await tx.execute(text(sql), dict(params))
            return result.fetchall() if result.returns_rows else ()

        return Transaction(dialect, run_async=run_async)

    def run(sql: str, params: Params) -> Rows:
        result = tx.execute(text(sql), dict(params))
        return result.fetchall() if result.returns_rows else ()

    return Transaction(dialect, run_sync=run)


_ADOPTERS: Final[dict[str, Callable[[Any, set[str]], Transaction]]] = {
    "psycopg": _adopt_psycopg,
    "asyncpg": _adopt_asyncpg,
    "sqlite3": _adopt_sqlite3,
    "sqlalchemy": _adopt_sqlalchemy,
}


@lru_cache(maxsize=64)
def _pyformat(sql: str) -> str:
    return _NAME.sub(r"%(\1)s", sql.replace("%", "%%"))


@lru_cache(maxsize=64)
def _numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    order: list[str] = []

    def number(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in order:
            order.append(name)
        return f"${order.index(name) + 1}"

    return _NAME.sub(number, sql), tuple(order)
