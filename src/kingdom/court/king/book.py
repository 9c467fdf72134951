"""The king's book: what he is about to do, written down before he does it.

Each entry is one line, durable before anything of it happens: the cases as they will be, the tasks, messages and
events to publish, the events to complete, the slots to mark. All of that may be repeated without harm, because every
document has its id already and the bus takes an id once. So after a crash the last entry is carried out again, and
nothing needs to be guessed: entries before it were finished, or it would not be there.

``state/king/.book`` holds the cases in hand and the entries since; it is written anew when it has grown long.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.files import write_atomic
from kingdom.court.king.cases import Case

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAME: Final = ".book"
REWRITE_BYTES: Final = 8 << 20  # it is written anew when it is longer than this and than twice what was kept
log = logging.getLogger("kingdom.court.king")


@dataclass(slots=True)
class Entry:
    """What belongs together: it is done as a whole, if not now then after a restart."""

    cases: dict[str, dict[str, Any] | None] = field(default_factory=dict)  # None: closed
    tasks: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    done: dict[str, str | None] = field(default_factory=dict)  # events to complete, with their outcome
    slots: dict[str, dict[str, Any]] = field(default_factory=dict)  # of schedules
    journal: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def line(self) -> bytes:
        """Its line in the book."""
        # ASCII: half a surrogate pair in a name from outside must not keep the entry from being written.
        filled = {name: value for name in self.__slots__ if (value := getattr(self, name))}
        return json.dumps(filled, separators=(",", ":")).encode() + b"\n"


@dataclass(slots=True)
class Opened:
    """What the book says."""

    cases: dict[str, Case]
    last: Entry | None  # to be carried out again
    found: bool  # False: there is no book, so nothing is known


class Book:
    """The file. Only the king writes it, and reads it when he starts."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._file: int | None = None
        self._size = 0
        self._rewrite_at = REWRITE_BYTES

    def open(self) -> Opened:
        """Read it. A last line without its end was never carried out and counts for nothing."""
        self.close()
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return Opened({}, None, found=False)
        cases: dict[str, Case] = {}
        last: Entry | None = None
        for line in data.split(b"\n")[:-1]:
            try:
                entry = Entry(**json.loads(line))
                changed = {root: Case.from_dict(case) for root, case in entry.cases.items() if case is not None}
            except (ValueError, TypeError, AttributeError) as error:
                log.warning("%s: a line makes no sense and is left out: %s: %.80r", self._path, error, line)
                continue
            last = entry
            cases.update(changed)
            for root in entry.cases.keys() - changed.keys():
                cases.pop(root, None)
        return Opened(cases, last, found=True)

    def append(self, entry: Entry) -> None:
        """Write an entry down, durably."""
        if self._file is None:
            raise RuntimeError("the book must be written anew before the first entry")
        line = entry.line()
        done = 0
        while done < len(line):
            done += os.write(self._file, line[done:])
        os.fdatasync(self._file)
        self._size += len(line)

    @property
    def long(self) -> bool:
        """Whether it should be written anew."""
        return self._size > self._rewrite_at

    def rewrite(self, cases: Iterable[Case]) -> None:
        """Begin a new one with the cases in hand. Everything else in it must have been carried out."""
        self.close()
        kept = Entry(cases={case.root: case.to_dict() for case in cases}).line()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._path, kept)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = len(kept)
        self._rewrite_at = max(REWRITE_BYTES, 2 * len(kept))

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
