"""The numbers in ids: ``task-20260207-001``, ``msg-20260207-001``.

The last one given stands in a file as ``YYYYMMDD:number``. Several processes draw from it, so it is changed under a
lock; it is on the disk before an id is handed out, so a power cut gives no id twice. A clock that is set back goes on
in the later day. When the file is lost, what lies in the court shows which numbers are taken.
"""

from __future__ import annotations

import fcntl
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kingdom.court.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kingdom.court.home import Home

_STORED: Final = re.compile(r"(\d{8}):(\d+)\s*\Z")


class Sequences:
    """Draws ids for tasks and messages."""

    def __init__(self, home: Home, clock: Callable[[], float]) -> None:
        self._home = home
        self._clock = clock

    def tasks(self, count: int = 1) -> list[str]:
        """New ids of tasks, never given before."""
        return self._draw("task", count, [self._home.queue / "tasks", self._home.state])

    def messages(self, count: int = 1) -> list[str]:
        """New ids of messages, never given before."""
        return self._draw("msg", count, [self._home.queue / "messages"])

    def _draw(self, kind: str, count: int, places: list[Path]) -> list[str]:
        if count < 1:
            return []
        folder = self._home.role("king")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{kind}-seq"
        with (folder / f".{kind}-seq.lock").open("a+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            today = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y%m%d")
            day, last = _stored(path) or _highest(kind, places)
            if day < today:
                day, last = today, 0
            write_atomic(path, f"{day}:{last + count}\n")
        return [f"{kind}-{day}-{number:03d}" for number in range(last + 1, last + count + 1)]


def _stored(path: Path) -> tuple[str, int] | None:
    try:
        found = _STORED.match(path.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError):
        return None
    return (found[1], int(found[2])) if found else None


def _highest(kind: str, places: list[Path]) -> tuple[str, int]:
    """The highest id that the files of the court bear in their names."""
    pattern = re.compile(rf"{kind}-(\d{{8}})-(\d+)")
    found = (pattern.search(name) for name in _names(places))
    return max(((match[1], int(match[2])) for match in found if match), default=("", 0))


def _names(places: list[Path]) -> Iterator[str]:
    for place in places:
        for folder in (place, *(sub for sub in place.glob("*") if sub.is_dir())):
            yield from (path.name for path in folder.glob("*"))
