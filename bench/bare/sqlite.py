"""The bare loops on sqlite3: WAL, ``synchronous=FULL``, the seed's columns, one connection, no library in between."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from pathlib import Path
from time import perf_counter, time
from typing import Any
from uuid import uuid4

from bench.harness import Figures
from bench.payload import STREAM, TYPE, chunks, encode, payloads

TABLE = """
CREATE TABLE bare_event (
    id INTEGER PRIMARY KEY,
    event_id TEXT NOT NULL UNIQUE,
    stream TEXT NOT NULL,
    event_type TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'PENDING',
    attempt_count INTEGER NOT NULL DEFAULT 0,
    next_retry_at REAL NOT NULL,
    locked_by TEXT,
    locked_until REAL,
    processed_at REAL,
    payload_json TEXT NOT NULL
);
CREATE INDEX bare_event_pending ON bare_event (stream, next_retry_at, id) WHERE status = 'PENDING';
"""
INSERT = "INSERT INTO bare_event (event_id, stream, event_type, next_retry_at, payload_json) VALUES (?, ?, ?, ?, ?)"
CLAIM = """
UPDATE bare_event SET status = 'PROCESSING', locked_by = ?, locked_until = ?, attempt_count = attempt_count + 1
WHERE id IN (SELECT id FROM bare_event WHERE stream = ? AND status = 'PENDING' AND next_retry_at <= ?
             ORDER BY next_retry_at, id LIMIT ?)
RETURNING id, event_id, event_type, attempt_count, payload_json
"""
SETTLE = """
UPDATE bare_event SET status = 'DONE', processed_at = ?, locked_until = NULL
WHERE id IN (SELECT value FROM json_each(?)) AND locked_by = 'bare'
"""


def drain(folder: Path, count: int, *, batch: int = 500) -> Figures:
    """Claim ``batch``, settle ``batch``, one commit for each, until nothing is left."""
    connection = _database(folder)
    _insert(connection, payloads(count), 1000)
    handled = 0
    started = perf_counter()
    while rows := _claim(connection, batch):
        handled += len(rows)
        now = time()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(SETTLE, (now, json.dumps([row[0] for row in rows])))
        connection.execute("COMMIT")
    seconds = perf_counter() - started
    assert handled == count, f"handled {handled} of {count}"
    connection.close()
    return {"rate": count / seconds, "get": count / seconds}


def publish(folder: Path, count: int, *, size: int) -> Figures:
    """Insert ``size`` events for each commit."""
    connection = _database(folder)
    documents = payloads(count)
    started = perf_counter()
    _insert(connection, documents, size)
    seconds = perf_counter() - started
    connection.close()
    return {"rate": count / seconds, "put": count / seconds}


def _database(folder: Path) -> sqlite3.Connection:
    place = Path(tempfile.mkdtemp(prefix="bare-", dir=folder))
    connection = sqlite3.connect(place / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(TABLE)
    return connection


def _insert(connection: sqlite3.Connection, documents: list[dict[str, Any]], size: int) -> None:
    for some in chunks(documents, size):
        now = time()
        connection.execute("BEGIN IMMEDIATE")
        rows = [(str(uuid4()), STREAM, TYPE, now, encode(document)) for document in some]
        connection.executemany(INSERT, rows)
        connection.execute("COMMIT")


def _claim(connection: sqlite3.Connection, batch: int) -> list[Any]:
    now = time()
    connection.execute("BEGIN IMMEDIATE")
    rows = connection.execute(CLAIM, ("bare", now + 30, STREAM, now, batch)).fetchall()
    connection.execute("COMMIT")
    return rows
