"""Temporary files: their names say who writes them, so that those of dead writers can be told and removed."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
import zlib
from functools import cache
from typing import Final

PREFIX: Final = ".tmp-"
_MAX_AGE: Final = 3600.0  # seconds after which one is removed whoever wrote it: nothing takes that long
_numbers = itertools.count(1)


def temporary_prefix() -> str:
    """The beginning of a temporary name that nobody else uses: machine, process, its run and a number."""
    pid = os.getpid()
    return f"{PREFIX}{_machine()}-{pid}-{_run(pid)}-{next(_numbers)}-"


def abandoned(folder: str) -> list[str]:
    """The paths of temporary files in a folder whose writer is gone."""
    found = []
    for name in os.listdir(folder):
        if name.startswith(PREFIX):
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                if _writer_gone(name) or time.time() - os.lstat(path).st_mtime > _MAX_AGE:
                    found.append(path)
    return found


def remove_abandoned(folder: str) -> int:
    """Remove the temporary files whose writer is gone; return how many."""
    removed = 0
    for path in abandoned(folder):
        with contextlib.suppress(OSError):
            os.unlink(path)
            removed += 1
    return removed


def _writer_gone(name: str) -> bool:
    machine, pid, run, *_ = [*name.removeprefix(PREFIX).split("-"), "", ""]
    if machine != _machine() or not pid.isdigit():
        return False  # another machine's, or another container's, whose processes we cannot see
    if int(pid) == os.getpid():
        return run != _run(int(pid))
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] in b"ZX"
    except FileNotFoundError:
        pass
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return os.path.exists("/proc/self/stat")  # there is a /proc, and the process is not in it


@cache
def _run(pid: int) -> str:
    """Tells this process from an earlier one of the same number: in a container the first is always number 1."""
    return f"{zlib.crc32(os.urandom(8)):08x}"


@cache
def _machine() -> str:
    """Where process numbers mean the same: this boot of this machine, in this process namespace."""
    parts = [os.uname().nodename]
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        parts.append(file.read())
    with contextlib.suppress(OSError):
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return f"{zlib.crc32(' '.join(parts).encode()):08x}"
