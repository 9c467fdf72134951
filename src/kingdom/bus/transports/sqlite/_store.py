"""The database file: where it is, how it is opened, and which version of the schema lies in it."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Final
from urllib.parse import quote

from kingdom.bus.connecting import url_path
from kingdom.bus.errors import BusError, InvalidOption, SchemaTooNew, TransactionMismatch
from kingdom.bus.outbox import migrations
from kingdom.bus.transport import TransportOptions
from kingdom.bus.transports.sqlite._errors import not_set_up, translate

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


class Store:
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
