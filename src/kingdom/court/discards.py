"""Which events the king discarded, and why, from the journal."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING, Final

from kingdom.journal import JournalError, Reader
from kingdom.journal.catalog import EventDiscarded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MARKER: Final = f'"{EventDiscarded.spec.name}"'.encode()
_MAX_KEPT: Final = 100_000


class DiscardedEvents:
    """The reasons of discarded events, by id, as far as the journal goes back.

    The first call reads the whole journal, a later one what is new. Thread-safe.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._reader: Reader | None = None
        self._reasons: dict[str, str] = {}
        self._lock = threading.Lock()

    def read(self) -> Mapping[str, str]:
        """Return the reasons that are known now."""
        with self._lock:
            if self._reader is None:
                self._reader = Reader(self._journal, report=lambda problem: None)
            with contextlib.suppress(JournalError):  # what is known is still useful
                for line in self._reader.read_lines():
                    if _MARKER in line:
                        self._add(line)
            for event_id in list(self._reasons)[: max(len(self._reasons) - _MAX_KEPT, 0)]:
                del self._reasons[event_id]
            return self._reasons

    def _add(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found = json.loads(line)
            if found["type"] == EventDiscarded.spec.name:
                self._reasons[str(found["data"]["event_id"])] = str(found["data"]["reason"])
