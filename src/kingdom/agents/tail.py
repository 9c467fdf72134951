"""Following a file that grows, line by line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MAX_LINE: Final = 16 * 1024 * 1024
_CHUNK: Final = 256 * 1024


class Lines:
    """Splits bytes into lines. A line that is too long is skipped; it comes out as None."""

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max = max_line
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that are whole now, without their ends."""
        *whole, rest = data.split(b"\n")
        lines: list[bytes | None] = []
        for piece in whole:
            self._keep(piece)
            lines.append(self.rest())
        self._keep(rest)
        return lines

    def rest(self) -> bytes | None:
        """What came after the last line end; begins a new line."""
        line = None if self._skipping else b"".join(self._parts)
        self._parts, self._size, self._skipping = [], 0, False
        return line

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max:
            self._skipping = True
            self._parts = []
        elif piece:
            self._parts.append(piece)


class Tail:
    """Reads on in a file, from its beginning."""

    def __init__(self, path: Path) -> None:
        self.offset = 0
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self, until: int = 0) -> bytes:
        """Some of what is new; empty when nothing is. What lies before and after ``until`` comes in two pieces."""
        size = min(_CHUNK, until - self.offset) if self.offset < until else _CHUNK
        data = os.pread(self._descriptor, size, self.offset)
        self.offset += len(data)
        return data

    def close(self) -> None:
        """Let go of it. Safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def end_of(path: Path, limit: int = 600) -> str:
    """The end of a text file, for people; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit).decode("utf-8", "replace").replace("\0", "").strip()
    except OSError:
        return ""
