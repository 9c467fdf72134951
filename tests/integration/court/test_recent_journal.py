"""What happened in the last 24 hours is known, however the journal was rotated and split meanwhile."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kingdom.court import activity
from kingdom.court.activity import (
    DAY_SECONDS,
    DetectedEvents,
    RecentJournal,
    journal_tail,
    missing_entries,
    recent_entries,
)
from kingdom.court.home import Home
from kingdom.court.overview import read_overview_without_queues
from kingdom.court.problems import CourtProblem
from kingdom.journal import Journal, Reader, rotate
from kingdom.journal.catalog import EventDetected

MIDNIGHT = datetime(2026, 2, 8, tzinfo=UTC).timestamp()
HOUR = 3600.0


class Written:
    """A journal with a line for each hour, split at midnight and rotated for its size."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.home.logs.mkdir(parents=True)
        self.home.config.mkdir()
        (self.home.config / "system.yaml").write_text("")
        self.now = MIDNIGHT - 30 * HOUR
        self.journal = Journal(self.home.journal, lambda: self.now)

    def pass_hours(self, count: int) -> None:
        for _ in range(count):
            self.now += HOUR
            rotate(self.home.journal, datetime.fromtimestamp(self.now, UTC))
            name = f"task-{datetime.fromtimestamp(self.now, UTC):%Y%m%d-%H%M}"
            self.journal.emit("task.failed", "gen-pr", {"task_id": name, "error": "no", "retry_count": 0})
            self.journal.emit("task.started", "gen-pr", {"task_id": name})


@pytest.fixture
def written(tmp_path: Path) -> Written:
    written = Written(tmp_path)
    written.pass_hours(31)  # until 01:00
    return written


def test_after_midnight_the_failures_of_the_day_before_are_still_told(written: Written) -> None:
    rotate(written.home.journal, datetime.fromtimestamp(written.now, UTC), max_bytes=1)
    assert not written.home.journal.exists() or not written.home.journal.read_bytes()
    problems = read_overview_without_queues(written.home, written.now).problems
    assert len(problems) == 25  # all of 24 hours
    assert problems[0].what == "task-20260208-0100"  # the newest first
    assert problems[-1].what == "task-20260207-0100"


def test_a_failure_that_was_retried_is_no_problem_any_more(written: Written) -> None:
    failed = "task-20260208-0100"
    retry = {"event_id": f"evt-web-retry-{failed}-1770512400", "task_id": "task-20260208-900", "target_general": "g"}
    written.journal.emit("event.dispatched", "king", retry)
    what = [problem.what for problem in read_overview_without_queues(written.home, written.now).problems]
    assert failed not in what
    assert len(what) == 24


def test_more_failures_than_are_listed_are_counted(written: Written) -> None:
    for number in range(300):
        data = {"task_id": f"task-20260208-{number:04}", "error": "no", "retry_count": 0}
        written.journal.emit("task.failed", "gen-pr", data)
    overview = read_overview_without_queues(written.home, written.now)
    assert len(overview.problems) == 201
    assert overview.problems[-1] == CourtProblem("tasks", "125 more tasks failed", 125)
    assert "325 problems, listed below" in overview.attention()


def test_the_limits_of_generals_count_as_those_of_the_court_do(written: Written) -> None:
    general = written.home.general("gen-pr")
    general.mkdir(parents=True)
    budget = "budget: {daily_usd: 1}"
    (general / "manifest.yaml").write_text(f"name: gen-pr\ndescription: d\nsubscribes: [x.y]\n{budget}\n")
    (general / "prompt.md").write_text("Do it.\n")
    written.home.ledger.mkdir(parents=True)
    ts = datetime.fromtimestamp(written.now, UTC).isoformat()
    line = {"ts": ts, "run_id": "r", "general": "gen-pr", "cost_usd": 1.5, "tokens": {"total": 7}}
    (written.home.ledger / f"{ts[:7]}.jsonl").write_text(json.dumps(line) + "\n")
    budget_of_court = read_overview_without_queues(written.home, written.now).budget
    assert budget_of_court.status == "critical"
    assert budget_of_court.spent == ["daily budget of gen-pr: $1.50 of $1.00"]


def test_a_line_of_before_midnight_is_not_written_again(written: Written) -> None:
    data = {"task_id": "task-20260207-2300", "error": "no", "retry_count": 0}
    old = {"task_id": "task-20260206-2300", "error": "no", "retry_count": 0}
    lines = [("task.failed", data), ("task.failed", old)]
    assert missing_entries(written.home.journal, written.now, lines) == [("task.failed", old)]


def test_only_the_types_and_hours_asked_for_are_read_and_only_what_is_new(written: Written) -> None:
    recent = RecentJournal(written.home.journal, ["task.failed"])
    first = recent.read(written.now)
    assert [entry.type for entry in first] == ["task.failed"] * 25
    written.pass_hours(2)
    rotate(written.home.journal, datetime.fromtimestamp(written.now, UTC), max_bytes=1)
    written.pass_hours(1)
    second = recent.read(written.now)
    assert second == recent_entries(written.home.journal, written.now, ["task.failed"])
    assert second[:-3] == first[3:]
    recent.close()


def test_the_newest_lines_are_read_over_rotation(written: Written) -> None:
    rotate(written.home.journal, datetime.fromtimestamp(written.now, UTC), max_bytes=1)
    tail = journal_tail(written.home.journal, 1000)
    assert [entry.fields["task_id"] for entry in tail[-2:]] == ["task-20260208-0100"] * 2
    assert len({entry.fields["task_id"] for entry in tail}) > 2, "also lines of the day before"


def test_a_reader_starts_at_a_time_in_a_long_file(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.logs.mkdir(parents=True)
    now = MIDNIGHT
    journal = Journal(home.journal, lambda: now)
    for number in range(3000):
        now = MIDNIGHT + number
        journal.emit("task.started", "gen-pr", {"task_id": f"task-{number}" + "x" * 60})
    with Reader(home.journal, start=MIDNIGHT + 2900) as reader:
        found = [entry.at.timestamp() for entry in reader.read()]
    assert found[-1] == MIDNIGHT + 2999
    assert MIDNIGHT + 2900 in found
    assert len(found) < 1000, "most of the file was not read"


def test_each_event_is_detected_once_a_day_and_the_journal_is_read_for_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(tmp_path)
    for hours, number, actor in ((2.0, 1, "king"), (27.0, 2, "king"), (1.0, 3, "sentinel")):
        written.now += hours * HOUR
        written.journal.emit(EventDetected(f"evt-ci-{number}", "ci", "ci.broken"), actor)
    read, readings = recent_entries, []
    monkeypatch.setattr(activity, "recent_entries", lambda *words: readings.append(words) or read(*words))
    detected = DetectedEvents(written.home.journal, "king")
    assert detected.add(["evt-ci-1", "evt-ci-2", "evt-ci-3"], written.now) == {"evt-ci-1", "evt-ci-3"}
    assert detected.add(["evt-ci-1", "evt-ci-2", "evt-ci-4"], written.now + 1.0) == {"evt-ci-4"}
    assert detected.add(["evt-ci-2", "evt-ci-3"], written.now + DAY_SECONDS - 60.0) == {"evt-ci-2"}
    assert len(readings) == 1
