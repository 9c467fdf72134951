"""Locks between processes, held on files with ``flock``."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Any, Final

# The lock of a log file: whoever appends holds it for the time of one line.
#
# It is ``flock``, so the kernel lets go of it when its holder dies. A holder that is stopped (SIGSTOP, a debugger) keeps
# it, so nobody waits for ever: after its patience a writer goes on without the lock. What that costs is said at each
# caller.


_FIRST_PAUSE: Final = 20e-6
_LONGEST_PAUSE: Final = 1e-3


def lock(fd: int, patience: float) -> bool:
    """Take the lock, waiting ``patience`` seconds at most. False: somebody else has it, or there are no locks here."""
    if try_lock(fd):
        return True
    give_up, pause = time.monotonic() + patience, _FIRST_PAUSE
    while time.monotonic() < give_up:
        time.sleep(pause)
        if try_lock(fd):
            return True
        pause = min(2 * pause, _LONGEST_PAUSE)
    return False


def try_lock(fd: int) -> bool:
    """Take the lock if it is free."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by another, or a file system without locks
        return False
    return True


def unlock(fd: int) -> None:
    """Let go of it."""
    fcntl.flock(fd, fcntl.LOCK_UN)


# Locks that end with the process that has them.


_ENGINE: Final = 0x6B776602  # PostgreSQL's advisory lock for the engine


class FileLock:
    """A lock on a file beside the database."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle

    @classmethod
    def take(cls, path: Path) -> FileLock | None:
        """The lock, or None when another has it."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return cls(handle)

    async def release(self) -> None:
        """Let go."""
        self.drop()

    def drop(self) -> None:
        """Let go at once."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


class AdvisoryLock:
    """A lock of a PostgreSQL connection of its own: it is gone with the connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    async def take(cls, connection: Any) -> AdvisoryLock | None:
        """The lock, or None when another has it; the connection is closed then."""
        if await connection.fetchval("SELECT pg_try_advisory_lock($1, hashtext(current_schema()))", _ENGINE):
            return cls(connection)
        await connection.close()
        return None

    async def release(self) -> None:
        """Let go."""
        await self._connection.close()

    def drop(self) -> None:
        """Let go at once."""
        self._connection.terminate()
