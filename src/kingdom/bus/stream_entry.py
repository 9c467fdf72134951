"""One active event of a stream, and the queues that hold it."""

from __future__ import annotations

import heapq
import sys
from collections import deque
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus.delivery import Record
from kingdom.bus.envelope import PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.bus.delivery import Status
    from kingdom.bus.envelope import Envelope


NORMAL: Final = PRIORITIES.index("normal")  # priorities are kept as their index in claim order
LEASE_EXPIRED: Final = "LEASE_EXPIRED"  # the error code of an event whose worker died on its last attempt


class EventEntry:
    """One active event. Only :class:`~kingdom.bus.stream_state.StreamStateMachine` changes it."""

    __slots__ = (
        "aggregate",
        "attempts",
        "created_at",
        "ended_at",
        "error_code",
        "error_message",
        "event_id",
        "expired",
        "heap",
        "in_lane",
        "item",
        "priority",
        "ready_at",
        "seq",
        "status",
        "token",
        "type",
        "until",
        "worker",
    )

    def __init__(
        self,
        event_id: str,
        type: str,  # noqa: A002
        *,
        seq: int,
        created_at: float,
        ready_at: float,
        aggregate: str = "",
        priority: int = NORMAL,
    ) -> None:
        self.event_id = event_id
        self.type = type
        self.aggregate = aggregate
        self.priority = priority
        self.seq = seq  # the position in publish order
        self.created_at = created_at
        self.ready_at = ready_at  # when it became claimable; an expired lease does not change it
        self.status: Status = "PENDING"
        self.attempts = 0
        self.token: str | None = None
        self.worker: str | None = None
        self.until = 0.0  # the end of the lease
        self.expired = False  # the lease ended without a verdict
        self.error_code: str | None = None
        self.error_message: str | None = None
        self.ended_at: float | None = None  # when it went DEAD
        self.heap: EntryHeap | None = None
        self.item: list[Any] | None = None
        self.in_lane = False

    @property
    def place(self) -> tuple[int, float, int]:
        """The position in claim order."""
        return self.priority, self.ready_at, self.seq

    @property
    def claimable(self) -> bool:
        """Whether it counts as pending: PENDING, or held under an expired lease."""
        return self.expired or self.status == "PENDING"

    @property
    def expiry_message(self) -> str:
        """The error message of an event that goes DEAD because its last lease ended."""
        return f"the lease of {self.worker} ended without a verdict on attempt {self.attempts}, the last one"

    def spent(self, max_attempts: int) -> bool:
        """Return whether its lease ended on its last attempt, so that it must not be delivered again."""
        return self.expired and self.attempts >= max_attempts

    def record(self, stream: str, envelope: Envelope) -> Record:
        """Return what ``bus.find`` shows."""
        held = self.status == "PROCESSING"
        return Record(
            stream=stream,
            envelope=envelope,
            status=self.status,
            attempts=self.attempts,
            created_at=utc_datetime(self.created_at),
            next_retry_at=utc_datetime(self.ready_at) if self.status == "PENDING" else None,
            locked_by=self.worker if held else None,
            locked_until=utc_datetime(self.until) if held else None,
            error_code=self.error_code,
            error_message=self.error_message,
            finished_at=None if self.ended_at is None else utc_datetime(self.ended_at),
        )


def new_entry(envelope: Envelope, *, seq: int, now: float) -> EventEntry:
    """Return the entry of an event that is published now."""
    not_before = 0.0 if envelope.not_before is None else envelope.not_before.timestamp()
    return EventEntry(
        envelope.event_id,
        envelope.type,
        seq=seq,
        created_at=now,
        ready_at=max(not_before, now),
        aggregate=aggregate_key(envelope),
        priority=PRIORITIES.index(envelope.priority),
    )


def entry_row(entry: EventEntry) -> list[Any]:
    """Return an entry as a row of JSON values; an event that was only published has a short form."""
    head = [
        entry.event_id,
        entry.type,
        entry.aggregate,
        entry.priority,
        entry.seq,
        entry.created_at,
        entry.ready_at,
    ]
    if entry.status == "PENDING" and not entry.attempts and entry.error_code is None:
        return head
    return [
        *head,
        entry.status,
        entry.attempts,
        entry.token,
        entry.worker,
        entry.until,
        entry.error_code,
        entry.error_message,
        entry.ended_at,
    ]


