"""Shared by the SQL transports: statements, migrations, the caller's transaction, and the inbox.

``tx=`` may be an open transaction of any common driver. Each is wrapped as one function that runs a statement with
named parameters and returns rows. Statements are written once, with ``:name`` placeholders (and ``CAST`` instead of
``::``), and translated to the style of the driver. Nothing here commits, rolls back or closes: the caller does.
Drivers are recognised by the module of the object's class, so that none has to be imported.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from kingdom.bus.delivery import DocumentForm
from kingdom.bus.envelope import PRIORITIES, Envelope, check_worker
from kingdom.bus.errors import NotSetUp, TransactionMismatch

PRIORITY: Final = PRIORITIES  # stored as their index: the smallest is claimed first
RANK: Final = {name: rank for rank, name in enumerate(PRIORITIES)}
_TRANSPORTS: Final = (
    Path(__file__).parent / "transports"
)  # importlib.resources takes longer to load than all of SQLite's


@cache
def statement(dialect: Dialect, name: str) -> str:
    """Return the statement in ``transports/<dialect>/sql/<name>.sql``."""
    return (_TRANSPORTS / dialect / "sql" / f"{name}.sql").read_text("utf-8")


@cache
def migrations(dialect: Dialect) -> tuple[tuple[int, str, str], ...]:
    """Return the migrations of a dialect as (number, name, SQL), in order; files are named ``NNN_name.sql``."""
    found = sorted((_TRANSPORTS / dialect / "migrations").glob("*.sql"))
    return tuple((int(path.name[:3]), path.stem, path.read_text("utf-8")) for path in found)


def insert_statement(
    dialect: Dialect,
    stream: str,
    envelopes: Sequence[Envelope],
    max_bytes: int,
    schema: str | None = None,
    now: float | None = None,
) -> tuple[str, dict[str, Any]]:
    """Return the statement and parameters that publish into an open transaction, in one round trip on any driver.

    One event, the usual number, is a row of parameters. Several travel as one JSON parameter: it works alike on every
    driver, and on psycopg it is 2.5 times faster than arrays. ``now`` is for SQLite, which has no clock of its own.
    """
    params: dict[str, Any]
    if len(envelopes) == 1:
        name = "publish_tx_one"
        params = {"stream": stream, **_head(envelopes[0]), "payload_json": envelopes[0].to_json(max_bytes)}
    else:
        name = "publish_tx"
        rows = (
            f'{json.dumps(_head(envelope))[:-1]},"payload_json":{envelope.to_json(max_bytes)}}}'
            for envelope in envelopes
        )
        params = {"stream": stream, "rows": f"[{','.join(rows)}]"}
    if dialect == "sqlite":
        params["now"] = time.time() if now is None else now
    return with_schema(statement(dialect, name), schema), params


def with_schema(sql: str, schema: str | None) -> str:
    """Qualify our tables with the schema, for statements that run on a connection of the caller."""
    if schema is None:
        return sql
    prefix = '"' + schema.replace('"', '""') + '".'
    for table in ("outbox_event", "outbox_stream", "outbox_relay", "inbox_event"):
        sql = sql.replace(f" {table}", f" {prefix}{table}")
    return sql


def form_to_json(form: DocumentForm | None) -> str | None:
    """Encode a document form as it is stored with the stream."""
    return None if form is None else json.dumps(asdict(form))


def form_from_json(text: str | None) -> DocumentForm | None:
    """Decode what :func:`form_to_json` wrote."""
    if text is None:
        return None
    fields = json.loads(text)
    return DocumentForm(**{**fields, "outcomes": tuple(fields["outcomes"])})


def _head(envelope: Envelope) -> dict[str, Any]:
    """Return the columns beside the envelope."""
    return {
        "event_id": envelope.event_id,
        "event_type": envelope.type,
        "aggregate_type": envelope.aggregate_type,
        "aggregate_id": envelope.aggregate_id,
        "priority": RANK[envelope.priority],
        "not_before": None if envelope.not_before is None else envelope.not_before.timestamp(),
    }


Dialect = Literal["postgresql", "sqlite"]
Rows = Sequence[Sequence[Any]]
Params = Mapping[str, Any]

_NAME: Final = re.compile(r"(?<!:):([a-z_]+)")
_NO_TABLE: Final = re.compile(
    r'relation "(?:[^"]*\.)?((?:out|in)box_\w+)" does not exist|no such table: (?:\S+\.)?((?:out|in)box_\w+)'
)
_KINDS: Final = (
    "psycopg (sync or async), asyncpg, sqlite3, SQLAlchemy (Session, AsyncSession, Connection) or Django's connection"
)


@dataclass(frozen=True, slots=True)
class CallerTransaction:
    """The caller's transaction: its SQL dialect, and how to run a statement in it."""

    dialect: Dialect
    run_sync: Callable[[str, Params], Rows] | None = None
    run_async: Callable[[str, Params], Awaitable[Rows]] | None = None

    async def run(self, sql: str, params: Params) -> Rows:
        """Run one statement and return its rows, with a synchronous or an asynchronous driver."""
        if self.run_async is None:
            return self.run_now(sql, params)
        try:
            return await self.run_async(sql, params)
        except Exception as error:
            _raise_if_not_set_up(error)
            raise

    def run_now(self, sql: str, params: Params) -> Rows:
        """Run one statement with a synchronous driver, and return its rows."""
        assert self.run_sync is not None
        try:
            return self.run_sync(sql, params)
        except Exception as error:
            _raise_if_not_set_up(error)
            raise


