"""Transcripts: follow a growing file line by line, and read a run's events from it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engines.programs import parse_object
from kingdom.agents.port import AgentEvent, Began, Finished, Heartbeat, Order, RateLimit, Text, Tokens, ToolUse, Usage

if TYPE_CHECKING:
    from kingdom.agents.engine import Engine, InProcessEngine


MAX_LINE: Final = 16 * 1024 * 1024
_CHUNK: Final = 256 * 1024


class LineSplitter:
    """Splits bytes into lines. A line that is too long becomes None."""

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max = max_line
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """Return the lines that are complete now, without their newlines."""
        *whole, rest = data.split(b"\n")
        lines: list[bytes | None] = []
        for piece in whole:
            self._keep(piece)
            lines.append(self.rest())
        self._keep(rest)
        return lines

    def rest(self) -> bytes | None:
        """Return what follows the last newline, and start a new line."""
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


class FileTail:
    """Reads a growing file, from its beginning."""

    def __init__(self, path: Path) -> None:
        self.offset = 0
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self, until: int = 0) -> bytes:
        """Return some new data, or nothing. Data before and after offset ``until`` is not returned together."""
        size = min(_CHUNK, until - self.offset) if self.offset < until else _CHUNK
        data = os.pread(self._descriptor, size, self.offset)
        self.offset += len(data)
        return data

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_end(path: Path, limit: int = 600) -> str:
    """Return the end of a text file, for people; empty when there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit).decode("utf-8", "replace").replace("\0", "").strip()
    except OSError:
        return ""


_EVENT_TYPES: Final = {kind.__name__.lower(): kind for kind in (Began, Text, ToolUse, Heartbeat, RateLimit, Finished)}


class Transcript:
    """Reads the events of one run from its transcript, while it runs or later.

    With ``last``, reading starts at the first whole line within that many bytes of the end.
    """

    def __init__(
        self, path: Path, order: Order, engines: Mapping[str, Engine | InProcessEngine], *, last: int | None = None
    ) -> None:
        self._path = path
        self._offset = 0 if last is None else _line_start(path, last)
        self._lines = LineSplitter()
        self._read = reader_of(order, engines)

    def read_new(self) -> list[AgentEvent]:
        """Return the events since the last call. An unfinished line is read later."""
        found: list[AgentEvent] = []
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._offset)
            while data := file.read(_CHUNK):
                self._offset += len(data)
                for line in self._lines.feed(data):
                    if line:
                        found += self._read(line)
        return found


def reader_of(order: Order, engines: Mapping[str, Engine | InProcessEngine]) -> Callable[[bytes], Sequence[AgentEvent]]:
    """Return the function that parses the lines of a run's transcript."""
    engine = engines.get(order.engine)
    if engine is None or hasattr(engine, "play"):
        return _parse_event
    return engine.reader(order).feed


def describe_event(event: AgentEvent) -> str:
    """Return an event as text for people; empty for events that only programs need."""
    if isinstance(event, Began):
        return f"began {' '.join(part for part in (event.model, event.session_id) if part)}".strip()
    if isinstance(event, Text):
        return event.text
    if isinstance(event, ToolUse):
        return f"→ {event.name} {event.detail}".rstrip()
    if isinstance(event, RateLimit):
        return f"rate limit: {event.status}"
    if isinstance(event, Finished):
        return f"finished: {event.error or ('ok' if event.ok else 'not ok')}"
    return ""


def _line_start(path: Path, last: int) -> int:
    """Return the offset of the first line that starts within the last bytes of a file."""
    try:
        with path.open("rb") as file:
            begin = max(file.seek(0, os.SEEK_END) - last, 0)
            if begin:
                file.seek(begin - 1)
                begin += len(file.readline()) - 1
            return begin
    except FileNotFoundError:
        return 0


def _parse_event(line: bytes) -> Sequence[AgentEvent]:
    """Parse an event as :class:`kingdom.agents.run.InProcessRun` writes it."""
    document: dict[str, Any] = parse_object(line) or {}
    kind = document.pop("type", None)
    try:
        if kind == "usage":
            return (Usage(**{**document, "tokens": Tokens(**document["tokens"])}),)
        made = _EVENT_TYPES[str(kind)]
        known = {field.name for field in fields(made)}
        event: AgentEvent = made(**{key: value for key, value in document.items() if key in known})
    except (KeyError, TypeError):
        return ()
    return (event,)
