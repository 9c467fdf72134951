"""Which events were emitted before: an empty file for each id, so that it survives everything, and a set in memory.

The chamberlain removes files that nobody has renewed for a month. One whose event still shows up at its source is
renewed, or the event would be taken for new after that month.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from kingdom.court.files import sync_folder
from kingdom.court.home import checked

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_DAY: Final = 86400.0


class Seen:
    """The ids of ``state/sentinel/seen/``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._renewed: dict[str, float] = {}  # when each was last written or renewed by us; 0: found
        self._loaded_at: float | None = None

    def __len__(self) -> int:
        return len(self._renewed)

    def knows(self, event_id: str, now: float) -> bool:
        """Whether it was emitted before, by this process or any other."""
        self._load(now)
        renewed = self._renewed.get(event_id)
        if renewed is None:
            if not (self._folder / checked("event", event_id)).exists():
                return False
            renewed = 0.0
        if abs(now - renewed) > _DAY:
            with contextlib.suppress(FileNotFoundError):
                os.utime(self._folder / event_id, (now, now))
            self._renewed[event_id] = now
        return True

    def add(self, event_ids: Iterable[str], now: float) -> None:
        """Remember ids, durably."""
        self._load(now)
        for event_id in event_ids:
            path = self._folder / checked("event", event_id)
            path.touch()
            os.utime(path, (now, now))
            self._renewed[event_id] = now
        sync_folder(self._folder)

    def _load(self, now: float) -> None:
        """Read the names, once a day again: what the chamberlain has removed need not be remembered."""
        if self._loaded_at is not None and abs(now - self._loaded_at) < _DAY:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".")]
        before = self._renewed
        self._renewed = {name: before.get(name, 0.0) for name in names}
        self._loaded_at = now
