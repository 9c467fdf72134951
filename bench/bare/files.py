"""The bare loops on files: what a durable write and a claim by rename cost on this file system."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from time import perf_counter
from uuid import uuid4

from bench.harness import Figures
from bench.payload import chunks, encode, payloads


def publish(folder: Path, count: int, *, size: int) -> Figures:
    """Write, fsync and rename each file, then fsync the directory once for every ``size`` files."""
    pending = _queue(folder)
    documents = payloads(count)
    directory = os.open(pending, os.O_RDONLY)
    started = perf_counter()
    for some in chunks(documents, size):
        for document in some:
            _write(pending, encode(document))
        os.fsync(directory)
    seconds = perf_counter() - started
    os.close(directory)
    return {"rate": count / seconds, "put": count / seconds}


def drain(folder: Path, count: int) -> Figures:
    """Claim by rename, read, finish by rename; nothing is fsynced, since a lost move only means one more delivery."""
    pending = _queue(folder)
    for document in payloads(count):
        _write(pending, encode(document), durable=False)
    processing, done = pending.parent / "processing", pending.parent / "done"
    processing.mkdir()
    done.mkdir()
    started = perf_counter()
    for name in os.listdir(pending):
        held = f"{processing}/{name}"
        os.rename(f"{pending}/{name}", held)
        with open(held, "rb") as file:
            json.loads(file.read())
        os.rename(held, f"{done}/{name}")
    seconds = perf_counter() - started
    return {"rate": count / seconds, "get": count / seconds}


def _queue(folder: Path) -> Path:
    pending = Path(tempfile.mkdtemp(prefix="bare-", dir=folder)) / "pending"
    pending.mkdir()
    return pending


def _write(pending: Path, text: str, *, durable: bool = True) -> None:
    name = uuid4().hex
    temporary = f"{pending}/.tmp-{name}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(handle, text.encode())
    if durable:
        os.fsync(handle)
    os.close(handle)
    os.rename(temporary, f"{pending}/{name}.json")
