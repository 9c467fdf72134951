"""What is seen of a stream: the views of its shards, put together."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Container, Sequence
from itertools import islice
from typing import TypeVar

from kingdom.bus.delivery import DeadLetter, Depth, Record
from kingdom.bus.envelope import Envelope
from kingdom.bus.stream_entry import EventEntry, utc_datetime
from kingdom.bus.transports.kafka._shard import Shard
from kingdom.bus.transports.kafka._stream import ObservedShard, rank_of

T = TypeVar("T")
EntryInShard = tuple[Shard, EventEntry]


async def peek(
    stream: str, shards: Sequence[ObservedShard], limit: int, types: Sequence[str] | None, skip: Container[str]
) -> list[Record]:
    """Return what could be claimed now, in claim order."""

    def line(shard: Shard, now: float) -> list[EntryInShard]:
        unknown = (entry for entry in shard.state.machine.line(now, types) if entry.event_id not in skip)
        return [(shard, entry) for entry in islice(unknown, limit)]

    lines = [line(shard, now) for shard, now in shards]
    first = islice(heapq.merge(*lines, key=lambda item: rank_of(item[0], item[1].place)), limit)
    return await _shown(list(first), lambda entry, envelope: entry.record(stream, envelope))


def depth(shards: Sequence[ObservedShard]) -> Depth | None:
    """Count the events of a stream; None if it was not declared and has none."""
    if not any(shard.state.options or len(shard.state.machine) for shard, _ in shards):
        return None
    depths = [shard.state.machine.depth(now) for shard, now in shards]
    pending, processing, dead = (sum(one[index] for one in depths) for index in range(3))
    return Depth(int(pending), int(processing), int(dead), max(one.oldest_pending_seconds for one in depths))


def pending_types(shards: Sequence[ObservedShard]) -> dict[str, int]:
    """Count the waiting events by type."""
    total: Counter[str] = Counter()
    for shard, now in shards:
        total.update(shard.state.machine.pending_types(now))
    return dict(total)


async def dead(shards: Sequence[ObservedShard], limit: int) -> list[DeadLetter]:
    """Return the latest dead letters, newest first."""
    lines = [[(shard, entry) for entry in shard.state.machine.dead(limit)] for shard, _ in shards]
    newest = heapq.merge(*lines, key=lambda item: item[1].ended_at or 0, reverse=True)
    return await _shown(list(islice(newest, limit)), _letter)


async def find(stream: str, shards: Sequence[ObservedShard], event_id: str) -> Record | None:
    """Return everything known about one event."""
    for shard, _ in shards:
        entry, done = shard.state.machine.get(event_id), shard.state.done_event(event_id)
        if entry is not None or done is not None:
            offset = entry.seq if entry is not None else done.offset if done is not None else 0
            envelope = (await _envelopes(shard, [offset])).get(offset)
            envelope = envelope or Envelope.unreadable(event_id, "unreadable", "")
            if entry is not None:
                return entry.record(stream, envelope)
            assert done is not None
            return done.record(stream, envelope)
    return None


async def _shown(entries: Sequence[EntryInShard], show: Callable[[EventEntry, Envelope], T]) -> list[T]:
    """Return what is shown of entries whose contents are there."""
    offsets: dict[Shard, list[int]] = {}
    for shard, entry in entries:
        offsets.setdefault(shard, []).append(entry.seq)
    envelopes = {shard: await _envelopes(shard, some) for shard, some in offsets.items()}
    return [show(entry, envelopes[shard][entry.seq]) for shard, entry in entries if entry.seq in envelopes[shard]]


async def _envelopes(shard: Shard, offsets: Sequence[int]) -> dict[int, Envelope]:
    return {offset: text.shown() for offset, text in (await shard.texts(offsets)).items()}


def _letter(entry: EventEntry, envelope: Envelope) -> DeadLetter:
    ended_at = utc_datetime(entry.ended_at or 0)
    return DeadLetter(entry.event_id, envelope, entry.attempts, entry.error_code, entry.error_message, ended_at)
