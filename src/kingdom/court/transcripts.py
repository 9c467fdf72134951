"""What soldiers said and did, read from their transcripts: all of it, a page, or the last lines of those at work."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kingdom.agents.tail import MAX_LINE, Lines
from kingdom.agents.transcript import Transcript, reader_of, words
from kingdom.court.soldiers import find_soldier

if TYPE_CHECKING:
    from kingdom.agents.engine import Engine, Player
    from kingdom.court.home import Home
    from kingdom.court.soldiers import Soldier

PAGE_BYTES: Final = 64 * 1024
_LINES: Final = 50
_FROM_THE_END: Final = 256 * 1024  # bytes of a long transcript that are read at first


@dataclass(frozen=True, slots=True)
class Said:
    """One thing a soldier said or did."""

    kind: str
    """``text``, ``tooluse``, ``began``, ``finished``, ``ratelimit``, or ``raw`` for what nobody here can read."""
    text: str


@dataclass(frozen=True, slots=True)
class TranscriptPage:
    """A part of a transcript."""

    items: list[Said] = field(default_factory=list)
    next_offset: int = 0
    """Where the next part begins. Asking for it later brings what was said meanwhile."""
    size: int = 0
    """How large the transcript is now; a ``next_offset`` below it means that there is more already."""


def told_by(soldier: Soldier, engines: Mapping[str, Engine | Player]) -> Iterator[str]:
    """What a soldier said and did, in lines for people."""
    if soldier.order.engine in engines:
        said = map(words, Transcript(soldier.transcript, soldier.order, engines).read_on())
        yield from filter(None, said)
    else:  # an engine that is not installed any more: nobody knows how to read it
        with soldier.transcript.open("rb") as file:
            for raw in file:
                yield raw.rstrip(b"\n").decode(errors="replace")


def read_page(
    soldier: Soldier, engines: Mapping[str, Engine | Player], offset: int, *, raw: bool = False, most: int = PAGE_BYTES
) -> TranscriptPage:
    """What lies from ``offset`` on, about ``most`` bytes, in whole lines; a negative one counts from the end.

    Raises ``FileNotFoundError`` when there is no transcript, or none any more.
    """
    with soldier.transcript.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        begin = min(offset, size) if offset >= 0 else max(size + offset, 0)
        if begin and offset < 0:  # at the next whole line
            file.seek(begin - 1)
            begin += len(file.readline(MAX_LINE)) - 1
        file.seek(begin)
        data = file.read(most)
        if b"\n" not in data and len(data) == most:  # one long line: all of it, or else nobody ever got past it
            data += file.readline(MAX_LINE)
            if not data.endswith(b"\n") and begin + len(data) < size:
                return TranscriptPage([Said("raw", "(a line too long to be shown)")], begin + len(data), size)
    whole = data[: data.rfind(b"\n") + 1]
    known = soldier.order.engine in engines and not raw
    reader = reader_of(soldier.order, engines) if known else None
    items: list[Said] = []
    for line in filter(None, Lines().feed(whole)):
        if reader is None:
            items.append(Said("raw", line.decode(errors="replace")))
            continue
        said = ((type(event).__name__.lower(), words(event)) for event in reader(line))
        items += [Said(kind, text) for kind, text in said if text]
    return TranscriptPage(items, begin + len(whole), size)


class LastWords:
    """Follows the transcripts of some soldiers."""

    def __init__(self, home: Home, engines: Mapping[str, Engine | Player]) -> None:
        self._home = home
        self._engines = engines
        self._heard: dict[str, tuple[Transcript, deque[str]]] = {}

    def hear(self, soldiers: Iterable[str]) -> dict[str, list[str]]:
        """The last lines of each of these soldiers; the others are forgotten."""
        wanted = list(soldiers)
        self._heard = {name: heard for name, heard in self._heard.items() if name in wanted}
        return {name: self._last(name) for name in wanted}

    def _last(self, name: str) -> list[str]:
        if name not in self._heard:
            soldier = find_soldier(self._home, name)
            if soldier is None:
                return []
            transcript = Transcript(soldier.transcript, soldier.order, self._engines, last=_FROM_THE_END)
            self._heard[name] = transcript, deque(maxlen=_LINES)
        transcript, lines = self._heard[name]
        for event in transcript.read_on():
            lines.extend(line for line in words(event).splitlines() if line.strip())
        return list(lines)
