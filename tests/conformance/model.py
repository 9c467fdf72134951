"""What a bus does, as simply as it can be said: a list of events, walked from start to end for everything."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal

RANKS = {"high": 0, "normal": 1, "low": 2}
Kind = Literal["plain", "go-on", "park"]  # ordered streams by what a dead head does


@dataclass(slots=True)
class Event:
    """One event of the model."""

    event_id: str
    event_type: str
    aggregate: str
    rank: int
    ready: float  # since when it can be claimed
    late: bool = False  # it became ready otherwise than by being published
    status: str = "PENDING"
    attempts: int = 0
    token: int = 0  # of the claim that holds it
    worker: str = ""
    lease_end: float = 0.0
    ended: float = 0.0
    code: str | None = None
    shard: int = 0


@dataclass
class Model:
    """One stream, in publish order."""

    kind: Kind = "plain"
    now: float = 0.0
    events: list[Event] = field(default_factory=list)
    _tokens: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def get(self, event_id: str) -> Event | None:
        return next((item for item in self.events if item.event_id == event_id), None)

    def publish(self, new: Iterable[Event]) -> list[str]:
        accepted = []
        for item in new:
            if self.get(item.event_id) is None:
                self.events.append(item)
                accepted.append(item.event_id)
        return accepted

    def claim(
        self,
        claimed: list[str],
        buried: Collection[str],
        *,
        worker: str,
        limit: int,
        lease: float,
        types: Collection[str] | None,
        ids: Collection[str] | None,
        max_attempts: int,
        hurried: bool = False,
    ) -> list[Event]:
        """Follow a claim of the store, after making sure that it was a right one.

        Spent events are buried when a claim meets them; one that came back with less than it asked for has met them
        all. A ``hurried`` claim may leave for later what did not become ready by being published. Across shards the
        order holds unless the claim buried something: it goes on behind that, in the same shard.
        """
        wanted = [item for item in self._of(types) if ids is None or item.event_id in ids]
        free_before = [item for item in wanted if self._free(item) and not self._spent(item, max_attempts)]
        while due := [item for item in wanted if item.event_id in buried and self._free(item)]:
            for item in due:
                assert self._spent(item, max_attempts), f"{item} was buried, and had attempts left"
                self._end(item, "DEAD", "LEASE_EXPIRED")
        assert all(self._status_of(event_id) == "DEAD" for event_id in buried), "buried out of turn"
        free = [item for item in wanted if self._free(item)]
        if len(claimed) < limit and not hurried:
            assert not [item for item in free if self._spent(item, max_attempts)], "a spent event was left"
        free = [item for item in free if not self._spent(item, max_attempts)]
        chosen = [item for event_id in claimed for item in free if item.event_id == event_id]
        assert len(chosen) == len(claimed), f"{claimed} are not all among {free}"
        least = min(1, len(free)) if hurried else min(limit, len(free))
        assert least <= len(chosen) <= limit, f"{claimed} are not {limit} of {free}"
        # What a burial set free in this very claim may wait for the next.
        passed_over = [item for item in free_before if item not in chosen and not (hurried and self._late(item))]
        for place, item in enumerate(chosen):
            for other in [*chosen[place + 1 :], *passed_over]:
                if item.shard == other.shard or not buried:
                    assert self._place(item) < self._place(other), f"{other} goes before {item}"
        for item in chosen:
            item.late = self._late(item)
            item.status, item.worker = "PROCESSING", worker
            item.token, item.lease_end = next(self._tokens), self.now + lease
            item.attempts += 1
        return chosen

    def recall(self, worker: str, lease: float) -> list[Event]:
        held = [item for item in self.events if item.status == "PROCESSING" and item.worker == worker]
        for item in held:
            item.token, item.lease_end = next(self._tokens), self.now + lease
        return sorted(held, key=self._place)

    def peek(self, limit: int, types: Collection[str] | None, skip: Collection[str]) -> list[Event]:
        free = [item for item in self._of(types) if self._free(item) and item.event_id not in skip]
        return sorted(free, key=self._place)[:limit]

    def done(self, event_id: str, token: int) -> bool:
        return (item := self._held(event_id, token)) is not None and self._end(item, "DONE", item.code)

    def dead(self, event_id: str, token: int, code: str) -> bool:
        return (item := self._held(event_id, token)) is not None and self._end(item, "DEAD", code)

    def retry(self, event_id: str, token: int, after: float, code: str) -> bool:
        if item := self._held(event_id, token):
            item.status, item.code = "PENDING", code
            item.ready, item.late = self.now + after, True
        return item is not None

    def release(self, event_id: str, token: int) -> bool:
        if item := self._held(event_id, token):
            item.status, item.late = "PENDING", True
            item.attempts -= 1
        return item is not None

    def extend(self, event_id: str, token: int, lease: float) -> bool:
        if item := self._held(event_id, token):
            item.lease_end = self.now + lease
        return item is not None

    def requeue(self, ids: Collection[str] | None, event_type: str | None, code: str | None) -> int:
        moved = [
            item
            for item in self.events
            if (item.status == "DEAD" or (item.status == "DONE" and ids is not None))
            and (ids is None or item.event_id in ids)
            and (event_type is None or item.event_type == event_type)
            and (code is None or item.code == code)
        ]
        for item in moved:
            item.status, item.attempts, item.code = "PENDING", 0, None
            item.ready, item.late = self.now, True
        return len(moved)

    def purge(self, older_than: float, dead: bool) -> int:
        ended = ("DONE", "DEAD") if dead else ("DONE",)
        gone = [item for item in self.events if item.status in ended and item.ended < self.now - older_than]
        self.events = [item for item in self.events if item not in gone]
        return len(gone)

    def counts(self) -> tuple[int, int, int]:
        held = sum(item.status == "PROCESSING" and not self._expired(item) for item in self.events)
        return len(self._waiting()), held, sum(item.status == "DEAD" for item in self.events)

    def pending_types(self) -> dict[str, int]:
        return Counter(item.event_type for item in self._waiting())

    def _of(self, types: Collection[str] | None) -> list[Event]:
        return [item for item in self.events if types is None or item.event_type in types]

    def _waiting(self) -> list[Event]:
        return [item for item in self.events if item.status == "PENDING" or self._expired(item)]

    def _expired(self, item: Event) -> bool:
        return item.status == "PROCESSING" and item.lease_end <= self.now

    def _place(self, item: Event) -> tuple[int, float, int]:
        return item.rank, item.ready, self.events.index(item)

    def _late(self, item: Event) -> bool:
        return item.late or item.status == "PROCESSING"

    def _status_of(self, event_id: str) -> str | None:
        return item.status if (item := self.get(event_id)) else None

    def _spent(self, item: Event, max_attempts: int) -> bool:
        return item.status == "PROCESSING" and item.attempts >= max_attempts

    def _free(self, item: Event) -> bool:
        due = self._expired(item) or (item.status == "PENDING" and item.ready <= self.now)
        return due and (self.kind == "plain" or self._first_of_its_aggregate(item))

    def _first_of_its_aggregate(self, item: Event) -> bool:
        unfinished = ("PENDING", "PROCESSING", "DEAD") if self.kind == "park" else ("PENDING", "PROCESSING")
        mates = [other for other in self.events if other.aggregate == item.aggregate and other.status in unfinished]
        return mates[0] is item and not any(
            other.status == "PROCESSING" and not self._expired(other) for other in mates
        )

    def _held(self, event_id: str, token: int) -> Event | None:
        item = self.get(event_id)
        return item if item and item.status == "PROCESSING" and item.token == token else None

    def _end(self, item: Event, status: str, code: str | None) -> bool:
        item.status, item.code, item.ended = status, code, self.now
        return True
