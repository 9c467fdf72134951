"""Which shard an event belongs to."""

from __future__ import annotations

from collections import Counter

import pytest

from kingdom.bus.transports.kafka._membership import group_name, is_group_of
from kingdom.bus.transports.kafka._routing import PublishSequence, murmur2, shard_of


@pytest.mark.parametrize(
    ("key", "value"),
    [  # what the Java client computes, as a signed number
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_the_hash_is_that_of_the_java_client(key: bytes, value: int) -> None:
    assert murmur2(key) == value % (1 << 32)


def test_events_of_one_aggregate_share_a_shard_whatever_their_ids() -> None:
    assert len({shard_of(f"e{number}", "Order", "7", 16) for number in range(50)}) == 1
    assert len({shard_of(f"e{number}", "Order", None, 16) for number in range(50)}) == 1
    assert shard_of("e1", "Push", "7", 16) == shard_of("e2", "Order", "7", 16)  # the key is the id alone


def test_events_without_an_aggregate_are_spread_by_their_ids() -> None:
    shares = Counter(shard_of(f"e{number}", None, None, 4) for number in range(4000))
    assert sorted(shares) == [0, 1, 2, 3]
    assert min(shares.values()) > 800


def test_publish_order_is_kept_within_one_nanosecond() -> None:
    sequence = PublishSequence()
    numbers = [sequence.next() for _ in range(1000)]
    assert numbers == sorted(set(numbers))


def test_processes_share_a_group_when_they_claim_the_same_types() -> None:
    names = [group_name("shop.orders", types) for types in (None, ["A"], ["A", "B"], ["B", "A"])]
    assert names[2] == names[3]
    assert len(set(names)) == 3
    assert all(is_group_of(name, "shop.orders") for name in names)
    assert not is_group_of(group_name("shop.orders.late", None), "shop.orders")
