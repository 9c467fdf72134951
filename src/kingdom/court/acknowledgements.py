"""What people have seen or muted: ``state/acknowledged.json``, written by the web server alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import ChangeDetector, read_object, write_json
from kingdom.base.times import epoch_seconds
from kingdom.court.home import Home
from kingdom.court.machines.capacity import require_lead
from kingdom.court.models import timestamp

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

_KEPT_SECONDS: Final = 90 * 24 * 3600.0
_LASTING_SECONDS: Final = 24 * 3600.0  # for what lasts, such as an alert: it is told again
_LASTING_PREFIXES: Final = ("alert:", "problem:")
_MAX_KEPT: Final = 10_000


class Acknowledgements:
    """The acknowledged and muted items of a folder, by id. Thread-safe.

    An acknowledged item whose text has changed since counts as new. A muted item does not until its end, if it has one.
    """

    def __init__(self, root: Path) -> None:
        self._home = Home(root)
        self._path = self._home.state / "acknowledged.json"
        self._changes = ChangeDetector(self._path)
        self._known: dict[str, Any] = {}
        self._lock = threading.Lock()

    def covers(self, item_id: str, text: str, now: float) -> bool:
        """Return whether a person has muted an item, or acknowledged it with this text."""
        found = self._read().get(item_id)
        if not isinstance(found, dict):
            return False
        if found.get("muted"):
            return _is_muted(found, now)
        at = epoch_seconds(found.get("at"))
        lasting = item_id.startswith(_LASTING_PREFIXES)
        kept = _LASTING_SECONDS if lasting else _KEPT_SECONDS
        return found.get("text") == text and at is not None and now - at < kept

    def add(self, items: Mapping[str, str], user: str, now: float) -> None:
        """Acknowledge items: the text of each, by its id."""
        self._put({item_id: {"text": text} for item_id, text in items.items()}, user, now)

    def mute(self, items: Mapping[str, Mapping[str, Any]], user: str, now: float, until: float | None) -> None:
        """Mute items until a time, or for ever (None). What is given of each is returned by :meth:`muted`."""
        end = None if until is None else timestamp(until)
        self._put({item_id: {**item, "muted": True, "until": end} for item_id, item in items.items()}, user, now)

    def unmute(self, ids: Collection[str], now: float) -> list[str]:
        """End the muting of items. Returns the ids of those that were muted."""
        ended: list[str] = []

        def change(known: dict[str, Any]) -> None:
            ended.extend(item_id for item_id in dict.fromkeys(ids) if _is_muted(known.get(item_id), now))
            for item_id in ended:
                del known[item_id]

        self._change(change, now)
        return ended

    def muted(self, now: float) -> dict[str, dict[str, Any]]:
        """Return the muted items by id, in the order in which they were muted."""
        return {item_id: one for item_id, one in self._read().items() if _is_muted(one, now)}

    def _put(self, items: Mapping[str, Mapping[str, Any]], user: str, now: float) -> None:
        def change(known: dict[str, Any]) -> None:
            for item_id, item in items.items():
                known.pop(item_id, None)
                known[item_id] = {**item, "user": user, "at": timestamp(now)}

        self._change(change, now)

    def _change(self, change: Callable[[dict[str, Any]], None], now: float) -> None:
        require_lead(self._home)
        with self._lock:
            known = dict(self._refreshed())
            change(known)
            kept = [(name, one) for name, one in known.items() if _is_muted(one, now) or _age(one, now) < _KEPT_SECONDS]
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, dict(kept[-_MAX_KEPT:]))

    def _read(self) -> dict[str, Any]:
        with self._lock:
            return self._refreshed()

    def _refreshed(self) -> dict[str, Any]:
        if self._changes.changed():
            self._known = read_object(self._path)
        return self._known


def _is_muted(one: Any, now: float) -> bool:
    if not isinstance(one, dict) or not one.get("muted"):
        return False
    until = one.get("until")
    return until is None or now < (epoch_seconds(until) or 0.0)


def _age(one: Any, now: float) -> float:
    at = epoch_seconds(one.get("at")) if isinstance(one, dict) and not one.get("muted") else None
    return _KEPT_SECONDS if at is None else now - at
