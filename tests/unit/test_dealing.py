"""The order in which tests are given to workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.dealing import deal


def test_each_worker_begins_with_its_share_of_the_long_ones() -> None:
    assert list(deal("abcdefgHIJ", 3, str.isupper)) == ["H", "a", "b", "I", "c", "d", "J", "e", "f", "g"]


@given(st.lists(st.integers(0, 99)), st.integers(2, 8), st.integers(0, 100))
def test_nothing_is_lost_or_doubled(items: list[int], workers: int, limit: int) -> None:
    assert sorted(deal(items, workers, lambda item: item >= limit)) == sorted(items)
