"""Counting the lines of the journal."""

from __future__ import annotations

import json
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kingdom.court.chamberlain.tally import DAYS_KEPT, JournalTally
from kingdom.court.days import day_of, start_of_day

SEOUL = ZoneInfo("Asia/Seoul")
UTC = ZoneInfo("UTC")


def line(kind: str, ts: str = "2026-02-07T10:00:00Z", actor: str = "gen-pr", **data: Any) -> dict[str, Any]:
    return {"ts": ts, "type": kind, "actor": actor, "data": data}


def test_lines_count_for_the_local_day_of_their_time() -> None:
    tally = JournalTally(SEOUL)
    tally.feed([line("task.started", "2026-02-07T14:59:59Z"), line("task.started", "2026-02-07T15:00:00Z")])
    tally.feed([line("task.started", "2026-02-08T00:10:00+09:00"), line("task.started", "2026-02-07T15:00:01")])
    assert {name: day.count("task.started") for name, day in tally.days.items()} == {"2026-02-07": 1, "2026-02-08": 3}


def test_what_a_general_did_is_summed_up() -> None:
    tally = JournalTally(UTC)
    tally.feed(
        [
            line("task.created", actor="king", target_general="gen-pr"),
            line("task.completed", duration_seconds=100),
            line("task.completed", duration_seconds=51),
            line("task.completed", duration_seconds="long"),
            line("task.failed"),
            line("soldier.timeout"),
        ]
    )
    general = tally.day("2026-02-07").generals["gen-pr"]
    assert (general.created, general.completed, general.failed, general.timeouts) == (1, 3, 1, 1)
    assert general.average_seconds == pytest.approx(151 / 3)


def test_failures_in_a_row_end_with_a_task_that_does_not_fail() -> None:
    tally = JournalTally(UTC)
    tally.feed([line("task.failed"), line("task.failed"), line("task.failed", actor="gen-doc"), line("task.failed")])
    assert tally.streaks == {"gen-pr": 3, "gen-doc": 1}
    tally.feed([line("task.completed", duration_seconds=1), line("task.needs_human", actor="gen-doc")])
    assert tally.streaks == {}


def test_a_cancelled_task_is_counted_as_that_and_changes_neither_the_streak_nor_the_average() -> None:
    tally = JournalTally(UTC)
    tally.feed([line("task.completed", duration_seconds=100), line("task.failed"), line("task.failed")])
    tally.feed([line("task.cancelled", task_id=f"t{number}", reason="cancelled by ann") for number in range(3)])
    tally.feed([line("task.failed")])
    general = tally.day("2026-02-07").generals["gen-pr"]
    assert (general.completed, general.failed, general.cancelled) == (1, 3, 3)
    assert general.average_seconds == 100
    assert tally.streaks == {"gen-pr": 3}


def test_events_wait_until_they_are_dispatched_or_discarded() -> None:
    tally = JournalTally(UTC)
    tally.feed([line("event.detected", event_id=name) for name in ("a", "b", "c")])
    tally.feed([line("event.dispatched", event_id="a"), line("event.discarded", event_id="b")])
    assert list(tally.waiting) == ["c"]


def test_lines_that_make_no_sense_are_passed_over_and_counted() -> None:
    tally = JournalTally(UTC)
    bad: list[dict[str, Any]] = [
        {},
        {"type": "task.failed"},
        {"type": 7, "ts": "2026-02-07T10:00:00Z"},
        line("task.failed", ts="yesterday"),
        line("task.failed", ts="2026-99-07T10:00:00Z"),
    ]
    tally.feed(bad)
    assert tally.skipped == len(bad)
    tally.feed([{**line("task.failed"), "actor": None}, {**line("event.detected"), "data": [1]}])
    assert tally.day("2026-02-07").count("task.failed") == 1
    assert (tally.streaks, tally.waiting) == ({}, {})


def test_unknown_types_do_not_make_the_counts_grow() -> None:
    tally = JournalTally(UTC)
    tally.feed([line(f"made.up{number}") for number in range(100)])
    assert tally.day("2026-02-07").types == {"unknown": 100}


def test_what_is_too_old_to_be_asked_for_is_forgotten() -> None:
    tally = JournalTally(UTC)
    now = start_of_day(day_of(1_770_458_400, UTC), UTC)
    tally.feed([line("soldier.timeout", "2025-11-01T00:00:00Z"), line("soldier.timeout", "2026-02-06T23:30:00Z")])
    tally.prune(now)
    assert list(tally.days) == ["2026-02-06"]
    assert list(tally.hours) == ["2026-02-06T23"]
    assert tally.timeouts_since(now - 3600) == 1
    assert DAYS_KEPT >= 62, "a report that is made up, and the month before"


KINDS = ["event.detected", "event.dispatched", "task.created", "task.completed", "task.failed", "soldier.spawned"]
LINES = st.builds(
    line,
    st.sampled_from([*KINDS, "soldier.completed", "soldier.timeout", "x.y"]),
    st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
    st.sampled_from(["gen-a", "gen-b"]),
    event_id=st.sampled_from("pq"),
    task_id=st.just("t"),
    soldier_id=st.sampled_from("rs"),
    target_general=st.sampled_from(["gen-a", "gen-b"]),
    duration_seconds=st.integers(0, 100),
)


@given(st.lists(LINES, max_size=20), st.integers(0, 20))
def test_counting_can_be_interrupted_anywhere(lines: list[dict[str, Any]], cut: int) -> None:
    whole, parts = JournalTally(SEOUL), JournalTally(SEOUL)
    whole.feed(lines)
    parts.feed(lines[:cut])
    parts = JournalTally.from_dict(SEOUL, json.loads(json.dumps(parts.to_dict())))
    parts.feed(lines[cut:])
    assert parts.to_dict() == whole.to_dict()
