"""One log file, open for reading, and how much of it was taken."""

from __future__ import annotations

import os
import stat
from typing import Final, Self

from kingdom.journal.cursor import HEAD_BYTES, Place, head_of, same_head
from kingdom.journal.errors import not_a_file
from kingdom.journal.lines import MAX_LINE_BYTES
from kingdom.journal.locking import try_lock, unlock

_BLOCK_BYTES: Final = 64 * 1024  # of whole lines at a time; larger ones fall out of the processor's cache


class LogFile:
    """Gives whole lines from where it stands. Whoever takes them moves ``offset`` on."""

    def __init__(self, path: str, offset: int = 0, sealed: bool = False) -> None:
        # O_NONBLOCK: to open a pipe that lies there must not wait for its other end.
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        found = os.fstat(self.fd)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise not_a_file("read", path)
        self.path = path
        self.inode = found.st_ino
        self.offset = offset
        self.sealed = sealed
        self._head: str | None = None
        self._searched = 0  # up to here there is no end of a line that is too long

    @classmethod
    def at(cls, path: str, place: Place) -> Self | None:
        """Open the file that a cursor means; None when this is another one."""
        try:
            file = cls(path, place.offset, place.sealed)
        except FileNotFoundError:
            return None
        if same_head(file.fd, place.head) and file.size() >= place.offset:
            return file
        file.close()
        return None

    @property
    def place(self) -> Place:
        """What a cursor remembers of it."""
        if self._head is None:
            head = head_of(self.fd, self.offset)
            if self.offset < HEAD_BYTES:
                return Place(self.inode, self.offset, head, self.sealed)
            self._head = head
        return Place(self.inode, self.offset, self._head, self.sealed)

    def size(self) -> int:
        """How many bytes it has now."""
        return os.fstat(self.fd).st_size

    def block(self, upto: int) -> bytes:
        """Whole lines from ``offset`` on, none beyond ``upto``; empty when the next line is not complete."""
        for length in (_BLOCK_BYTES, MAX_LINE_BYTES):
            chunk = os.pread(self.fd, min(length, upto - self.offset), self.offset)
            if end := chunk.rfind(b"\n") + 1:
                return chunk[:end]
            if len(chunk) < length:
                break
        return b""

    def pass_overlong(self, upto: int) -> int | None:
        """Go past a line longer than any may be and return its length; None when there is none, or no end of it yet."""
        if upto - self.offset < MAX_LINE_BYTES:
            return None
        at = max(self._searched, self.offset)
        while at < upto:
            chunk = os.pread(self.fd, min(MAX_LINE_BYTES, upto - at), at)
            if (end := chunk.find(b"\n")) >= 0:
                length = at + end - self.offset
                self.offset = at + end + 1
                return length
            if not chunk:
                break
            at += len(chunk)
        self._searched = at
        return None

    def restart(self) -> None:
        """Begin again at the first byte: what was there is gone."""
        self.offset = self._searched = 0
        self._head = None

    def seal(self) -> None:
        """Find out whether it is closed for good. Only for a file that has lost its name to another one.

        Writers look at the name under the lock: once the lock was free, nobody writes to this file any more.
        """
        if not self.sealed and try_lock(self.fd):
            unlock(self.fd)
            self.sealed = True

    def sync(self) -> None:
        """Have on disk what was read: a cursor must not point past the end that a power cut leaves."""
        os.fsync(self.fd)

    def close(self) -> None:
        """Close it."""
        os.close(self.fd)
