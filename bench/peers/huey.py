"""huey: SqliteHuey (WAL, SQLite's default FULL) and FileHuey (no fsync). Both delete a task before it runs."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from huey import FileHuey, SqliteHuey

from bench.harness import Figures
from bench.payload import payloads

logging.getLogger("huey").setLevel(logging.ERROR)  # it would log each task


def sqlite(folder: Path, count: int) -> Figures:
    """Enqueue, then dequeue and execute, one by one."""
    place = tempfile.mkdtemp(prefix="huey-", dir=folder)
    return _measure(SqliteHuey("bench", filename=f"{place}/huey.db", results=False), count)


def files(folder: Path, count: int) -> Figures:
    """The same on files."""
    place = tempfile.mkdtemp(prefix="huey-", dir=folder)
    return _measure(FileHuey("bench", path=place, results=False), count)


def _measure(huey: Any, count: int) -> Figures:
    handled = 0

    @huey.task()
    def accepted(document: dict[str, Any]) -> None:
        nonlocal handled
        handled += 1

    documents = payloads(count)
    started = perf_counter()
    for document in documents:
        accepted(document)
    between = perf_counter()
    for _ in range(count):
        huey.execute(huey.dequeue())
    ended = perf_counter()
    assert handled == count, f"handled {handled} of {count}"
    return {"put": count / (between - started), "get": count / (ended - between)}
