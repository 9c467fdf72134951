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
from kingdom.bus.eventbus import url_path
from kingdom.bus.outbox import migrations
from kingdom.bus.transport import TransportOptions

# From SQLite's result codes to the errors of the bus, each as one line that says what to do.


_HINT: Final = "run `await bus.setup()` or `kingdom bus migrate`"
_PRIMARY: Final = 0xFF  # the low byte of a result code says what happened, the rest where
_NO_SPACE: Final = 1 << 20  # bytes


def translate(error: Exception, path: str) -> Exception:
    """A new error to raise for ``error``, which something done on the database at ``path`` raised."""
    if isinstance(error, sqlite3.Error):
        translated: Exception = _translated(error, path)
    elif isinstance(error, BusError):
        translated = type(error)(*error.args)  # several callers may hear of it, each gets one of its own
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
        return TransportUnavailable(f"{text}: another connection holds the write lock and did not let go in time")
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
    """SQLite calls it an I/O error when the index of its log, or a sync, finds no room."""
    try:
        return shutil.disk_usage(Path(path).parent).free < _NO_SPACE
    except OSError:
        return False


def not_set_up(path: str, why: str) -> NotSetUp:
    """The error for a store that is used before ``setup``."""
    return NotSetUp(f"{path} {why}: {_HINT}")


def must_reconnect(error: BaseException) -> bool:
    """Whether a connection that raised this cannot be trusted with the next transaction."""
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    return code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN)


# The database file: where it is, how it is opened, and which version of the schema lies in it.


_NEEDED: Final = (3, 35, 0)  # RETURNING, UPDATE … FROM
# FULL: a commit is on the disk when it returns. Checkpoints at 4,000 pages rather than 1,000: an event's row is written
# three times within moments, and reaches the database file once then. The log is cut back after a burst has grown it.
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
            raise InvalidOption(f"{url!r}: sqlite takes no options, and {min(options.query)!r} is none it knows")
        if sqlite3.sqlite_version_info < _NEEDED:
            raise BusError(
                f"SQLite {sqlite3.sqlite_version} is too old for the bus: this Python needs one linked with "
                f"{'.'.join(map(str, _NEEDED))} or newer"
            )
        self.path = str(Path(url_path(url)).absolute())
        self._same: set[str | None] = set()  # names under which callers' connections have it open
        self.clock = options.clock or time.time
        self.patience = options.connect_timeout  # seconds to wait for others to let go of the file

    @property
    def exists(self) -> bool:
        """Whether there is a file at all. (An empty one is what a crash during ``setup`` leaves.)"""
        return Path(self.path).exists()

    def connect(self, *, readonly: bool = False) -> sqlite3.Connection:
        """A connection to a store that is set up; the caller closes it.

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
        """A connection to whatever lies there, with nothing looked at or changed yet."""
        mode = "rwc" if create else "rw"  # rw: a file that is gone must not come back empty
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
        """Raise what speaks against using this store; a store that is not set up yet is fine."""
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
        """Raise :class:`TransactionMismatch` when a caller's connection has other files open than this one."""
        if not self._same.isdisjoint(
            files
        ):  # asked with every publish into a transaction, and paths are slow to resolve
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
        """Raise :class:`SchemaTooNew` when ``version`` is one this code does not know."""
        newest = migrations("sqlite")[-1][0]
        if version > newest:
            raise SchemaTooNew(
                f"{self.path} was migrated to version {version}, this code knows up to {newest}: "
                "update kingdom here; nothing was changed"
            )


def schema_version(connection: sqlite3.Connection) -> int:
    """The number of the last migration applied; 0 when there was none."""
    known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'kingdom_migration'"
    if connection.execute(known).fetchone() is None:
        return 0
    return int(connection.execute("SELECT coalesce(max(number), 0) FROM kingdom_migration").fetchone()[0])


def _text(value: bytes) -> str:
    """Text as it is stored; bytes that are no text (a damaged row) must not stop those who read other rows with it."""
    return value.decode("utf-8", "replace")


# Numbered migrations, forward only, in one transaction.


def migrate(store: SqliteStore) -> list[str]:
    """Make the file, or apply what it is missing; return the names of what was applied."""
    try:
        Path(store.path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TransportUnavailable(f"{store.path}: its directory cannot be made: {error.strerror}") from error
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
    """The statements of a script, one by one: the driver's ``executescript`` would commit in between."""
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


# The connection that only reads, so that looking never waits for writing.


T = TypeVar("T")


class SqliteReader:
    """A read connection in a thread of its own, both made when they are first needed."""

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
        """Finish what is asked already, then disconnect. Safe to call twice."""
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
