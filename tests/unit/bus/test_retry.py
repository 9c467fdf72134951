from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kingdom.bus import InvalidOption, Reject, Retry, RetryPolicy


def test_delays_grow_by_the_factor_up_to_the_cap() -> None:
    policy = RetryPolicy(base=0.5, factor=2, cap=60, jitter=0)
    assert [policy.delay(attempt) for attempt in range(1, 10)] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]


def test_a_factor_of_one_is_a_constant_delay() -> None:
    assert {RetryPolicy(base=3, factor=1, jitter=0).delay(attempt) for attempt in range(1, 50)} == {3}


def test_an_attempt_number_beyond_all_reason_waits_the_cap() -> None:
    assert RetryPolicy(jitter=0).delay(100_000) == 60


def test_no_delay_stays_no_delay() -> None:
    assert RetryPolicy(base=0).delay(5) == 0


@given(attempt=st.integers(1, 40), seed=st.integers())
def test_jitter_spreads_delays_around_the_exact_one_also_at_the_cap(attempt: int, seed: int) -> None:
    exact = RetryPolicy(jitter=0).delay(attempt)
    delay = RetryPolicy(jitter=0.2).delay(attempt, random.Random(seed))
    assert exact * 0.8 <= delay <= exact * 1.2


def test_events_that_failed_together_do_not_come_back_together() -> None:
    rng = random.Random(1)
    assert len({RetryPolicy().delay(20, rng) for _ in range(100)}) == 100


def test_the_same_seed_gives_the_same_delays() -> None:
    assert RetryPolicy().delay(3, random.Random(7)) == RetryPolicy().delay(3, random.Random(7))


def test_without_a_seed_delays_are_random_too() -> None:
    assert len({RetryPolicy().delay(3) for _ in range(20)}) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base": -1}, "RetryPolicy(base=-1): must be zero or more seconds"),
        ({"factor": 0.5}, "RetryPolicy(factor=0.5): must be 1 or more"),
        ({"cap": -0.1}, "RetryPolicy(cap=-0.1): must be zero or more seconds"),
        ({"jitter": 1}, "RetryPolicy(jitter=1): must be a fraction from 0 up to 1"),
        ({"jitter": -0.1}, "RetryPolicy(jitter=-0.1): must be a fraction from 0 up to 1"),
        ({"max_attempts": 0}, "RetryPolicy(max_attempts=0): must be 1 or more"),
        ({"max_attempts": "5"}, "RetryPolicy(max_attempts='5'): must be a whole number, 1 or more"),
        ({"base": "1"}, "RetryPolicy(base='1'): must be a number, zero or more seconds"),
        ({"cap": None}, "RetryPolicy(cap=None): must be a number, zero or more seconds"),
        ({"base": float("nan")}, "RetryPolicy(base=nan): must be zero or more seconds"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        RetryPolicy(**options)
    assert str(refused.value) == message


def test_a_retry_takes_seconds_or_a_timedelta() -> None:
    assert (Retry(after=90).after, Retry(after=timedelta(minutes=1.5)).after) == (90, 90)


@pytest.mark.parametrize("after", [-1, float("inf"), float("nan"), timedelta(seconds=-1), "5"])
def test_a_retry_in_the_past_or_never_is_refused(after: Any) -> None:
    with pytest.raises(InvalidOption, match=r"Retry\(after=.*\): seconds from now, zero or more"):
        Retry(after=after)


def test_what_handlers_raise_says_something_even_without_a_reason() -> None:
    assert str(Retry()) == "the handler asked for a retry"
    assert (str(Retry("closed", after=5)), Retry("closed", after=5).after) == ("closed", 5)
    assert (str(Reject("MARKET_CLOSED")), Reject("MARKET_CLOSED").why) == ("MARKET_CLOSED", "MARKET_CLOSED")
    assert str(Reject("MARKET_CLOSED", "no such market")) == "no such market"
