"""What came from Slack: on the disk before it is acknowledged, taken out when it has been dealt with.

Slack delivers at least once, also minutes later, and names one post twice (as message and as mention). So what was
dealt with is remembered for a day, by all the names it goes by.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.files import read_json, write_atomic, write_json
from kingdom.court.leftovers import sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from kingdom.court.home import Home

REMEMBERED: Final = 86400.0  # seconds; Slack was seen to deliver again after several minutes
_PRUNE_EVERY: Final = 3600.0
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]")


class Inbox:
    """The folders ``state/envoy/inbox/`` and ``state/envoy/seen/``."""

    def __init__(self, home: Home, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._folder = home.role("envoy") / "inbox"
        self._seen = home.role("envoy") / "seen"
        for folder in (self._folder, self._seen):
            folder.mkdir(parents=True, exist_ok=True)
            sweep(folder)
        self._last = 0
        self._pruned = 0.0

    def keep(self, envelope: dict[str, Any]) -> None:
        """Write an envelope down. When this returns, it may be acknowledged."""
        # The names sort in the order of arrival, also within one millisecond and when the clock is set back.
        self._last = max(self._last + 1, int(self._clock() * 1_000_000))
        name = _ODD.sub("_", str(envelope.get("envelope_id")))[:80]
        write_json(self._folder / f"{self._last:020d}-{name}.json", envelope)

    def waiting(self) -> Iterator[tuple[Path, Any]]:
        """What was not dealt with yet, oldest first."""
        for path in sorted(self._folder.glob("[!.]*.json")):
            yield path, read_json(path)

    def seen(self, names: Iterable[str]) -> bool:
        """Whether something was dealt with under one of its names."""
        return any((self._seen / _safe(name)).exists() for name in names)

    def remember(self, names: Iterable[str]) -> None:
        """Something was dealt with that goes by these names.

        Not synced: after a power cut the ids of the events would still keep them from being doubled.
        """
        now = self._clock()
        for name in names:
            mark = self._seen / _safe(name)
            write_atomic(mark, b"", durable=False)
            os.utime(mark, (now, now))

    def take_out(self, path: Path) -> None:
        """It needs no further thought."""
        path.unlink(missing_ok=True)

    def prune(self) -> None:
        """Forget what is too old to come again. Looks once an hour."""
        now = self._clock()
        if now - self._pruned < _PRUNE_EVERY:
            return
        self._pruned = now
        with os.scandir(self._seen) as entries:
            old = [entry.path for entry in entries if now - entry.stat().st_mtime > REMEMBERED]
        for path in old:
            os.unlink(path)  # noqa: PTH108 - as scandir names it


def _safe(name: str) -> str:
    return _ODD.sub("_", name)[:200]
