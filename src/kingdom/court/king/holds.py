"""Why events wait, for ``kingdom status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_SAMPLES: Final = 3


class Holds:
    """Counts what waits, by reason."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._samples: dict[str, list[str]] = {}

    def add(self, reason: str, ids: Iterable[str], count: int = 1) -> None:
        """Some wait for this reason; ``ids`` names at least the first of them."""
        self._counts[reason] = self._counts.get(reason, 0) + count
        samples = self._samples.setdefault(reason, [])
        for event_id in ids:
            if len(samples) >= _SAMPLES:
                break
            samples.append(event_id)

    def report(self) -> dict[str, Any]:
        """The reasons, the most frequent first."""
        ordered = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return {reason: {"count": count, "events": self._samples[reason]} for reason, count in ordered}
