"""From SQLite's result codes to the errors of the bus, each as one line that says what to do."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Final

from kingdom.bus.errors import BusError, NotSetUp, StorageFull, TransportUnavailable

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
