"""What a court has in PostgreSQL, as part of a backup: what one instant of the database had.

A snapshot (REPEATABLE READ) is taken while the processes of the court are stopped, and read after they go on. It has
the rows of a :class:`DatabaseScope`, whatever else the database holds: the court's own streams with its tables of
machines and packages, or the workflows. Each table is a file in PostgreSQL's text format. Rows that the database
numbers get new numbers when they are restored, in the same order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import asyncpg

from kingdom.base.files import DISK_FULL_ERRORS, read_object
from kingdom.bus.errors import BusError
from kingdom.bus.transport import INTERACTIVE_CONNECT_SECONDS
from kingdom.bus.transports.postgresql import split_url
from kingdom.bus.urls import redact_url
from kingdom.court.errors import CourtError
from kingdom.court.machines.exchange import ORDERS, REPORTS
from kingdom.court.machines.registry import Registry
from kingdom.court.machines.replica import FORGET_LEAD, REMOVE_FILES
from kingdom.court.queues import STREAMS, open_queues

COURT_STREAMS: Final = (*STREAMS, REPORTS, ORDERS)
_ABOUT: Final = "about.json"
_CLOSE_SECONDS: Final = 2.0
_RESTORE_LOCK: Final = 0x726573746F7265  # "restore", of an advisory lock
_NUMBERED: Final = ("outbox_event", "id")  # the column that the database numbers
# The tables of streams, and which of their rows belong to a scope; $1: its streams.
_STREAM_TABLES: Final = {
    "outbox_stream": "WHERE stream = ANY ($1::text[]) ORDER BY stream",
    "outbox_event": "WHERE stream = ANY ($1::text[]) ORDER BY id",
}
# Tells whether the streams of two databases are the same, and in the same state.
_DIGEST: Final = """
    SELECT count(*) || ':' || coalesce(md5(string_agg(
        md5(concat_ws(chr(31), stream, event_id, status, attempt_count, locked_by)), '' ORDER BY stream, event_id
    )), '') FROM outbox_event WHERE stream = ANY ($1::text[])