def as_transaction(tx: Any) -> CallerTransaction:
    """Wrap a transaction object of a known driver, or raise :class:`TransactionMismatch`."""
    for base in type(tx).__mro__:
        package = base.__module__.partition(".")[0]
        if package in _ADOPTERS:
            return _ADOPTERS[package](tx, {item.__name__ for item in type(tx).__mro__})
    raise TransactionMismatch(f"tx= is a {type(tx).__module__}.{type(tx).__qualname__}; it takes {_KINDS}")


def _raise_if_not_set_up(error: Exception) -> None:
    """Raise :class:`NotSetUp` for what a driver says of a table of ours that is not there."""
    if (found := _NO_TABLE.search(str(error))) is not None:
        raise NotSetUp(
            f"there is no table {found[1] or found[2]} where tx= looks: run `await bus.setup()` or "
            "`kingdom bus migrate` on this database, or name the schema of the tables with schema="
        ) from error


def require_dialect(transaction: CallerTransaction, dialect: Dialect, url: str) -> None:
    """Raise :class:`TransactionMismatch` unless the transaction is on the bus's kind of database."""
    if transaction.dialect != dialect:
        raise TransactionMismatch(
            f"tx= is a transaction on {transaction.dialect}, but this bus is on {dialect} ({url}): "
            "an event can only join a transaction of the database it is stored in"
        )


def _no_transaction(what: str, begin: str) -> TransactionMismatch:
    """Return the error for a connection that would commit our statement by itself: there is nothing to join."""
    return TransactionMismatch(f"tx= is {what}, outside a transaction: begin one first ({begin})")


def _adopt_psycopg(tx: Any, names: set[str]) -> CallerTransaction:
    if "BaseConnection" not in names:
        raise TransactionMismatch(f"tx= is a psycopg {type(tx).__name__}; pass the connection")
    from psycopg import AsyncCursor, Cursor
    from psycopg.pq import PipelineStatus, TransactionStatus
    from psycopg.rows import tuple_row

    idle = tx.info.transaction_status == TransactionStatus.IDLE  # in a pipeline, BEGIN may not be sent yet
    if tx.autocommit and idle and tx.pgconn.pipeline_status == PipelineStatus.OFF:
        raise _no_transaction("a psycopg connection in autocommit mode", "with conn.transaction()")

    # Cursors of our own: the connection's may return dictionaries (dict_row) or take numbered parameters only. Each of
    # our statements has an answer. In a pipeline nothing shows it, not even cursor.description, until it is fetched.
    if "AsyncConnection" in names:

        async def run_async(sql: str, params: Params) -> Rows:
            async with AsyncCursor(tx, row_factory=tuple_row) as cursor:
                await cursor.execute(_pyformat(sql), dict(params))
                return await cursor.fetchall()

        return CallerTransaction("postgresql", run_async=run_async)

    def run(sql: str, params: Params) -> Rows:
        with Cursor(tx, row_factory=tuple_row) as cursor:
            cursor.execute(_pyformat(sql), dict(params))
            return cursor.fetchall()

    return CallerTransaction("postgresql", run_sync=run)


def _adopt_asyncpg(tx: Any, names: set[str]) -> CallerTransaction:
    if not names & {"Connection", "PoolConnectionProxy"}:
        raise TransactionMismatch(f"tx= is an asyncpg {type(tx).__name__}; pass the connection it belongs to")

    if not tx.is_in_transaction():
        raise _no_transaction("an asyncpg connection", "async with conn.transaction()")

    async def run(sql: str, params: Params) -> Rows:
        text, order = _numbered(sql)
        return await tx.fetch(text, *(params[name] for name in order))  # type: ignore[no-any-return]

    return CallerTransaction("postgresql", run_async=run)


def _adopt_sqlite3(tx: Any, names: set[str]) -> CallerTransaction:
    if "Connection" not in names:
        raise TransactionMismatch(f"tx= is an sqlite3 {type(tx).__name__}; pass the connection")
    if not tx.in_transaction and (tx.isolation_level is None or getattr(tx, "autocommit", False) is True):
        raise _no_transaction("an sqlite3 connection in autocommit mode", 'conn.execute("BEGIN IMMEDIATE")')

    def run(sql: str, params: Params) -> Rows:
        # sqlite3 begins its implicit transaction for plain INSERTs only, not for those that start with WITH.
        if not tx.in_transaction:
            tx.execute(f"BEGIN {tx.isolation_level}")
        cursor = tx.cursor()
        cursor.row_factory = None  # the connection's own may return dictionaries
        return cursor.execute(sql, dict(params)).fetchall()  # type: ignore[no-any-return]

    return CallerTransaction("sqlite", run_sync=run)


