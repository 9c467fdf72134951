"""The database file: connections, schema version, migrations, and errors."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

from kingdom.bus.errors import (
    BusError,
    InvalidOption,
    NotSetUp,
    SchemaTooNew,
    StorageFull,
    TransactionMismatch,
    TransportUnavailable,
)
from kingdom.bus.outbox import migrations
from kingdom.bus.transport import TransportOptions
from kingdom.bus.urls import url_path

_HINT: Final = "run `await bus.setup()` or `kingdom bus migrate`"
_PRIMARY: Final = 0xFF  # the low byte of a result code says what happened, the rest where
_NO_SPACE: Final = 1 << 20  # bytes


def translate(error: Exception, path: str) -> Exception:
    """Return the error of the bus for an error that the database at ``path`` raised."""
    if isinstance(error, sqlite3.Error):
        translated: Exception = _translated(error, path)
    elif isinstance(error, BusError):
        translated = type(error)(*error.args)  # several callers may get it, each its own
    else:
        return error
    translated.__cause__ = error
    return translated


def _translated(error: sqlite3.Error, path: str) -> BusError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY
    text = f"{path}: {error}"
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _disk_is_full(path)):
        return StorageFull(f"{text}; nothing was written. Make room, or purge: `kingdom bus purge`")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return TransportUnavailable(f"{text}: another connection holds the write lock and did not release it in time")
    if code == sqlite3.SQLITE_CANTOPEN:
        return TransportUnavailable(f"{text}; check that the file and its directory can be read and written")
    if code == sqlite3.SQLITE_READONLY:
        return TransportUnavailable(f"{text}; the bus writes to this file and its directory: check the permissions")
    if code == sqlite3.SQLITE_IOERR:
        return TransportUnavailable(f"{text}; check the disk (`kingdom bus doctor`)")
    if code == sqlite3.SQLITE_NOTADB:
        return BusError(f"{text}: the URL names a file that is no SQLite database, or an encrypted one")
    if code == sqlite3.SQLITE_CORRUPT:
        return BusError(f"{text}: the database is damaged; restore it from a backup, or try `sqlite3 FILE .recover`")
    if "no such table" in str(error):
        return NotSetUp(f"{path} has no tables of the bus yet: {_HINT}")
    return BusError(text)


def _disk_is_full(path: str) -> bool:
    """Return whether the disk is full: SQLite reports an I/O error when the index of its log finds no room."""
    try:
        return shutil.disk_usage(Path(path).parent).free < _NO_SPACE
    except OSError:
        return False


def not_set_up(path: str, why: str) -> NotSetUp:
    """Return the error for a store that is used before ``setup``."""
    return NotSetUp(f"{path} {why}: {_HINT}")


def must_reconnect(error: BaseException) -> bool:
    """Return whether a connection that raised this must not be used again."""
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    return code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN)


_NEEDED: Final = (3, 35, 0)  # RETURNING, UPDATE … FROM
# FULL: a commit is on the disk when it returns. Checkpoints at 4,000 pages instead of 1,000: the row of an event is
# written three times within moments, and then reaches the database file once. The log is cut back after a burst.
_PRAGMAS: Final = (
    "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -16000",
    "PRAGMA temp_store = MEMORY",
)


class SqliteStore:
    """One SQLite file, given by a URL."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        if ":memory:" in url:
            raise InvalidOption(f"{url!r}: SQLite in memory would be neither durable nor shared; use memory: for tests")
        if options.query:
            raise InvalidOption(f"{url!r}: sqlite takes no options; remove {min(options.query)!r}")
        if sqlite3.sqlite_version_info < _NEEDED:
            raise BusError(
                f"SQLite {sqlite3.sqlite_version} is too old for the bus: this Python needs one linked with "
                f"{'.'.join(map(str, _NEEDED))} or newer"
            )
        self.path = str(Path(url_path(url)).absolute())
        self._same: set[str | None] = set()  # paths by which connections of callers have opened it
        self.clock = options.clock or time.time
        self.patience = options.connect_timeout  # seconds to wait for other connections

    @property
    def exists(self) -> bool:
        """Whether there is a file. (A crash during ``setup`` leaves an empty one.)"""
        return Path(self.path).exists()

    def connect(self, *, readonly: bool = False) -> sqlite3.Connection:
        """Open a connection to a store that is set up; the caller closes it.

        It may be used in any one thread at a time. Transactions are begun and ended by name, never by the driver.
        """
        if not self.exists:
            raise not_set_up(self.path, "does not exist yet")
        connection = self.connect_raw()
        try:
            self._require_current(schema_version(connection))
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            if readonly:
                connection.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            connection.close()
            raise translate(error, self.path) from error
        except BusError:
            connection.close()
            raise
        return connection

    def connect_raw(self, *, create: bool = False) -> sqlite3.Connection:
        """Open a connection without checking or changing anything."""
        mode = "rwc" if create else "rw"  # rw: a file that is gone must not be recreated empty
        try:
            connection = sqlite3.connect(
                f"file:{quote(self.path)}?mode={mode}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=self.patience,
            )
        except sqlite3.Error as error:
            raise translate(error, self.path) from error
        connection.text_factory = _text
        return connection

    def check(self) -> None:
        """Raise if this store cannot be used; one that is not set up yet passes."""
        if not self.exists:
            return
        connection = self.connect_raw()
        try:
            self.refuse_newer(schema_version(connection))
        except sqlite3.Error as error:
            raise translate(error, self.path) from error
        finally:
            connection.close()

    def _require_current(self, version: int) -> None:
        self.refuse_newer(version)
        newest = migrations("sqlite")[-1][0]
        if not version:
            raise not_set_up(self.path, "has no tables of the bus yet")
        if version < newest:
            raise not_set_up(self.path, f"is at version {version} of the schema, this code needs {newest}")

    def require_same(self, files: list[str | None]) -> None:
        """Raise :class:`TransactionMismatch` unless a caller's connection has this file open."""
        if not self._same.isdisjoint(files):  # checked by every publish with tx=, and paths are slow to resolve
            return
        own = Path(self.path).resolve()
        self._same.update(file for file in files if file and Path(file).resolve() == own)
        if self._same.isdisjoint(files):
            shown = ", ".join(file for file in files if file) or "memory"
            raise TransactionMismatch(
                f"tx= is a transaction on {shown}, but this bus is on {self.path}: "
                "an event can only join a transaction of the database it is stored in"
            )

    def refuse_newer(self, version: int) -> None:
        """Raise :class:`SchemaTooNew` if this code does not know ``version``."""
        newest = migrations("sqlite")[-1][0]
        if version > newest:
            raise SchemaTooNew(
                f"{self.path} was migrated to version {version}, this code knows up to {newest}: "
                "update kingdom here; nothing was changed"
            )


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the number of the last migration applied, 0 if there is none."""
    known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'kingdom_migration'"
    if connection.execute(known).fetchone() is None:
        return 0
    return int(connection.execute("SELECT coalesce(max(number), 0) FROM kingdom_migration").fetchone()[0])


def _text(value: bytes) -> str:
    """Decode stored text; a damaged row must not prevent reading the rows beside it."""
    return value.decode("utf-8", "replace")


# ── migrations: numbered, forward only, in one transaction ──────────────────────────────────────────────────────


def migrate(store: SqliteStore) -> list[str]:
    """Create the file or apply the missing migrations; return their names."""
    try:
        Path(store.path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TransportUnavailable(f"{store.path}: its directory cannot be created: {error.strerror}") from error
    connection = store.connect_raw(create=True)
    try:
        store.refuse_newer(schema_version(connection))  # before anything is changed
        _use_wal(connection, store.patience)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")  # two processes that migrate at once take turns
        applied = _apply(connection, store)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise translate(error, store.path) from error
    finally:
        connection.close()  # rolls back what was not committed
    return applied


def _apply(connection: sqlite3.Connection, store: SqliteStore) -> list[str]:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS kingdom_migration "
        "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at REAL NOT NULL)"
    )
    version = schema_version(connection)
    store.refuse_newer(version)
    names = []
    for number, name, script in migrations("sqlite"):
        if number > version:
            for statement in statements(script):
                connection.execute(statement)
            connection.execute("INSERT INTO kingdom_migration VALUES (?, ?, ?)", (number, name, store.clock()))
            names.append(name)
    return names


def statements(script: str) -> Iterator[str]:
    """Split a script into statements: ``executescript`` of the driver would commit in between."""
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            yield text
            text = ""
    assert not text.strip(), f"the last statement is not complete: {text}"


def _use_wal(connection: sqlite3.Connection, patience: float) -> None:
    """Switch to WAL. SQLite does not wait for other connections here, so we do."""
    deadline = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


T = TypeVar("T")


class SqliteReader:
    """A read-only connection in a thread of its own, so that reads never wait for writes. Both start on first use."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="kingdom-sqlite-reader")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``query`` on one snapshot of the database."""
        if self._closed:
            raise BusError(f"the bus at {self._store.path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._run, query)

    async def close(self) -> None:
        """Finish running queries, then disconnect. Safe to call twice."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._executor, self._disconnect)
            self._executor.shutdown(wait=False)

    def _run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._store.connect(readonly=True)
            self._connection.execute("BEGIN")
            try:
                return query(self._connection)
            finally:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if must_reconnect(error):
                self._disconnect()
            raise translate(error, self._store.path) from error

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
