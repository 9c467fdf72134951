"""Writing state files: a reader sees the old one or the new one, and each is written by its owner only."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any


def write_atomic(path: Path, data: bytes | str, *, durable: bool = True) -> None:
    """Write a whole file under a temporary name beside it, then rename it into place.

    With ``durable`` a power cut after the return finds the new file; without it, the old or the new one.
    """
    content = data.encode() if isinstance(data, str) else data
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def write_json(path: Path, document: Any, *, durable: bool = True) -> None:
    """Write a JSON document that people can read."""
    try:
        content = json.dumps(document, ensure_ascii=False, indent=2).encode()
    except UnicodeEncodeError:  # half a surrogate pair: JSON can say it, UTF-8 cannot
        content = json.dumps(document, indent=2).encode()
    write_atomic(path, content + b"\n", durable=durable)


def read_json(path: Path) -> Any | None:
    """The document in a file, or None when there is none or it makes no sense."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
