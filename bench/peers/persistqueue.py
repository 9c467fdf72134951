"""persist-queue: SQLiteAckQueue (WAL, SQLite's default FULL) and FileQueue (no fsync for each put)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import persistqueue
import persistqueue.serializers.json

from bench.harness import Figures
from bench.payload import payloads

_JSON: Any = persistqueue.serializers.json


def sqlite(folder: Path, count: int) -> Figures:
    """Put, then get and ack, one by one."""
    place = tempfile.mkdtemp(prefix="persist-queue-", dir=folder)
    queue = persistqueue.SQLiteAckQueue(place, auto_commit=True, serializer=_JSON)
    documents = payloads(count)
    started = perf_counter()
    for document in documents:
        queue.put(document)
    between = perf_counter()
    for _ in range(count):
        queue.ack(queue.get(block=False))
    ended = perf_counter()
    queue.close()
    return {"put": count / (between - started), "get": count / (ended - between)}


def files(folder: Path, count: int) -> Figures:
    """Put, then get and mark as done, one by one; ``autosave`` keeps the position after each get."""
    place = tempfile.mkdtemp(prefix="persist-queue-", dir=folder)
    queue = persistqueue.Queue(place, autosave=True, serializer=_JSON, tempdir=place)
    documents = payloads(count)
    started = perf_counter()
    for document in documents:
        queue.put(document)
    between = perf_counter()
    for _ in range(count):
        queue.get(block=False)
        queue.task_done()
    ended = perf_counter()
    return {"put": count / (between - started), "get": count / (ended - between)}
