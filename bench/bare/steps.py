"""The least a durable step costs: one transaction that changes the state of a task and writes an event down."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from time import perf_counter
from uuid import uuid4

from bench import pg
from bench.harness import Figures

_TABLES = (
    "CREATE TABLE bare_task (id text PRIMARY KEY, body text NOT NULL)",
    "CREATE TABLE bare_event (position integer PRIMARY KEY, type text NOT NULL, payload text NOT NULL)",
    "INSERT INTO bare_task VALUES ('task-1', '')",
)
_BODY = '{"status": "COMPLETED", "response": "It is done."}'
_WARMING = 20


def sqlite(folder: Path, count: int) -> Figures:
    """On sqlite3: WAL, ``synchronous=FULL``."""
    connection = sqlite3.connect(folder / f"bare-{uuid4().hex}.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    for statement in _TABLES:
        connection.execute(statement)
    started = 0.0
    for number in range(_WARMING + count):
        if number == _WARMING:
            started = perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE bare_task SET body = ? WHERE id = ?", (_BODY, "task-1"))
        connection.execute("INSERT INTO bare_event VALUES (?, ?, ?)", (number, "TaskCompleted", _BODY))
        connection.execute("COMMIT")
    seconds = perf_counter() - started
    connection.close()
    return {"step": 1e3 * seconds / count}


async def postgres(server: str, count: int) -> Figures:
    """On asyncpg, prepared, one connection."""
    async with pg.fresh_schema(server) as schema:
        connection = await pg.connect(server, schema)
        for statement in _TABLES:
            await connection.execute(statement)
        change = await connection.prepare("UPDATE bare_task SET body = $1 WHERE id = $2")
        keep = await connection.prepare("INSERT INTO bare_event VALUES ($1, $2, $3)")
        started = 0.0
        for number in range(_WARMING + count):
            if number == _WARMING:
                started = perf_counter()
            async with connection.transaction():
                await change.fetch(_BODY, "task-1")
                await keep.fetch(number, "TaskCompleted", _BODY)
        seconds = perf_counter() - started
        await connection.close()
    return {"step": 1e3 * seconds / count}
