"""What a source remembers between two looks, in ``state/sentinel/<source>.json``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kingdom.court.files import read_json, write_json
from kingdom.court.home import checked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

log = logging.getLogger("kingdom.court.sentinel")


class SourceState:
    """The cursor of one source, and until when it must be left alone. Written as a whole, then renamed."""

    def __init__(self, folder: Path, source: str) -> None:
        self._path = folder / f"{checked('source', source)}.json"
        found = read_json(self._path)
        if found is None and self._path.exists():
            broken = self._path.with_suffix(".broken")
            self._path.rename(broken)
            log.error("%s: cannot be read, now %s: the source is looked at as if for the first time", source, broken)
        document = found if isinstance(found, dict) else {}
        cursor, paused = document.get("cursor"), document.get("paused_until")
        self.cursor: Mapping[str, Any] = cursor if isinstance(cursor, dict) else {}
        self.paused_until: float = paused if isinstance(paused, int | float) else 0.0
        failures = document.get("failures")
        self.failures: int = failures if isinstance(failures, int) else 0

    def save(self, cursor: Mapping[str, Any]) -> None:
        """Go on from here: everything before it is durable."""
        if cursor != self.cursor:
            self.cursor = cursor
            self._write()

    def pause(self, until: float, failures: int) -> None:
        """Leave the source alone for a while, across restarts. Zero: it may be asked again."""
        if (until, failures) != (self.paused_until, self.failures):
            self.paused_until, self.failures = until, failures
            self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        document = {"cursor": self.cursor, "paused_until": self.paused_until, "failures": self.failures}
        write_json(self._path, document)