"""


class DatabaseBackupFailed(CourtError):
    """The queues cannot be read or restored; the message says why and what to do."""

    code = "BACKUP"


@dataclass(frozen=True, slots=True)
class DatabaseScope:
    """What of a database belongs to a backup."""

    what: str
    """What is there, for an error message: ``a court``."""
    streams: tuple[str, ...]
    own_tables: Mapping[str, str]
    """Tables that belong to the scope as a whole, with the column they are ordered by."""
    prepare: Callable[[str, frozenset[str]], Awaitable[None]]
    """Makes these tables in the database at a URL, if they are not there."""
    clear: str = ""
    """Statements that remove what :attr:`prepare`, or a former court, left in the tables."""
    same: str | None = None
    """A query whose result must be the same here and in the backup: the version of the tables."""

    @property
    def tables(self) -> dict[str, str]:
        """All tables, with which of their rows belong to the scope, and their order."""
        own = {table: f"WHERE $1::text[] IS NOT NULL ORDER BY {order}" for table, order in self.own_tables.items()}
        return _STREAM_TABLES | own


async def _prepare_court(url: str, tables: frozenset[str]) -> None:
    async with open_queues(url, INTERACTIVE_CONNECT_SECONDS) as bus:
        await bus.setup()
    if tables & _MACHINE_TABLES.keys():
        await Registry(url, connect_timeout=INTERACTIVE_CONNECT_SECONDS).setup()


_MACHINE_TABLES: Final = {"court_machine": "name", "court_package": "general"}
COURT_SCOPE: Final = DatabaseScope("a court", COURT_STREAMS, _MACHINE_TABLES, _prepare_court)


class DatabaseSnapshot:
    """A connection that sees the database as it was when :meth:`take` was called. Used outside of event loops."""

    def __init__(self, url: str, scope: DatabaseScope = COURT_SCOPE) -> None:
        self._url = url
        self._scope = scope
        self._runner = asyncio.Runner()
        self._connection: Any = None

    def __enter__(self) -> Self:
        try:
            self._connection = self._run(_connect(self._url))
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(DatabaseBackupFailed):  # what was read is complete, or there is an error already
            self._run(self._connection.close(timeout=_CLOSE_SECONDS))
        self._runner.close()

    def take(self) -> None:
        """Fix the instant that is seen from now on."""
        self._run(
            self._connection.execute(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL idle_in_transaction_session_timeout = 0; "
                "SELECT 1 FROM outbox_stream LIMIT 1"
            )
        )

    def write(self, folder: Path) -> int:
        """Write the tables to files of a new folder; return the number of rows."""
        folder.mkdir()
        streams = list(self._scope.streams)
        about: dict[str, Any] = {"streams": streams, "tables": {}}
        about["digest"] = self._run(self._connection.fetchval(_DIGEST, streams))
        if self._scope.same is not None:
            about["same"] = self._run(self._connection.fetchval(self._scope.same))
        for table, rows in self._scope.tables.items():
            columns = self._run(_columns(self._connection, table))
            if not columns:
                continue
            query = f"SELECT {', '.join(columns)} FROM {table} {rows}"  # noqa: S608 - names of our own tables
            done = self._run(self._connection.copy_from_query(query, streams, output=folder / table, format="text"))
            about["tables"][table] = {"columns": columns, "rows": int(done.split()[-1])}
        (folder / _ABOUT).write_text(json.dumps(about, indent=2))
        return sum(table["rows"] for table in about["tables"].values())

    def _run(self, work: Any) -> Any:
        with _reported(self._url):
            return self._runner.run(_awaited(work))


def restore_database(url: str, folder: Path, scope: DatabaseScope = COURT_SCOPE) -> None:
    """Put the tables of a backup into a database, all or nothing.

    What is in the scope must be empty there, or be what this backup has already.
    """
    with _reported(url):
        asyncio.run(_restore(url, folder, scope))


async def _restore(url: str, folder: Path, scope: DatabaseScope) -> None:
    about = read_object(folder / _ABOUT)
    tables, streams = about.get("tables"), about.get("streams")
    if not isinstance(tables, dict) or not isinstance(streams, list) or not tables.keys() <= scope.tables.keys():
        raise DatabaseBackupFailed("the backup of the database is damaged: its list of tables cannot be read")
    await scope.prepare(url, frozenset(tables))
    connection = await _connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _RESTORE_LOCK)
            if await _is_restored(connection, about, scope):
                return  # by a restore that was interrupted after this
            await _check_same(connection, about, scope)
            if scope.clear:
                await connection.execute(scope.clear)
            await _check_empty(connection, url, streams, tables, scope)
            if tables.keys() & _MACHINE_TABLES.keys():
                await connection.execute(f"{FORGET_LEAD}; {REMOVE_FILES}")  # of a court that was here before
            for table, about_table in tables.items():
                await _copy(connection, table, about_table["columns"], folder / table)
    finally:
        await connection.close()


async def _is_restored(connection: Any, about: dict[str, Any], scope: DatabaseScope) -> bool:
    if await connection.fetchval(_DIGEST, about["streams"]) != about.get("digest"):
        return False
    for table, about_table in about["tables"].items():
        rows = scope.tables[table].partition(" ORDER BY")[0]
        count = await connection.fetchval(f"SELECT count(*) FROM {table} {rows}", about["streams"])  # noqa: S608
        if count != about_table["rows"]:
            return False
    return True


async def _check_same(connection: Any, about: dict[str, Any], scope: DatabaseScope) -> None:
    if scope.same is not None and (here := await connection.fetchval(scope.same)) != about.get("same"):
        raise DatabaseBackupFailed(
            f"the backup has version {about.get('same')} of the tables, this version of kingdom makes version {here}: "
            "restore it with the version it was made by, and upgrade then"
        )


async def _check_empty(
    connection: Any, url: str, streams: list[str], tables: dict[str, Any], scope: DatabaseScope
) -> None:
    held = await connection.fetchval("SELECT count(*) FROM outbox_event WHERE stream = ANY ($1::text[])", streams)
    for table in scope.own_tables:
        if table in tables:
            held += await connection.fetchval(f"SELECT count(*) FROM {table}")  # noqa: S608
    if held:
        raise DatabaseBackupFailed(
            f"{redact_url(url)} has {scope.what} already ({held:,} rows): name an empty database or another schema "
            "(?schema=NAME); nothing was changed"
        )
    await connection.execute("DELETE FROM outbox_stream WHERE stream = ANY ($1::text[])", streams)


async def _copy(connection: Any, table: str, columns: list[str], file: Path) -> None:
    if unknown := sorted(set(columns) - set(await _columns(connection, table))):
        raise DatabaseBackupFailed(
            f"the backup has {table}.{unknown[0]}, which this version does not know: restore it with a later version"
        )
    schema = await connection.fetchval("SELECT current_schema()")
    await connection.copy_to_table(table, source=file, columns=columns, schema_name=schema, format="text")


async def _columns(connection: Any, table: str) -> list[str]:
    """Return the columns of a table, but not the one that the database numbers; none if there is no such table."""
    rows = await connection.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped "
        "ORDER BY attnum",
        table,
    )
    return [row["attname"] for row in rows if (table, row["attname"]) != _NUMBERED]


async def _connect(url: str) -> Any:
    dsn, options = split_url(url)
    connection = await asyncpg.connect(
        dsn, timeout=INTERACTIVE_CONNECT_SECONDS, server_settings={"application_name": "kingdom"}
    )
    if schema := options.get("schema"):
        await connection.execute("SELECT set_config('search_path', quote_ident($1), false)", schema)
    return connection


async def _awaited(work: Any) -> Any:
    return await work


@contextlib.contextmanager
def _reported(url: str) -> Any:
    """Turn errors of the driver into one line that names the database."""
    try:
        yield
    except BusError as error:
        raise DatabaseBackupFailed(str(error)) from error
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        if isinstance(error, OSError) and error.errno in DISK_FULL_ERRORS:  # of the disk here, not of the server
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DatabaseBackupFailed(f"{redact_url(url)}: {reason}") from error
