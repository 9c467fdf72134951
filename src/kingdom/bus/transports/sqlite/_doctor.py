"""The checks of ``doctor`` for a bus in SQLite."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Final

from kingdom.base.filesystems import check_filesystem
from kingdom.bus.delivery import Check
from kingdom.bus.errors import BusError
from kingdom.bus.outbox import migrations
from kingdom.bus.transports.sqlite._store import SqliteStore, schema_version, translate

_MIB: Final = 1 << 20
_LITTLE_SPACE: Final = 1024 * _MIB
_NO_SPACE: Final = 64 * _MIB
_LARGE_LOG: Final = 256 * _MIB  # four times journal_size_limit
_LARGE_FILE: Final = 2048 * _MIB  # checking it would take minutes


def examine(store: SqliteStore) -> list[Check]:
    """Run every check, in the order an operator would look."""
    if not store.exists:
        return [Check("file", "error", f"{store.path} does not exist", "kingdom bus migrate")]
    checks = [Check("file system", *check_filesystem(store.path)), _free_space(store)]
    try:
        connection = store.connect_raw()
    except BusError as error:
        return [*checks, Check("file", "error", str(error))]
    try:
        checks.append(_schema(connection))
        checks.append(_journal(connection))
        checks.append(_log_size(store))
        checks.append(_integrity(connection, store))
    except sqlite3.Error as error:
        checks.append(Check("file", "error", str(translate(error, store.path))))
    finally:
        connection.close()
    return checks


def _schema(connection: sqlite3.Connection) -> Check:
    version = schema_version(connection)
    newest, name, _ = migrations("sqlite")[-1]
    if not version:
        return Check("schema", "error", "the tables of the bus are missing", "kingdom bus migrate")
    if version < newest:
        return Check("schema", "error", f"at version {version}, this code has {newest}", "kingdom bus migrate")
    if version > newest:
        return Check("schema", "error", f"at version {version}, this code knows {newest} only", "update kingdom here")
    return Check("schema", "ok", f"version {version} ({name}), SQLite {sqlite3.sqlite_version}")


def _journal(connection: sqlite3.Connection) -> Check:
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode != "wal":
        return Check(
            "journal",
            "error",
            f"journal_mode is {mode}: readers and writers wait for each other, and workers are not woken",
            "kingdom bus migrate (with nothing else connected)",
        )
    return Check("journal", "ok", "WAL, and synchronous=FULL on every connection of the bus")


def _log_size(store: SqliteStore) -> Check:
    try:
        size = Path(f"{store.path}-wal").stat().st_size
    except FileNotFoundError:
        size = 0
    message = f"{size / _MIB:.1f} MiB"
    if size > _LARGE_LOG:
        hint = "look for a connection that keeps a transaction open; then PRAGMA wal_checkpoint(TRUNCATE)"
        return Check("write-ahead log", "warning", f"{message}: it cannot be written back to the database", hint)
    return Check("write-ahead log", "ok", message)


def _integrity(connection: sqlite3.Connection, store: SqliteStore) -> Check:
    size = Path(store.path).stat().st_size
    if size > _LARGE_FILE:
        hint = "when there is time: sqlite3 FILE 'PRAGMA quick_check'"
        return Check("integrity", "ok", f"not checked: reading {size / _MIB:,.0f} MiB takes long", hint)
    found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    if found != ["ok"]:
        hint = "stop everything that uses it, copy the file, then restore a backup or try `sqlite3 FILE .recover`"
        return Check("integrity", "error", "; ".join(" ".join(line.split()) for line in found), hint)
    return Check("integrity", "ok", f"quick_check passed ({size / _MIB:,.1f} MiB)")


def _free_space(store: SqliteStore) -> Check:
    free = shutil.disk_usage(Path(store.path).parent).free
    message = f"{free / _MIB:,.0f} MiB free where the file lies"
    if free < _NO_SPACE:
        return Check("free space", "error", message, "make room now: publishing will fail")
    if free < _LITTLE_SPACE:
        return Check("free space", "warning", message, "make room, or purge: kingdom bus purge")
    return Check("free space", "ok", message)
