"""The state of one stream in memory: what waits, what is held, what is dead, and what comes next.

No input or output, and the time is passed in. The ``memory`` and ``files`` transports use it. It keeps active events
only; an event that is DONE is removed, so that nothing grows with history. Every operation on an event is O(log n).

An event is in one of three heaps at a time:

* ``waiting``: pending with a delay, ordered by the time it becomes ready;
* ``ready``: claimable now, one heap for each priority and type, ordered by the time it became ready;
* ``leases``: held, ordered by the end of the lease.

In an ordered stream only the first unfinished event of each aggregate is in a heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from kingdom.bus.delivery import Depth
from kingdom.bus.stream_entry import (
    AggregateQueue,
    EntryHeap,
    EventEntry,
)

if TYPE_CHECKING:
    from kingdom.bus.delivery import DeadHead


class StreamStateMachine:
    """The active events of one stream."""

    def __init__(self, *, ordered: bool = False, dead_head: DeadHead = "go-on") -> None:
        self._entries: dict[str, EventEntry] = {}
        self.last_seq = 0  # the highest position in publish order so far
        self._dead: dict[str, EventEntry] = {}  # in the order they died
        self._reset(ordered, dead_head)

    def _reset(self, ordered: bool, dead_head: DeadHead) -> None:
        self.ordered = ordered
        self._park = dead_head == "park"
        self._types: dict[str, int] = {}  # of waiting events
        self._waiting = EntryHeap()
        self._leases = EntryHeap()
        self._ready: tuple[dict[str, EntryHeap], ...] = ({}, {}, {})
        self._lanes: dict[str, AggregateQueue] = {}

    def configure(self, *, ordered: bool, dead_head: DeadHead) -> None:
        """Change the options of the stream; O(n) if they differ."""
        if (ordered, dead_head == "park") == (self.ordered, self._park):
            return
        self._reset(ordered, dead_head)
        for entry in self._entries.values():
            entry.heap = entry.item = None
            entry.in_lane = False
            self._enter(entry)

    # ── look up ───────────────────────────────────────────────────────────────────────────────────────────────

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[EventEntry]:
        return iter(self._entries.values())

    def get(self, event_id: str) -> EventEntry | None:
        """Return the active event with this id, if there is one."""
        return self._entries.get(event_id)

    def held(self, event_id: str, token: str) -> EventEntry | None:
        """Return the event if it is held under this token; None means that the lease was lost."""
        entry = self._entries.get(event_id)
        return entry if entry is not None and entry.token == token else None

    def depth(self, now: float) -> Depth:
        """Count the events by state."""
        self.advance(now)
        heads = [item[0] for heaps in self._ready for heap in heaps.values() if (item := heap.first())]
        oldest = max(0.0, now - min(heads)) if heads else 0.0
        held, dead = self._leases.live, len(self._dead)
        return Depth(len(self._entries) - held - dead, held, dead, oldest)

    def pending_types(self, now: float) -> dict[str, int]:
        """Count the waiting events by type."""
        self.advance(now)
        return dict(self._types)

    def dead(self, limit: int | None = None) -> list[EventEntry]:
        """Return dead events, newest first."""
        return list(islice(reversed(self._dead.values()), limit))

    def next_change(self) -> float | None:
        """Return when the next lease ends or the next waiting event becomes ready, if there is such an event."""
        firsts = [item[0] for heap in (self._leases, self._waiting) if (item := heap.first())]
        return min(firsts, default=None)

    def has_ready(self) -> bool:
        """Return whether anything could be taken without time passing."""
        return any(heap.first() for heaps in self._ready for heap in heaps.values())

    # ── change ────────────────────────────────────────────────────────────────────────────────────────────────

    def advance(self, now: float) -> None:
        """Advance the time: leases end, and waiting events become ready."""
        while (item := self._leases.first()) and item[0] <= now:
            entry: EventEntry = item[3]
            self._leave(entry)
            entry.expired = True
            self._enter(entry)
        while (item := self._waiting.first()) and item[0] <= now:
            self._make_ready(self._waiting.pop(item))

    def add(self, entry: EventEntry) -> None:
        """Add an event that is not there yet, in any status."""
        assert entry.event_id not in self._entries, entry.event_id
        self._entries[entry.event_id] = entry
        self.last_seq = max(self.last_seq, entry.seq)
        self._enter(entry)

    def remove(self, entry: EventEntry) -> None:
        """Remove an event that is DONE or gone."""
        self._leave(entry)
        del self._entries[entry.event_id]
        entry.status = "DONE"
        if self.ordered:
            self._refresh(entry.aggregate)

    def take(self, now: float, limit: int, types: Iterable[str] | None = None) -> list[EventEntry]:
        """Take up to ``limit`` claimable events out of the heaps, in claim order.

        The caller then calls ``hold``, ``bury``, ``remove`` or ``put_back`` for each.
        """
        self.advance(now)
        taken: list[EventEntry] = []
        wanted = None if types is None else set(types)
        for heaps in self._ready:
            # Merging the heaps of the types is as cheap as one heap for all, and other types cost nothing.
            firsts = [
                (item, kind, heap)
                for kind, heap in heaps.items()
                if (wanted is None or kind in wanted) and (item := heap.first())
            ]
            heapq.heapify(firsts)
            while firsts and len(taken) < limit:
                item, kind, heap = firsts[0]
                taken.append(heap.pop(item))
                if following := heap.first():
                    heapq.heapreplace(firsts, (following, kind, heap))
                else:
                    heapq.heappop(firsts)
                    del heaps[kind]
            if len(taken) == limit:
                break
        return taken

    def take_named(
        self, now: float, ids: Iterable[str], limit: int, types: Iterable[str] | None = None
    ) -> list[EventEntry]:
        """Take only events with these ids."""
        self.advance(now)
        wanted = None if types is None else set(types)
        named = (self._entries.get(event_id) for event_id in dict.fromkeys(ids))
        ready = [
            entry
            for entry in named
            if entry is not None and self._in_line(entry) and (wanted is None or entry.type in wanted)
        ]
        taken = heapq.nsmallest(limit, ready, key=lambda entry: entry.place)
        for entry in taken:
            assert entry.heap is not None
            entry.heap.remove(entry)
        return taken

    def line(self, now: float, types: Iterable[str] | None = None) -> Iterator[EventEntry]:
        """Yield what could be taken now, in claim order. Nothing may change meanwhile."""
        self.advance(now)
        wanted = None if types is None else set(types)
        for heaps in self._ready:
            kinds = [heap for kind, heap in heaps.items() if wanted is None or kind in wanted]
            yield from (item[3] for item in heapq.merge(*kinds))

    def held_by(self, worker: str) -> list[EventEntry]:
        """Return what a worker holds, in claim order, including expired leases that were not claimed again."""
        held = [entry for entry in self._entries.values() if entry.status == "PROCESSING" and entry.worker == worker]
        return sorted(held, key=lambda entry: entry.place)

    def put_back(self, entry: EventEntry) -> None:
        """Undo ``take`` for one event."""
        self._leave(entry)
        self._enter(entry)

    def hold(self, entry: EventEntry, token: str, worker: str, until: float) -> None:
        """Count an attempt and hold the event under a lease."""
        self._leave(entry)
        entry.status, entry.expired = "PROCESSING", False
        entry.attempts += 1
        entry.token, entry.worker, entry.until = token, worker, until
        self._enter(entry)

    def recall(self, entry: EventEntry, token: str, until: float) -> None:
        """Hold an event for the same worker and attempt under another token."""
        self._leave(entry)
        entry.token, entry.until, entry.expired = token, until, False
        self._enter(entry)

    def extend(self, entry: EventEntry, until: float) -> None:
        """Change the end of the lease."""
        self._leave(entry)
        entry.until, entry.expired = until, False
        self._enter(entry)

    def retry(self, entry: EventEntry, ready_at: float, code: str | None, message: str | None) -> None:
        """Return to PENDING, claimable from ``ready_at`` on."""
        entry.error_code, entry.error_message = code, message
        self._return(entry, ready_at)

    def release(self, entry: EventEntry) -> None:
        """Return to PENDING as if it had not been claimed: with its old position and attempts."""
        entry.attempts = max(0, entry.attempts - 1)
        self._return(entry, entry.ready_at)

    def requeue(self, entry: EventEntry, now: float) -> None:
        """Return to PENDING with no attempts counted. A DONE event, which is not kept here, may be passed too."""
        if entry.event_id in self._entries:
            self._leave(entry)
        self._entries[entry.event_id] = entry
        entry.attempts, entry.error_code, entry.error_message, entry.ended_at = 0, None, None, None
        entry.status, entry.ready_at = "PENDING", now
        self._drop_lease(entry)
        self._enter(entry)

    def bury(self, entry: EventEntry, code: str | None, message: str | None, now: float) -> None:
        """Move to DEAD."""
        self._leave(entry)
        entry.status, entry.ended_at = "DEAD", now
        entry.error_code, entry.error_message = code, message
        self._drop_lease(entry)
        self._enter(entry)

    # ── internal ──────────────────────────────────────────────────────────────────────────────────────────────

    def _return(self, entry: EventEntry, ready_at: float) -> None:
        self._leave(entry)
        entry.status, entry.ready_at = "PENDING", ready_at
        self._drop_lease(entry)
        self._enter(entry)

    @staticmethod
    def _drop_lease(entry: EventEntry) -> None:
        entry.token = entry.worker = None
        entry.until, entry.expired = 0.0, False

    def _in_line(self, entry: EventEntry) -> bool:
        return entry.heap is not None and entry.heap is not self._waiting and entry.heap is not self._leases

    def _leave(self, entry: EventEntry) -> None:
        """Remove an event from counts and heaps before it changes. :meth:`_enter` follows."""
        if entry.heap is not None:
            entry.heap.remove(entry)
        if entry.status == "DEAD":
            del self._dead[entry.event_id]
        elif entry.claimable:
            if (left := self._types[entry.type] - 1) > 0:
                self._types[entry.type] = left
            else:
                del self._types[entry.type]
        elif self.ordered:
            self._lanes[entry.aggregate].busy -= 1

    def _enter(self, entry: EventEntry) -> None:
        """Add an event to counts and heaps according to its status."""
        if self.ordered:
            lane = self._lanes.setdefault(entry.aggregate, AggregateQueue())
            lane.add(entry)
        if entry.status == "DEAD":
            self._dead[entry.event_id] = entry
        elif entry.claimable:
            self._types[entry.type] = self._types.get(entry.type, 0) + 1
            if not self.ordered:
                self._line_up(entry)
        else:
            self._leases.push(entry.until, entry)
            if self.ordered:
                lane.busy += 1
        if self.ordered:
            self._refresh(entry.aggregate)

    def _refresh(self, aggregate: str) -> None:
        """Put the first unfinished event of an aggregate into a heap, unless another one of it is held.

        An operator may requeue an earlier event while a later one is held: it waits for that one.
        """
        lane = self._lanes.get(aggregate)
        if lane is None:
            return
        head = lane.head(self._park)
        if head is None:
            del self._lanes[aggregate]
            return
        target = head if head.claimable and not lane.busy else None
        if lane.armed is not None and lane.armed is not target and lane.armed.heap not in (None, self._leases):
            lane.armed.heap.remove(lane.armed)
        lane.armed = target
        if target is not None and target.heap is None:
            self._line_up(target)

    def _line_up(self, entry: EventEntry) -> None:
        if entry.ready_at == entry.created_at:  # ready at once, even if the clock is set back
            self._make_ready(entry)
        else:
            self._waiting.push(entry.ready_at, entry)

    def _make_ready(self, entry: EventEntry) -> None:
        heaps = self._ready[entry.priority]
        if (heap := heaps.get(entry.type)) is None:
            heap = heaps[entry.type] = EntryHeap()
        heap.push(entry.ready_at, entry)
