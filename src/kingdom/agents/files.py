"""Small files that are seen whole or not at all. Standard library only: the shim uses it too."""
# ruff: noqa: PTH104, PTH108, PTH118, PTH123
# os.*, not pathlib: importing that would be a good part of the shim's start.

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

_encode = json.JSONEncoder(separators=(",\n ", ": ")).encode


def write_atomic(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o600) -> None:
    """Write a whole file under a temporary name beside it, then rename it into place."""
    temporary = _write_temporary(path, data, mode)
    try:
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write_once(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o600) -> bool:
    """Write a whole file unless there is one of that name: of two who try, exactly one gets True."""
    temporary = _write_temporary(path, data, mode)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    return True


def write_json(path: str | os.PathLike[str], document: dict[str, Any]) -> None:
    """Write a JSON document, readable by us alone."""
    write_atomic(path, encode(document))


def read_json(path: str | os.PathLike[str]) -> Any:
    """The document in a file, or None when there is none or it makes no sense."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except (OSError, ValueError):
        return None


def encode(document: dict[str, Any]) -> bytes:
    """The JSON form of a document, a line for each of its fields. Unlike with ``indent`` it is made in C, and fast."""
    return f"{{\n {_encode(document)[1:-1]}\n}}\n".encode()


def _write_temporary(path: str | os.PathLike[str], data: bytes, mode: int) -> str:
    folder, name = os.path.split(os.fspath(path))
    temporary = os.path.join(folder, f".tmp-{os.getpid()}-{name}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(temporary, flags, mode)
    except FileExistsError:
        os.unlink(temporary)  # of a process with our number that died here
        descriptor = os.open(temporary, flags, mode)
    try:
        written = os.write(descriptor, data)
        while written < len(data):
            written += os.write(descriptor, data[written:])
    finally:
        os.close(descriptor)
    return temporary
