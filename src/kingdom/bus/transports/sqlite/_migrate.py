"""Numbered migrations, forward only, in one transaction."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from kingdom.bus.errors import TransportUnavailable
from kingdom.bus.outbox import migrations
from kingdom.bus.transports.sqlite._errors import translate
from kingdom.bus.transports.sqlite._store import Store, schema_version


def migrate(store: Store) -> list[str]:
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


def _apply(connection: sqlite3.Connection, store: Store) -> list[str]:
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
