"""The ledger: an append-only file of JSON lines, one for each operation on a stream.

It is written and read under the stream's lock only, so a reader that has the lock has seen everything. A line that a
dying process left half-written has no newline: it never happened, and is cut off by whoever comes next.

When it has grown, it is replaced by a new file that begins with a snapshot. The first line says which generation the
file is and where its snapshot ends: a process that had read the previous one to its end skips the snapshot.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus.jsontext import encode
from kingdom.bus.transports.files.syncing import write_all
from kingdom.bus.transports.files.temporaries import temporary_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable

Line = dict[str, Any]

_HEADER_BYTES: Final = 96
_CHUNK: Final = 1 << 20

log = logging.getLogger("kingdom.bus.files")


class Ledger:
    """One process's view of a stream's ledger: everything up to ``offset`` has been read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.inode = 0
        self._fd: int | None = None
        self.vanished = False  # somebody deleted the file: it has to be replaced
        self._generation = 0
        self._snapshot_end = 0

    def close(self) -> None:
        """Let go of the file. The next :meth:`read` starts anew."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def size_on_disk(self) -> int:
        """How long the file is; unlike ``offset`` as soon as another process has written. Needs no lock."""
        return 0 if self._fd is None else os.fstat(self._fd).st_size

    def read(self) -> tuple[bool, list[Line]]:
        """What was written since the last call: whether to begin from nothing, and the lines to apply."""
        lines: list[Line] = []
        continued = self._fd is not None and self.size_on_disk() >= self.offset  # shorter: a hand was at it
        if continued:
            lines = self._rest()
            self.vanished = not os.path.exists(self.path)
            if self.vanished or os.stat(self.path).st_ino == self.inode:
                return False, lines
        generation = self._generation
        self._open()
        if continued and self._generation == generation + 1:
            self.offset = self._snapshot_end
            return False, lines + self._rest()
        self.offset = 0
        return True, self._rest()

    def append(self, line: Line) -> int:
        """Write one line; return where it starts. When it cannot be written whole, nothing of it stays."""
        assert self._fd is not None
        start = self.offset
        data = encode(line).encode("utf-8", "surrogatepass") + b"\n"
        try:
            write_all(self._fd, data)
        except OSError:
            self.rewind(start)
            raise
        self.offset += len(data)
        return start

    def rewind(self, start: int) -> None:
        """Take back everything from ``start`` on. Nobody has read it: the lock is still ours."""
        assert self._fd is not None
        os.ftruncate(self._fd, start)
        self.offset = start

    def sync(self) -> None:
        """Make the ledger durable. Needs no lock: should it be replaced this moment, the new one is durable already."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, lines: Iterable[Line]) -> None:
        """Begin a new generation with a snapshot."""
        body = b"".join(encode(line).encode("utf-8", "surrogatepass") + b"\n" for line in lines)
        header = {"ledger": 1, "generation": self._generation + 1, "snapshotEnd": _HEADER_BYTES + len(body)}
        temporary = f"{os.path.dirname(self.path)}/{temporary_prefix()}ledger"
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            write_all(fd, encode(header).encode().ljust(_HEADER_BYTES - 1) + b"\n" + body)
            os.fsync(fd)
            if self._fd is not None:
                # Wakes whoever watches the old file and waits: they take the lock next, and find the new one.
                with contextlib.suppress(OSError):
                    os.write(self._fd, b'{"op":"replaced"}\n')
            os.rename(temporary, self.path)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        self.close()
        self.vanished = False
        self._fd, self.inode = fd, os.fstat(fd).st_ino
        self._generation += 1
        self.offset = self._snapshot_end = _HEADER_BYTES + len(body)

    def _open(self) -> None:
        self.close()
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self.inode = os.fstat(self._fd).st_ino
        self._generation, self._snapshot_end = 0, 0
        first = os.pread(self._fd, _HEADER_BYTES, 0)
        if first.startswith(b'{"ledger"') and (header := _parse(first)):
            self._generation, self._snapshot_end = int(header["generation"]), int(header["snapshotEnd"])

    def _rest(self) -> list[Line]:
        assert self._fd is not None
        size = os.fstat(self._fd).st_size
        if size == self.offset:
            return []
        data = b"".join(self._read_to(size))
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(self._fd, self.offset + whole)
        self.offset += whole
        parsed = (_parse(text) for text in data[:whole].split(b"\n") if text)
        return [line for line in parsed if line is not None]

    def _read_to(self, size: int) -> Iterable[bytes]:
        assert self._fd is not None
        at = self.offset
        while at < size:
            part = os.pread(self._fd, min(_CHUNK, size - at), at)
            if not part:
                raise OSError(errno.EIO, "the ledger became shorter while it was read", self.path)
            at += len(part)
            yield part


def _parse(text: bytes) -> Line | None:
    """One line, or None when it is garbled: what it said is then found out from the directories."""
    try:
        line = json.loads(text)
    except ValueError:
        log.warning("skipping a garbled line of a ledger: %r", text[:80])
        return None
    return line if isinstance(line, dict) else None
