"""What people have seen and need not be told again: ``state/acknowledged.json``, written by the web server alone."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import ChangeDetector, read_object, write_json
from kingdom.base.times import epoch_seconds
from kingdom.court.models import timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_KEPT_SECONDS: Final = 90 * 24 * 3600.0
_LASTING_SECONDS: Final = 24 * 3600.0  # for what lasts, such as an alert: it is told again
_LASTING_PREFIXES: Final = ("alert:", "problem:")
_MAX_KEPT: Final = 10_000


class Acknowledgements:
    """The acknowledged items of a folder, by id. An item whose text has changed since counts as new. Thread-safe."""

    def __init__(self, root: Path) -> None:
        self._path = root / "state" / "acknowledged.json"
        self._changes = ChangeDetector(self._path)
        self._known: dict[str, Any] = {}
        self._lock = threading.Lock()

    def covers(self, item_id: str, text: str, now: float) -> bool:
        """Return whether a person has acknowledged an item with this text."""
        found = self._read().get(item_id)
        if not isinstance(found, dict) or found.get("text") != text:
            return False
        at = epoch_seconds(found.get("at"))
        lasting = item_id.startswith(_LASTING_PREFIXES)
        return at is not None and now - at < (_LASTING_SECONDS if lasting else _KEPT_SECONDS)

    def add(self, items: Mapping[str, str], user: str, now: float) -> None:
        """Acknowledge items: the text of each, by its id."""
        known = dict(self._read())
        with self._lock:
            for item_id, text in items.items():
                known.pop(item_id, None)
                known[item_id] = {"text": text, "user": user, "at": timestamp(now)}
            kept = [(name, one) for name, one in known.items() if _age(one, now) < _KEPT_SECONDS]
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, dict(kept[-_MAX_KEPT:]))

    def _read(self) -> dict[str, Any]:
        with self._lock:
            if self._changes.changed():
                self._known = read_object(self._path)
            return self._known


def _age(one: Any, now: float) -> float:
    at = epoch_seconds(one.get("at")) if isinstance(one, dict) else None
    return _KEPT_SECONDS if at is None else now - at
