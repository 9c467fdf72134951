"""The histogram of durations: percentiles within 2 %, of any period that is put together from parts."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kingdom.court.rollups.sketch import (
    MAX_SECONDS,
    MIN_SECONDS,
    RELATIVE_ERROR,
    ZERO_SLOT,
    percentile,
    seconds_of,
    slot_of,
)
from tests.support.searching import examples

DURATIONS = st.floats(MIN_SECONDS, MAX_SECONDS, allow_nan=False)


def within_the_error(found: float | None, exact: float) -> bool:
    return found is not None and abs(found - exact) <= RELATIVE_ERROR * exact * (1 + 1e-9)


@settings(max_examples=examples(200), deadline=None)
@given(DURATIONS)
@example(MIN_SECONDS)
@example(MAX_SECONDS)
@example(1.0)
def test_what_stands_for_a_slot_is_near_every_duration_in_it(seconds: float) -> None:
    assert within_the_error(seconds_of(slot_of(seconds)), seconds)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(DURATIONS, max_size=20), min_size=1, max_size=8), st.sampled_from([1, 50, 95, 99, 100]))
def test_a_percentile_of_merged_periods_is_that_of_all_their_durations(parts: list[list[float]], percent: int) -> None:
    merged: Counter[int] = Counter()
    for part in parts:
        merged += Counter(map(slot_of, part))
    everything = sorted(seconds for part in parts for seconds in part)
    found = percentile(merged, percent)
    if not everything:
        assert found is None
    else:
        exact = everything[math.ceil(len(everything) * percent / 100) - 1]
        assert within_the_error(found, exact), f"{found} instead of {exact}"


def test_no_time_at_all_is_zero_and_a_decade_is_the_most() -> None:
    assert slot_of(0.0) == slot_of(0.0005) == ZERO_SLOT
    assert seconds_of(ZERO_SLOT) == 0.0
    assert slot_of(1e300) == slot_of(MAX_SECONDS)
    assert percentile({ZERO_SLOT: 3, slot_of(10.0): 1}, 50) == 0.0


def test_a_slot_is_a_small_number() -> None:
    assert -200 < slot_of(MIN_SECONDS) < slot_of(MAX_SECONDS) < 550
    assert percentile({}, 50) is None
    assert percentile({5: 1}, 0) == pytest.approx(seconds_of(5)), "the lowest rank is 1"
