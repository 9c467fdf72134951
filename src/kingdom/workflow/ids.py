"""Ids of workflows and what belongs to them."""

from __future__ import annotations

from kingdom.bus.ids import new_event_id


class TimeOrderedIds:
    """``wf-0198c2…``: UUIDs of version 7, so that what is made later sorts later."""

    def __init__(self) -> None:
        self._last = ""

    def new(self, kind: str) -> str:
        """An id nobody has."""
        made = new_event_id()
        while made <= self._last:  # of the same millisecond, or the clock was set back: the order is kept here
            made = f"{self._last[:-12]}{int(self._last[-12:], 16) + 1:012x}"
        self._last = made
        return f"{kind}-{made}"
