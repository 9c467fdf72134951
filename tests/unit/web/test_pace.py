"""How often somebody may ask."""

from __future__ import annotations

from kingdom.web.security.guard import RateLimiter


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_so_many_may_come_at_once_and_then_so_many_a_second() -> None:
    clock = Clock()
    pace = RateLimiter(2.0, 3.0, clock)
    assert [pace.take("a") for _ in range(4)] == [0, 0, 0, 1]
    clock.now += 0.5
    assert [pace.take("a") for _ in range(2)] == [0, 1]
    clock.now += 3600
    assert [pace.take("a") for _ in range(4)] == [0, 0, 0, 1]


def test_one_does_not_pay_for_another() -> None:
    pace = RateLimiter(1.0, 1.0, Clock())
    assert (pace.take("a"), pace.take("a"), pace.take("b")) == (0, 1, 0)


def test_a_slow_pace_says_how_long_to_wait() -> None:
    clock = Clock()
    pace = RateLimiter(0.1, 1.0, clock)
    assert (pace.take("a"), pace.take("a")) == (0, 10)
    clock.now += 7
    assert pace.take("a") == 3


def test_asking_too_often_does_not_make_the_wait_longer() -> None:
    clock = Clock()
    pace = RateLimiter(1.0, 1.0, clock)
    pace.take("a")
    for _ in range(100):
        assert pace.take("a") == 1
    clock.now += 1
    assert pace.take("a") == 0


def test_so_many_addresses_that_come_once_take_no_more_memory() -> None:
    clock = Clock()
    pace = RateLimiter(1.0, 1.0, clock)
    pace.take("first")
    assert pace.take("first") == 1
    for number in range(5000):
        pace.take(str(number))
    assert pace.take("4999") == 1
    assert pace.take("first") == 0, "the one that was not seen for longest is forgotten"
