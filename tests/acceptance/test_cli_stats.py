"""``kingdom stats``: how much was done."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kingdom.base.files import write_json
from kingdom.court.models import timestamp
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
