"""The three timers, with a clock that the test moves."""

from __future__ import annotations

from kingdom.agents.port import Timers
from kingdom.agents.run import TimerState

TIMERS = Timers(first_output=10, silence=20, total=100, after_result=5)


def test_a_run_that_never_speaks_runs_out_of_first_output() -> None:
    timing = TimerState(TIMERS, 1000)
    assert (timing.expired(1009.9), timing.expired(1010), timing.due()) == (None, "first_output", 1010)


def test_a_run_that_falls_silent_runs_out_of_silence() -> None:
    timing = TimerState(TIMERS, 0)
    timing.output(9)
    assert (timing.expired(28.9), timing.expired(29)) == (None, "silence")


def test_a_run_that_speaks_now_and_then_ends_at_its_total() -> None:
    timing = TimerState(TIMERS, 0)
    timing.output(85)
    assert (timing.expired(99.9), timing.expired(100)) == (None, "total")


def test_lines_that_keep_coming_extend_the_total_up_to_twice() -> None:
    timing = TimerState(TIMERS, 0)
    for second in range(0, 200, 5):
        timing.output(second)
        assert timing.expired(second + 1) is None
    assert timing.expired(200) == "total"


def test_after_the_result_only_the_grace_counts() -> None:
    timing = TimerState(TIMERS, 0)
    timing.output(99)
    timing.finished(99)
    timing.finished(103)
    assert (timing.expired(103.9), timing.expired(104)) == (None, "after_result")


def test_a_run_taken_over_keeps_the_time_it_had_and_may_be_silent_anew() -> None:
    timing = TimerState(TIMERS, 1000, elapsed=90, spoken=True)
    assert timing.expired(1009) is None
    assert timing.expired(1010) == "total"
    late = TimerState(TIMERS, 1000, elapsed=500, spoken=True)
    assert late.expired(1000) == "total"
