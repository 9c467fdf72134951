"""The numbers in ids: ``task-20260207-001``, ``msg-20260207-001``.

The last one given stands in a file as ``YYYYMMDD:number``. Several processes draw from it, so it is changed under a
lock; it is on the disk before an id is handed out, so a power cut gives no id twice. A clock that is set back goes on
in the later day. When the file is lost, what lies in the court shows which numbers are taken; where the queues are in a
database, whoever draws asks there first (:meth:`Sequences.recover`).
"""

from __future__ import annotations

import contextlib
import fcntl
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kingdom.court.documents import on_files
from kingdom.court.files import write_atomic
from kingdom.court.queues import MESSAGES, TASKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from kingdom.bus import EventBus
    from kingdom.court.home import Home

_STORED: Final = re.compile(r"(\d{8}):(\d+)\s*\Z")


class Sequences:
    """Draws ids for tasks and messages."""

    def __init__(self, home: Home, clock: Callable[[], float]) -> None:
        self._home = home
        self._clock = clock

    async def recover(self, bus: EventBus) -> None:
        """Make up for a file that was lost, where the ids that were given are in a database. Nothing else needs it."""
        if on_files(bus):
            return
        for kind, stream in (("task", TASKS), ("msg", MESSAGES)):
            if _stored(self._path(kind)) is None:
                given = [record.envelope.event_id async for record in bus.records(stream, ids=f"{kind}-*")]
                with self._locked(kind) as path:
                    names = _names(self._places(kind))
                    day, last = max(_highest(kind, (*given, *names)), _stored(path) or ("", 0))
                    if day:
                        write_atomic(path, f"{day}:{last}\n")

    def tasks(self, count: int = 1) -> list[str]:
        """New ids of tasks, never given before."""
        return self._draw("task", count)

    def messages(self, count: int = 1) -> list[str]:
        """New ids of messages, never given before."""
        return self._draw("msg", count)

    def _draw(self, kind: str, count: int) -> list[str]:
        if count < 1:
            return []
        with self._locked(kind) as path:
            today = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y%m%d")
            day, last = _stored(path) or _highest(kind, _names(self._places(kind)))
            if day < today:
                day, last = today, 0
            write_atomic(path, f"{day}:{last + count}\n")
        return [f"{kind}-{day}-{number:03d}" for number in range(last + 1, last + count + 1)]

    def _places(self, kind: str) -> list[Path]:
        """Where files bear such ids in their names."""
        queue, state = self._home.queue, self._home.state
        return [queue / TASKS, state] if kind == "task" else [queue / MESSAGES]

    def _path(self, kind: str) -> Path:
        return self._home.role("king") / f"{kind}-seq"

    @contextlib.contextmanager
    def _locked(self, kind: str) -> Iterator[Path]:
        """The file of the last number, while nobody else changes it."""
        path = self._path(kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f".{path.name}.lock").open("a+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield path


def _stored(path: Path) -> tuple[str, int] | None:
    try:
        found = _STORED.match(path.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError):
        return None
    return (found[1], int(found[2])) if found else None


def _highest(kind: str, names: Iterable[str]) -> tuple[str, int]:
    """The highest id in some names."""
    pattern = re.compile(rf"{kind}-(\d{{8}})-(\d+)")
    found = (pattern.search(name) for name in names)
    return max(((match[1], int(match[2])) for match in found if match), default=("", 0))


def _names(places: list[Path]) -> Iterator[str]:
    for place in places:
        for folder in (place, *(sub for sub in place.glob("*") if sub.is_dir())):
            yield from (path.name for path in folder.glob("*"))
