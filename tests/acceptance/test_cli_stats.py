"""``kingdom stats``: how much was done."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kingdom.base.files import write_json
from kingdom.bus.delivery import Depth
from kingdom.court.home import Home
from kingdom.court.models import timestamp
from kingdom.court.rollups.reading import RollupRecorder
from kingdom.journal import Journal
from tests.support.chamberlains import here, here_json
from tests.support.command import kingdom


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "system.yaml").write_text("")
    (tmp_path / "logs" / "analysis").mkdir(parents=True)
    return tmp_path


def test_without_a_chamberlain_the_journal_itself_is_counted(home: Path) -> None:
    journal = Journal(home / "logs" / "events.log")
    for seconds in (10, 20):
        journal.emit("task.completed", "gen-pr", {"task_id": "t", "status": "success", "duration_seconds": seconds})
    journal.emit("task.failed", "gen-doc", {"task_id": "t", "error": "no", "retry_count": 2})
    today = datetime.now(UTC).date().isoformat()
    document = here_json("stats", "--home", str(home))
    assert (document["days"][today]["completed"], document["days"][today]["failed"]) == (2, 1)
    assert document["days"][today]["generals"]["gen-pr"]["avg_duration_seconds"] == 15
    shown = kingdom("stats", "--home", str(home)).stdout
    rows = [line.split() for line in shown.splitlines()]
    assert [today, "0", "0", "2", "1", "0", "0", "0"] in rows
    assert ["gen-pr", "0", "2", "0", "0", "0", "0", "15", "s"] in rows
    assert "2 in the last 24 hours" in shown
    assert "█" in shown


def test_what_the_chamberlain_wrote_lately_is_taken_as_it_is(home: Path) -> None:
    document = {"generated_at": timestamp(time.time()), "days": {}, "hours": {}}
    write_json(home / "logs" / "analysis" / "stats.json", document)
    assert here_json("stats", "--home", str(home)) == document
    write_json(home / "logs" / "analysis" / "stats.json", {**document, "generated_at": timestamp(time.time() - 3600)})
    assert "unreadable_lines" in here_json("stats", "--home", str(home)), "an old one is not"


def test_a_court_in_which_nothing_happened_says_so(home: Path) -> None:
    assert "the journal is empty" in here("stats", "--home", str(home)).stdout


def roll_up(home: Path) -> None:
    recorder = RollupRecorder(Home(home), ZoneInfo("UTC"))
    recorder.record(time.time(), {"tasks": Depth(pending=1, oldest_pending_seconds=75.0)})
    recorder.close()


def test_figures_over_time_come_from_the_roll_ups(home: Path) -> None:
    journal = Journal(home / "logs" / "events.log")
    for seconds in (10, 20, 400):
        journal.emit("task.completed", "gen-pr", {"task_id": "t", "status": "success", "duration_seconds": seconds})
    journal.emit("task.failed", "gen-doc", {"task_id": "t", "error": "no", "retry_count": 2})
    roll_up(home)
    (home / "logs" / "events.log").unlink()
    document = here_json("stats", "--since", "90d", "--home", str(home))
    assert (document["total"]["completed"], document["total"]["success_rate"]) == (3, 0.75)
    assert document["step_seconds"] == 86400
    only = here_json("stats", "--general", "gen-doc", "--home", str(home))
    assert (only["step_seconds"], only["total"]["failed"], list(only["generals"])) == (900, 1, ["gen-doc"])
    shown = kingdom("stats", "--since", "90d", "--home", str(home)).stdout
    rows = [line.split() for line in shown.splitlines()]
    assert [row[:6] for row in rows if row[:1] == ["all"]] == [["all", "0", "3", "1", "0", "75%"]]
    p95 = next(int(row[8]) for row in rows if row[:1] == ["all"])
    assert 392 <= p95 <= 408
    assert [row[-2:] for row in rows if row[:1] == [datetime.now(UTC).date().isoformat()]][-1] == ["75", "s"]
    assert "durations are within 2 %" in shown


def test_over_time_says_when_nothing_is_recorded_and_what_does_not_go_together(home: Path) -> None:
    assert "the chamberlain records while the court is up" in here("stats", "--since", "7d", "--home", str(home)).stdout
    refused = here("stats", "--since", "7d", "--days", "3", "--home", str(home))
    assert refused.returncode == 2
    assert "write --since 7d" in refused.stderr
    assert "is not a time" in here("stats", "--since", "soon", "--home", str(home)).stderr
