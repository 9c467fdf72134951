"""Locks between processes, held on open files with ``flock``. The kernel releases a lock when its holder dies.

A holder that is stopped (SIGSTOP, a debugger) keeps its lock, so no caller here waits without a limit unless it says
so. ``flock`` belongs to the open file: a child process that inherits the descriptor holds the same lock.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kingdom.base.backoff import backoff

if TYPE_CHECKING:
    from collections.abc import Iterator

Pauses = tuple[float, float]  # seconds between two attempts: the first pause, and the longest

QUICK: Final[Pauses] = (20e-6, 1e-3)  # for locks that are held for microseconds
_FACTOR: Final = 1.5


def try_lock(descriptor: int, *, required: bool = True) -> bool:
    """Take the lock if it is free.

    A file system without locks raises ``OSError``; without ``required`` it is treated as if another process held it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        if required:
            raise
        return False
    return True


def lock(descriptor: int, patience: float, pauses: Pauses = QUICK, *, required: bool = True) -> bool:
    """Take the lock, trying for ``patience`` seconds. Return False when another process still holds it."""
    # Not a blocking flock: that cannot be given up when the holder is stopped and never continues.
    if try_lock(descriptor, required=required):
        return True
    deadline, attempt = time.monotonic() + patience, 0
    while time.monotonic() < deadline:
        time.sleep(backoff(attempt, *pauses, factor=_FACTOR))
        attempt += 1
        if try_lock(descriptor, required=required):
            return True
    return False


async def lock_async(descriptor: int, patience: float, pauses: Pauses = QUICK) -> bool:
    """Do the same as :func:`lock` without blocking the event loop."""
    deadline, attempt = time.monotonic() + patience, 0
    while not try_lock(descriptor):
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(backoff(attempt, *pauses, factor=_FACTOR))
        attempt += 1
    return True


def unlock(descriptor: int) -> None:
    """Release the lock."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_current(descriptor: int, path: str | os.PathLike[str]) -> bool:
    """Tell whether ``path`` still names the open file. If not, others now lock another file of that name."""
    try:
        return os.stat(path).st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


@contextmanager
def exclusive(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock file ``path``, waiting for it without a limit."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class FileLock:
    """A lock file that is held until it is released, or until the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: str | os.PathLike[str]) -> FileLock | None:
        """Take the lock; None when another process holds it."""
        descriptor = _open(path)
        try:
            if try_lock(descriptor):
                return cls(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    @staticmethod
    def is_held(path: str | os.PathLike[str]) -> bool:
        """Tell whether a process holds the lock. Processes that ask at the same time do not see each other."""
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def release(self) -> None:
        """Release the lock. Safe to call twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _open(path: str | os.PathLike[str]) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
