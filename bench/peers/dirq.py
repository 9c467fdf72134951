"""dirq: a directory queue that never calls fsync."""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter

from dirq.QueueSimple import QueueSimple

from bench.harness import Figures
from bench.payload import encode, payloads


def files(folder: Path, count: int) -> Figures:
    """Add, then lock, read and remove, one by one."""
    queue = QueueSimple(tempfile.mkdtemp(prefix="dirq-", dir=folder))
    documents = payloads(count)
    started = perf_counter()
    for document in documents:
        queue.add(encode(document))
    between = perf_counter()
    handled = 0
    name = queue.first()
    while name:
        if queue.lock(name):
            queue.get(name)
            queue.remove(name)
            handled += 1
        name = queue.next()
    ended = perf_counter()
    assert handled == count, f"handled {handled} of {count}"
    return {"put": count / (between - started), "get": count / (ended - between)}
