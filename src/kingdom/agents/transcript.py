"""Reading what a run said from its transcript, from outside, while it runs or later."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engines.lines import parse_object
from kingdom.agents.port import (
    AgentEvent,
    Began,
    Finished,
    Heartbeat,
    Order,
    RateLimit,
    Text,
    Tokens,
    ToolUse,
    Usage,
)
from kingdom.agents.tail import Lines

if TYPE_CHECKING:
    from kingdom.agents.engine import Engine, Player

_CHUNK: Final = 256 * 1024
_PLAYED: Final = {kind.__name__.lower(): kind for kind in (Began, Text, ToolUse, Heartbeat, RateLimit, Finished)}


class Transcript:
    """The transcript of one run; reads on each time it is asked.

    ``last`` begins so many bytes before the end, at a whole line, where the transcript is longer than that.
    """

    def __init__(
        self, path: Path, order: Order, engines: Mapping[str, Engine | Player], *, last: int | None = None
    ) -> None:
        self._path = path
        self._offset = 0 if last is None else _line_start(path, last)
        self._lines = Lines()
        self._read = reader_of(order, engines)

    def read_on(self) -> list[AgentEvent]:
        """What was said since the last time; a line that is not whole yet waits. Nothing when there is no file."""
        found: list[AgentEvent] = []
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._offset)
            while data := file.read(_CHUNK):
                self._offset += len(data)
                for line in self._lines.feed(data):
                    if line:
                        found += self._read(line)
        return found


def reader_of(order: Order, engines: Mapping[str, Engine | Player]) -> Callable[[bytes], Sequence[AgentEvent]]:
    """What the lines of a run's transcript mean, one after the other."""
    engine = engines.get(order.engine)
    if engine is None or hasattr(engine, "play"):
        return _played
    return engine.reader(order).feed


def words(event: AgentEvent) -> str:
    """An event as people read it; empty for what only machines care about."""
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
    """Where the first line begins that lies wholly in the last bytes of a file."""
    try:
        with path.open("rb") as file:
            begin = max(file.seek(0, os.SEEK_END) - last, 0)
            if begin:
                file.seek(begin - 1)
                begin += len(file.readline()) - 1
            return begin
    except FileNotFoundError:
        return 0


def _played(line: bytes) -> Sequence[AgentEvent]:
    """An event as :class:`kingdom.agents.played_run.PlayedRun` writes it."""
    document: dict[str, Any] = parse_object(line) or {}
    kind = document.pop("type", None)
    try:
        if kind == "usage":
            return (Usage(**{**document, "tokens": Tokens(**document["tokens"])}),)
        made = _PLAYED[str(kind)]
        known = {field.name for field in fields(made)}
        event: AgentEvent = made(**{key: value for key, value in document.items() if key in known})
    except (KeyError, TypeError):
        return ()
    return (event,)
