"""Writing state files: a reader sees the old one or the new one, and each is written by its owner only."""
# ruff: noqa: PTH104, PTH108
# os.*, not pathlib: a general writes a dozen of them for each task.

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

_SEPARATORS: Final = (",\n  ", ": ")
_readable: Final = json.JSONEncoder(ensure_ascii=False, separators=_SEPARATORS).encode
_ascii: Final = json.JSONEncoder(separators=_SEPARATORS).encode


def write_atomic(path: Path, data: bytes | str, *, durable: bool = True) -> None:
    """Write a whole file under a temporary name beside it, then rename it into place.

    With ``durable`` a power cut after the return finds the new file; without it, the old or the new one.
    """
    content = data.encode() if isinstance(data, str) else data
    folder, name = os.path.split(path)
    temporary = f"{folder}/.tmp-{os.getpid()}-{name}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            written = os.write(descriptor, content)
            while written < len(content):
                written += os.write(descriptor, content[written:])
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        sync_directory(path.parent)


def write_json(path: Path, document: Mapping[str, Any], *, durable: bool = True) -> None:
    """Write a JSON document that people can read."""
    write_atomic(path, encode_json(document), durable=durable)


def encode_json(document: Mapping[str, Any]) -> bytes:
    """The JSON form of a document, a line for each of its fields. Unlike with ``indent`` it is made in C, and fast."""
    try:
        return f"{{\n  {_readable(document)[1:-1]}\n}}\n".encode()
    except UnicodeEncodeError:  # half a surrogate pair: JSON can say it, UTF-8 cannot
        return f"{{\n  {_ascii(document)[1:-1]}\n}}\n".encode()


def read_json(path: Path) -> Any | None:
    """The document in a file, or None when there is none or it makes no sense."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - most often there is none, and that is found out faster
            return json.loads(file.read())
    except (OSError, ValueError):
        return None


def read_cached(path: Path, errors: str = "strict") -> str:
    """The text of a file that is read often and seldom changes. Raises what reading it raises."""
    found = path.stat()
    return _read_text(path, errors, (found.st_ino, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=16)
def _read_text(path: Path, errors: str, _version: tuple[int, int, int]) -> str:
    return path.read_text("utf-8", errors)


def sync_directory(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
