"""Durable writes, temporary files, and errors of the operating system."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import platform
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus.errors import BusError, StorageFull, TransportUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# Temporary files: their names say who writes them, so that those of dead writers can be told and removed.


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


# Making writes durable.


# On ext4, one syncfs makes a batch of 100 durable at 1.5 times the rate of parallel fsyncs, and at 5 times that of
# serial ones; but it also waits for what other programs wrote, so that small batches do without it.
SYNCFS_FROM: Final = 32
_PARALLEL: Final = 8  # the journal commits what is synced at the same time together


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path: str, data: bytes, *, replace: bool = True) -> None:
    """Write a whole file durably, so that a reader sees the old one or the new one; or leave an old one alone."""
    folder, name = os.path.split(path)
    temporary = f"{folder}/{temporary_prefix()}{name.lstrip('.')}"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        if replace:
            os.rename(temporary, path)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    sync_directory(folder)


def write_all(fd: int, data: bytes) -> None:
    """Write everything, or raise the error that a short write announces."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


class Syncer:
    """Writes batches of new files and makes their contents durable, the fastest way there is for their number."""

    def __init__(self, *, whole_filesystem: bool = True) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._syncfs = _find_syncfs() if whole_filesystem else None

    def write(self, folder: str, files: Sequence[tuple[str, bytes]]) -> None:
        """Write new files (path, contents). They are durable on return, all but their names."""
        if self._syncfs is not None and len(files) >= SYNCFS_FROM:
            self._write_and_syncfs(self._syncfs, folder, files)
        else:
            for start in range(0, len(files), SYNCFS_FROM):
                self._write_and_fsync(files[start : start + SYNCFS_FROM])

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _write_and_syncfs(self, syncfs: Callable[[int], int], folder: str, files: Sequence[tuple[str, bytes]]) -> None:
        # Opened before the writes: syncfs reports the errors that happened since.
        home = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for path, data in files:
                fd = _create(path)
                try:
                    write_all(fd, data)
                finally:
                    os.close(fd)
            if syncfs(home) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), folder)
        finally:
            os.close(home)

    def _write_and_fsync(self, files: Sequence[tuple[str, bytes]]) -> None:
        opened: list[int] = []
        try:
            for path, data in files:
                opened.append(_create(path))
                write_all(opened[-1], data)
            if len(opened) == 1:
                os.fsync(opened[0])
            else:
                list(self._threads().map(os.fsync, opened))
        finally:
            for fd in opened:
                os.close(fd)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="kingdom-fsync")
        return self._pool


def _create(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _find_syncfs() -> Callable[[int], int] | None:
    """The syncfs of Linux, where it reports write errors (since 5.8); else None."""
    if not sys.platform.startswith("linux"):
        return None
    release = platform.release().split("-")[0].split(".")
    if tuple(int(part) if part.isdigit() else 0 for part in release[:2]) < (5, 8):
        return None
    found: Any = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    return found  # type: ignore[no-any-return]


# Errors of the operating system, as errors of the bus.


_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def bus_error(error: OSError, where: str) -> BusError:
    """What to raise instead of an ``OSError``; a worker waits and tries again after either."""
    if isinstance(error, BusError):
        return error
    place = error.filename or where
    if error.errno in _FULL:
        fault: BusError = StorageFull(f"no room left at {place}: {error.strerror}; nothing was written")
    else:
        fault = TransportUnavailable(f"{place}: {error.strerror or error}")
    fault.__cause__ = error
    return fault
