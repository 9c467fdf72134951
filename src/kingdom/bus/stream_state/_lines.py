"""The lines events stand in: by time, and by aggregate."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kingdom.bus.stream_state._entry import Entry

_pushes = count()  # makes heap items unique, so that events themselves are never compared
_SLACK: Final = 64  # stale items a heap may hold beyond its live ones before it is rebuilt


class Heap:
    """Entries by time, then publish order. Removing is O(1): the item is emptied and skipped when it comes up."""

    __slots__ = ("_items", "_live")

    def __init__(self) -> None:
        self._items: list[list[Any]] = []
        self._live = 0

    def push(self, when: float, entry: Entry) -> None:
        """Put an entry in, which must be in no heap."""
        entry.item = [when, entry.seq, next(_pushes), entry]
        entry.heap = self
        self._live += 1
        heapq.heappush(self._items, entry.item)

    def remove(self, entry: Entry) -> None:
        """Take an entry out, wherever it stands."""
        assert entry.item is not None
        entry.item[3] = None
        entry.item = entry.heap = None
        self._live -= 1
        if len(self._items) > 2 * self._live + _SLACK:
            self._items = [item for item in self._items if item[3] is not None]
            heapq.heapify(self._items)

    def first(self) -> list[Any] | None:
        """The first item, ``[when, seq, number, entry]``, or None."""
        items = self._items
        while items and items[0][3] is None:
            heapq.heappop(items)
        return items[0] if items else None

    def pop(self) -> Entry:
        """Take out the entry that :meth:`first` showed."""
        entry: Entry = heapq.heappop(self._items)[3]
        entry.item = entry.heap = None
        self._live -= 1
        return entry


class Lane:
    """One aggregate of an ordered stream: its unfinished events in publish order."""

    __slots__ = ("_items", "armed", "busy")

    def __init__(self) -> None:
        self._items: list[tuple[int, int, Entry]] = []
        self.busy = 0  # how many are held under a lease that has not ended
        self.armed: Entry | None = None  # the one that stands in the heaps

    def add(self, entry: Entry) -> None:
        """Queue an entry in publish order."""
        if not entry.in_lane:
            entry.in_lane = True
            heapq.heappush(self._items, (entry.seq, next(_pushes), entry))

    def head(self, park: bool) -> Entry | None:
        """The first unfinished entry; a DEAD one counts when the stream parks behind it."""
        while self._items:
            entry = self._items[0][2]
            if entry.status in ("PENDING", "PROCESSING") or (park and entry.status == "DEAD"):
                return entry
            heapq.heappop(self._items)
            entry.in_lane = False
        return None
