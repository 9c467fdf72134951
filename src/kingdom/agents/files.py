"""Small files that are seen whole or not at all. Standard library only: the shim uses it too."""
# ruff: noqa: PTH104, PTH108, PTH118, PTH123
# os.*, not pathlib: importing that would be a good part of the shim's start.

from __future__ import annotations

import contextlib
import json
import os
from typing import Any


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


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write a JSON document, readable by us alone."""
    write_atomic(path, encode(document))


def read_json(path: str | os.PathLike[str]) -> Any:
    """The document in a file, or None when there is none or it makes no sense."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except (OSError, ValueError):
        return None


def encode(document: Any) -> bytes:
    """The JSON form of a document, as people like to read it."""
    return json.dumps(document, indent=1).encode() + b"\n"


def _write_temporary(path: str | os.PathLike[str], data: bytes, mode: int) -> str:
    folder, name = os.path.split(os.fspath(path))
    temporary = os.path.join(folder, f".tmp-{os.getpid()}-{name}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # of a process with our number that died here
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return temporary
