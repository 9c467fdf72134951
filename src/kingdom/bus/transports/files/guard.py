"""The lock of a stream, and the note of whoever held it last.

The lock is ``flock``: the kernel releases it when its process dies. Because a process can die in the middle of its
renames, it writes ``dirty`` into the lock file before the first one, and ``clean`` with a fingerprint of the
directories after the last. Whoever takes the lock next then knows, without looking into any directory, whether there is
something to finish and whether somebody else has moved files meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kingdom.bus.errors import TransportUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NOTE_BYTES: Final = 128
_FIRST_WAIT: Final = 0.0002
LONGEST_WAIT: Final = 0.005


class Guard:
    """The lock file of one stream."""

    def __init__(self, path: str, timeout: float, make_folder: Callable[[], None]) -> None:
        self.path = path
        self._timeout = timeout
        self._make_folder = make_folder
        self._fd: int | None = None

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock. Raises :class:`TransportUnavailable` when it cannot be had in time."""
        deadline = time.monotonic() + self._timeout
        while True:
            fd = self._open() if self._fd is None else self._fd
            self._take(fd, deadline)
            if self._current(fd):
                break
            self.close()  # somebody deleted the file: those who come now lock another one
        try:
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def read(self) -> bytes:
        """The note: ``clean`` and a fingerprint, ``dirty``, or nothing."""
        assert self._fd is not None
        return os.pread(self._fd, _NOTE_BYTES, 0).rstrip()

    def write(self, note: bytes) -> None:
        """Leave a note. It always has the same length, so it needs no room on a disk that is full."""
        assert self._fd is not None
        os.pwrite(self._fd, note.ljust(_NOTE_BYTES), 0)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            self._fd = os.open(self.path, flags, 0o666)
        except FileNotFoundError:
            self._make_folder()
            self._fd = os.open(self.path, flags, 0o666)
        return self._fd

    def _current(self, fd: int) -> bool:
        try:
            return os.stat(self.path).st_ino == os.fstat(fd).st_ino
        except FileNotFoundError:
            return False

    def _take(self, fd: int, deadline: float) -> None:
        # Not a blocking flock: that could not be given up when the holder is stopped and never comes back.
        wait = _FIRST_WAIT
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TransportUnavailable(
                        f"{self.path} has been locked by another process for {self._timeout:g} s: "
                        f"is it stopped? (lslocks shows which process it is)"
                    ) from None
                time.sleep(wait)
                wait = min(wait * 1.5, LONGEST_WAIT)
            else:
                return
