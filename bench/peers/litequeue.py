"""litequeue: SQLite in WAL with ``synchronous=NORMAL``, so the last commits may be lost when the power fails."""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter

import litequeue

from bench.harness import Figures
from bench.payload import encode, payloads


def sqlite(folder: Path, count: int) -> Figures:
    """Put, then pop and mark as done, one by one."""
    place = tempfile.mkdtemp(prefix="litequeue-", dir=folder)
    queue = litequeue.LiteQueue(f"{place}/queue.db")
    documents = payloads(count)
    started = perf_counter()
    for document in documents:
        queue.put(encode(document))
    between = perf_counter()
    for _ in range(count):
        queue.done(queue.pop().message_id)
    ended = perf_counter()
    queue.close()
    return {"put": count / (between - started), "get": count / (ended - between)}
