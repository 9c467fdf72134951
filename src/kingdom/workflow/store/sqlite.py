"""The store in an SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kingdom.base.locks import FileLock
from kingdom.bus.urls import url_path
from kingdom.workflow.errors import StoreError
from kingdom.workflow.store.database import DatabaseStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kingdom.workflow.store.repositories import DatabaseSession, Row

_BUSY_SECONDS: Final = 15.0  # to wait for other writers
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.0002, 0.01  # between two tries


class EngineFileLock:
    """The lock of the engine: a lock file beside the database."""

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    async def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def drop(self) -> None:
        """Release the lock at once."""
        self._lock.release()


class SqliteSession:
    """Runs statements in the event loop's thread: each takes microseconds, and another thread would cost more."""

    row_lock = ""  # there is only one writer
    nests_inserts = False
    first_line = "substr({text}, 1, instr({text} || char(10), char(10)) - 1)"
    other_lines = "substr({text}, instr({text} || char(10), char(10)) + 1)"
    joined_ids = "group_concat(id)"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        """Run a statement and return its rows."""
        return self.connection.execute(sql, values).fetchall()


class SqliteWorkflowStore(DatabaseStore):
    """One connection, one transaction at a time: SQLite has one writer anyway."""

    dialect: ClassVar[str] = "sqlite"

    async def _connect(self) -> None:
        self._connection = _connect(Path(url_path(self.url)))
        self._turn = asyncio.Lock()

    async def _disconnect(self) -> None:
        self._connection.close()

    @asynccontextmanager
    async def session(self, *, readonly: bool = False) -> AsyncIterator[DatabaseSession]:
        """Open a transaction: commit at the end of the block, roll back if it raises."""
        async with self._turn:
            try:
                await self._begin("BEGIN" if readonly else "BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                raise StoreError(f"the store at {self.shown_url} cannot be used: {error}") from error
            try:
                yield SqliteSession(self._connection)
            except BaseException as error:
                if self._connection.in_transaction:  # SQLite itself ends it when the disk is full
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise StoreError(f"the store at {self.shown_url} cannot be used: {error}") from error
                raise
            try:
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise StoreError(f"the store at {self.shown_url} could not commit: {error}") from error

    async def _begin(self, statement: str) -> None:
        """Begin a transaction, retrying while the file is locked. SQLite's own retries would block the event loop."""
        deadline = time.monotonic() + _BUSY_SECONDS
        pause = _MIN_PAUSE_SECONDS
        while True:
            try:
                self._connection.execute(statement)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(pause)
                pause = min(_MAX_PAUSE_SECONDS, 1.5 * pause)
            else:
                return

    def share(self, home: Path, seconds: float) -> None:
        """Do nothing: machines do not share a file, so there is one engine."""

    async def lock_engine(self) -> EngineFileLock | None:
        """Take the engine lock, a lock file beside the database; return None if another process has it."""
        lock = FileLock.take(self._engine_lock())
        return None if lock is None else EngineFileLock(lock)

    async def engine_running(self) -> bool:
        """Return whether a process has the engine lock."""
        return FileLock.is_held(self._engine_lock())

    async def holder(self, workflow_id: str) -> None:
        """Return None: engines do not share a file."""

    def _engine_lock(self) -> Path:
        path = Path(url_path(self.url))
        return path.with_name(f"{path.name}.engine-lock")

    async def _has_tables(self, session: DatabaseSession) -> bool:
        return bool(await session.fetch("SELECT 1 FROM sqlite_master WHERE name = 'wf_counter'"))


def _connect(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, cached_statements=256)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")  # as on the bus: the same rows change often
        connection.execute("PRAGMA cache_size = -16000")
        connection.execute("PRAGMA busy_timeout = 0")  # _begin waits instead
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path} cannot be opened as a store of workflows: {error}") from None
    return connection