def entry_from_row(fields: list[Any]) -> EventEntry:
    """Return the entry of such a row."""
    event_id, kind, aggregate, priority, seq, created_at, ready_at, *rest = fields
    entry = EventEntry(
        event_id,
        sys.intern(kind),
        seq=seq,
        created_at=created_at,
        ready_at=ready_at,
        aggregate=aggregate,
        priority=priority,
    )
    if rest:
        (
            entry.status,
            entry.attempts,
            entry.token,
            entry.worker,
            entry.until,
            entry.error_code,
            entry.error_message,
            entry.ended_at,
        ) = rest
    return entry


def aggregate_key(envelope: Envelope) -> str:
    """Return the key of the event's aggregate; events without an aggregate share one key."""
    if envelope.aggregate_type is None and envelope.aggregate_id is None:
        return ""
    return f"{envelope.aggregate_type or ''}\x1f{envelope.aggregate_id or ''}"


def utc_datetime(seconds: float) -> datetime:
    """Return a time of the clock as a datetime in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


_pushes = count()  # makes heap items unique, so that entries are never compared
_MAX_STALE_ITEMS: Final = 64  # beyond the live ones, before a heap is rebuilt


class EntryHeap:
    """Entries by time, then publish order.

    Most arrive in that order already: those go into a plain queue, and only the others into a heap, so that 100,000
    entries are as fast as 100. Removing is O(1): the item is emptied, and skipped when it comes first.
    """

    __slots__ = ("_heap", "_queue", "live")

    def __init__(self) -> None:
        self._queue: deque[list[Any]] = deque()
        self._heap: list[list[Any]] = []
        self.live = 0  # entries

    def __len__(self) -> int:
        """Return the number of items, including emptied ones."""
        return len(self._queue) + len(self._heap)

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield the items in order; the heap must not change meanwhile."""
        return (item for item in heapq.merge(self._queue, sorted(self._heap)) if item[3] is not None)

    def push(self, when: float, entry: EventEntry) -> None:
        """Add an entry that is in no heap."""
        item = entry.item = [when, entry.seq, next(_pushes), entry]
        entry.heap = self
        self.live += 1
        if not self._queue or item > self._queue[-1]:
            self._queue.append(item)
        else:
            heapq.heappush(self._heap, item)

    def remove(self, entry: EventEntry) -> None:
        """Remove an entry from any position."""
        item, queue = entry.item, self._queue
        assert item is not None
        item[3] = entry.item = entry.heap = None
        self.live -= 1
        if queue and queue[0] is item:
            queue.popleft()
        elif len(queue) + len(self._heap) > 2 * self.live + _MAX_STALE_ITEMS:
            self._queue = deque(item for item in self._queue if item[3] is not None)
            self._heap = [item for item in self._heap if item[3] is not None]
            heapq.heapify(self._heap)

    def first(self) -> list[Any] | None:
        """Return the first item, ``[when, seq, number, entry]``, or None."""
        queue, heap = self._queue, self._heap
        while queue and queue[0][3] is None:
            queue.popleft()
        while heap and heap[0][3] is None:
            heapq.heappop(heap)
        if not heap:
            return queue[0] if queue else None
        return heap[0] if not queue or heap[0] < queue[0] else queue[0]

    def pop(self, first: list[Any]) -> EventEntry:
        """Remove the item that :meth:`first` returned."""
        if self._queue and self._queue[0] is first:
            self._queue.popleft()
        else:
            heapq.heappop(self._heap)
        entry: EventEntry = first[3]
        entry.item = entry.heap = None
        self.live -= 1
        return entry


class AggregateQueue:
    """The unfinished events of one aggregate of an ordered stream, in publish order."""

    __slots__ = ("_items", "armed", "busy")

    def __init__(self) -> None:
        self._items: list[tuple[int, int, EventEntry]] = []
        self.busy = 0  # how many are held under a valid lease
        self.armed: EventEntry | None = None  # the one that is in a heap

    def add(self, entry: EventEntry) -> None:
        """Add an entry, in publish order."""
        if not entry.in_lane:
            entry.in_lane = True
            heapq.heappush(self._items, (entry.seq, next(_pushes), entry))

    def head(self, park: bool) -> EventEntry | None:
        """Return the first unfinished entry; a DEAD one counts if the stream parks behind it."""
        while self._items:
            entry = self._items[0][2]
            if entry.status in ("PENDING", "PROCESSING") or (park and entry.status == "DEAD"):
                return entry
            heapq.heappop(self._items)
            entry.in_lane = False
        return None