def _adopt_sqlalchemy(tx: Any, names: set[str]) -> CallerTransaction:
    from sqlalchemy import text

    if names & {"scoped_session", "async_scoped_session"}:  # Flask-SQLAlchemy's db.session: take the current one
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
            connection = (await tx.connection()) if "AsyncSession" in names else tx
            await connection.run_sync(_require_sqlalchemy_transaction)
            result = await tx.execute(text(sql), dict(params))
            return result.fetchall() if result.returns_rows else ()

        return CallerTransaction(dialect, run_async=run_async)

    def run(sql: str, params: Params) -> Rows:
        _require_sqlalchemy_transaction(tx.connection() if "Session" in names else tx)
        result = tx.execute(text(sql), dict(params))
        return result.fetchall() if result.returns_rows else ()

    return CallerTransaction(dialect, run_sync=run)


def _require_sqlalchemy_transaction(connection: Any) -> None:
    """Begin the transaction of a connection, as its first statement would; refuse a connection that has none."""
    if not connection.in_transaction():
        connection.begin()
    pooled = connection.connection
    driver = pooled.driver_connection
    autocommit = getattr(pooled.dbapi_connection, "autocommit", None) is True
    if connection.dialect.name == "sqlite":  # None is also for those who begin by themselves, as SQLAlchemy advises
        autocommit = autocommit or (driver.isolation_level is None and not driver.in_transaction)
    if autocommit:
        raise _no_transaction("an SQLAlchemy connection with isolation_level AUTOCOMMIT", "without that level")


def _adopt_django(tx: Any, _names: set[str]) -> CallerTransaction:
    vendor = getattr(tx, "vendor", None)  # of django.db.connection, or of connections["name"]
    if vendor is None:
        raise TransactionMismatch(f"tx= is Django's {type(tx).__name__}; pass django.db.connection")
    if vendor not in ("postgresql", "sqlite"):
        raise TransactionMismatch(f"tx= is a Django connection to {vendor}; postgresql and sqlite are supported")
    if not tx.in_atomic_block:
        raise _no_transaction("a Django connection", "with transaction.atomic()")

    def run(sql: str, params: Params) -> Rows:
        with tx.cursor() as cursor:  # takes %(name)s on SQLite too
            cursor.execute(_pyformat(sql), dict(params))
            return cursor.fetchall() if cursor.description else ()

    return CallerTransaction(vendor, run_sync=run)


_ADOPTERS: Final[dict[str, Callable[[Any, set[str]], CallerTransaction]]] = {
    "psycopg": _adopt_psycopg,
    "asyncpg": _adopt_asyncpg,
    "sqlite3": _adopt_sqlite3,
    "sqlalchemy": _adopt_sqlalchemy,
    "django": _adopt_django,
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


# Valid on SQLite and PostgreSQL.
_INSERT: Final = (
    "INSERT INTO inbox_event (consumer, event_id) VALUES (:consumer, :event_id) "
    "ON CONFLICT (consumer, event_id) DO NOTHING RETURNING event_id"
)


class Inbox:
    """The events one consumer has handled. ``bus.setup()`` creates the table on SQLite and PostgreSQL.

    Delivery is at least once. The inbox stores (consumer, event id) in the handler's own transaction, so the effect
    and the mark commit together, or neither does::

        inbox = Inbox("push-sender")

        @worker.on("OrderAccepted")
        async def push(event: Envelope) -> None:
            async with pool.connection() as conn, conn.transaction():
                if await inbox.first(event, tx=conn):
                    ...            # runs once per event, however often it is delivered

    ``schema`` names the PostgreSQL schema of the bus when it is not on the transaction's search path.
    """

    def __init__(self, consumer: str, *, schema: str | None = None) -> None:
        self.consumer = check_worker(consumer)
        self._insert = with_schema(_INSERT, schema)

    async def first(self, event: Envelope | str, *, tx: Any) -> bool:
        """Mark the event as seen in the transaction ``tx``; return whether this consumer sees it for the first time."""
        transaction = as_transaction(tx)
        return bool(await transaction.run(self._insert, self._params(event)))

    def first_sync(self, event: Envelope | str, *, tx: Any) -> bool:
        """Do the same as :meth:`first` in a synchronous transaction."""
        transaction = as_transaction(tx)
        if transaction.run_sync is None:
            raise TransactionMismatch("first_sync needs a synchronous transaction; use `await inbox.first(…)`")
        return bool(transaction.run_now(self._insert, self._params(event)))

    def _params(self, event: Envelope | str) -> dict[str, str]:
        return {"consumer": self.consumer, "event_id": event if isinstance(event, str) else event.event_id}
