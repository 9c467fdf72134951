"""The order in which tests are given to workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.dealing import deal


def test_the_first_worker_begins_with_what_belongs_together_the_others_with_what_takes_long() -> None:
    dealt = deal("ab12cdefgHIJ", 3, str.isupper, str.isdigit)
    assert "".join(dealt) == "12ab" + "HJcd" + "Iefg"


@given(st.lists(st.integers(0, 99)), st.integers(2, 8), st.integers(0, 100), st.integers(0, 100))
def test_nothing_is_lost_or_doubled(items: list[int], workers: int, long: int, together: int) -> None:
    dealt = deal(items, workers, lambda item: item >= long, lambda item: item < together)
    assert sorted(dealt) == sorted(items)
