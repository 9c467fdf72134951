"""Locks that end with the process that has them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any, Final

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
