"""Which shard an event belongs to. Every program that publishes must agree on it."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def shard_of(event_id: str, aggregate_type: str | None, aggregate_id: str | None, shards: int) -> int:
    """Return the shard of an event: that of its aggregate, or of its id if it has none.

    For an event with an aggregate's id this is what the default partitioner of Kafka's Java client does with the key.
    """
    return 0 if shards == 1 else _partition(aggregate_id or aggregate_type or event_id, shards)


@lru_cache(maxsize=10_000)
def _partition(text: str, shards: int) -> int:
    return (murmur2(text.encode()) & 0x7FFFFFFF) % shards


def murmur2(data: bytes) -> int:
    """Return the hash that Kafka's Java client uses."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        value = value * _FACTOR & _MASK ^ word
    if length > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    value = (value ^ value >> 13) * _FACTOR & _MASK
    return value ^ value >> 15


class PublishSequence:
    """Numbers the events that this process publishes, so that those in several shards have an order.

    Nanoseconds since the epoch, or one more than the last number. The shards themselves decide by their own order;
    this one decides only between events of several shards that became ready in the same millisecond.
    """

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last = max(self._last + 1, time.time_ns())
        return self._last
