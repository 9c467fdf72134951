from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kingdom.bus.worker_loops import Prefetch


def test_a_worker_that_has_just_started_takes_one_event_so_that_one_that_kills_it_dies_alone() -> None:
    pace = Prefetch(concurrency=8, batch=100)
    assert [pace.ask(0), pace.ask(1)] == [1, 0]


def test_a_worker_that_has_been_alive_for_a_while_claims_what_it_can_start() -> None:
    pace = Prefetch(concurrency=8, batch=100)
    pace.warmed_up()
    assert [pace.ask(0), pace.ask(3), pace.ask(8)] == [8, 5, 0]


def test_fast_handlers_have_one_batch_to_work_on_and_one_on_its_way() -> None:
    pace = Prefetch(concurrency=8, batch=100)
    pace.handled(0.0001)
    assert pace.ask(8) == 100
    assert pace.ask(8 + 100) == 100
    assert pace.ask(8 + 200) == 0


def test_slow_handlers_do_not_sit_on_events_another_worker_could_start() -> None:
    pace = Prefetch(concurrency=8, batch=100)
    pace.handled(60.0)
    assert [pace.ask(8), pace.ask(7)] == [0, 1]


def test_in_between_a_quarter_of_a_second_is_held_in_advance() -> None:
    pace = Prefetch(concurrency=4, batch=100)
    pace.handled(0.05)
    assert pace.ask(0) == 4 + 20


def test_the_store_is_not_asked_for_one_event_at_a_time() -> None:
    pace = Prefetch(concurrency=8, batch=100)
    pace.handled(0.0001)
    assert pace.ask(8 + 199) == 0
    assert pace.ask(8 + 101) == 0


def test_the_pace_follows_the_handlers() -> None:
    pace = Prefetch(concurrency=1, batch=100)
    pace.handled(0.0001)
    for _ in range(100):
        pace.handled(10.0)
    assert pace.ask(1) == 0


@given(
    concurrency=st.integers(1, 50),
    batch=st.integers(1, 200),
    unfinished=st.integers(0, 300),
    seconds=st.none() | st.floats(0, 1000),
)
def test_a_claim_is_never_larger_than_a_batch_and_idle_handlers_are_never_left_idle(
    concurrency: int, batch: int, unfinished: int, seconds: float | None
) -> None:
    pace = Prefetch(concurrency, batch)
    pace.warmed_up()
    if seconds is not None:
        pace.handled(seconds)
    ask = pace.ask(unfinished)
    assert 0 <= ask <= batch
    assert ask > 0 or unfinished >= concurrency
