"""The lines events stand in: by time, and by aggregate."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.bus.stream_state._entry import Entry

_pushes = count()  # makes heap items unique, so that events themselves are never compared
_SLACK: Final = 64  # stale items a heap may hold beyond its live ones before it is rebuilt


class Heap:
    """Entries by time, then publish order.

    Most come in that order already: those stand in a plain queue, and only the others in a heap, so that a line of
    100,000 is as quick as one of 100. Removing is O(1): the item is emptied and skipped when it comes up.
    """

    __slots__ = ("_heap", "_live", "_queue")

    def __init__(self) -> None:
        self._queue: deque[list[Any]] = deque()
        self._heap: list[list[Any]] = []
        self._live = 0

    def __len__(self) -> int:
        """How many items are kept, emptied ones included."""
        return len(self._queue) + len(self._heap)

    def __iter__(self) -> Iterator[list[Any]]:
        """The items in order, read as they are asked for; nothing may change meanwhile."""
        return (item for item in heapq.merge(self._queue, sorted(self._heap)) if item[3] is not None)

    def push(self, when: float, entry: Entry) -> None:
        """Put an entry in, which must be in no heap."""
        item = entry.item = [when, entry.seq, next(_pushes), entry]
        entry.heap = self
        self._live += 1
        if not self._queue or item > self._queue[-1]:
            self._queue.append(item)
        else:
            heapq.heappush(self._heap, item)

    def remove(self, entry: Entry) -> None:
        """Take an entry out, wherever it stands."""
        assert entry.item is not None
        entry.item[3] = None
        entry.item = entry.heap = None
        self._live -= 1
        if len(self) > 2 * self._live + _SLACK:
            self._queue = deque(item for item in self._queue if item[3] is not None)
            self._heap = [item for item in self._heap if item[3] is not None]
            heapq.heapify(self._heap)

    def first(self) -> list[Any] | None:
        """The first item, ``[when, seq, number, entry]``, or None."""
        queue, heap = self._queue, self._heap
        while queue and queue[0][3] is None:
            queue.popleft()
        while heap and heap[0][3] is None:
            heapq.heappop(heap)
        if not heap:
            return queue[0] if queue else None
        return heap[0] if not queue or heap[0] < queue[0] else queue[0]

    def pop(self, first: list[Any]) -> Entry:
        """Take out the item that :meth:`first` showed."""
        if self._queue and self._queue[0] is first:
            self._queue.popleft()
        else:
            heapq.heappop(self._heap)
        entry: Entry = first[3]
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
