"""DBOS Transact: one workflow of steps that do nothing, in plain functions, which are its faster kind."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from dbos import DBOS

from bench import pg
from bench.harness import Figures

if TYPE_CHECKING:
    from dbos import DBOSConfig

_WARMING = 20


def sqlite(folder: Path, count: int) -> Figures:
    """On SQLite, with WAL switched on by hand: by itself it uses the rollback journal, at half the speed."""
    path = folder / f"dbos-{uuid4().hex}.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    figures = _steps(count, system_database_url=f"sqlite:///{path}")
    connection = sqlite3.connect(path)
    ((mode,),) = connection.execute("PRAGMA journal_mode").fetchall()
    connection.close()
    assert mode == "wal", f"the journal is {mode}"
    return figures


async def postgres(server: str, count: int) -> Figures:
    """On PostgreSQL, in a schema of its own."""
    async with pg.fresh_schema(server) as schema:
        return _steps(count, system_database_url=server, dbos_system_schema=schema)


def _steps(count: int, **settings: Any) -> Figures:
    began: list[float] = []
    DBOS(config=cast("DBOSConfig", {"name": "bench", "log_level": "ERROR", **settings}))

    @DBOS.step()
    def step() -> str:
        began.append(perf_counter())
        return "It is done."

    @DBOS.workflow()
    def workflow(steps: int) -> None:
        for _ in range(steps):
            step()

    DBOS.launch()
    try:
        workflow(_WARMING)
        began.clear()
        workflow(count)
    finally:
        DBOS.destroy()
    assert len(began) == count
    return {"step": 1e3 * (began[-1] - began[0]) / (count - 1)}
