"""``kingdom report``: the report of a day."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kingdom.base.files import write_json
from kingdom.journal import Journal
from tests.support.chamberlains import here, here_json
from tests.support.command import kingdom


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "system.yaml").write_text("")
    (tmp_path / "logs" / "analysis").mkdir(parents=True)
    return tmp_path


def test_the_report_that_was_sent_is_shown(home: Path) -> None:
    report = {
        "type": "daily_report",
        "date": "2026-02-07",
        "tasks": {"created": 15, "completed": 12, "failed": 2, "needs_human": 1},
        "soldiers": {"spawned": 14, "timeout": 1},
        "avg_duration_seconds": {"gen-pr": 420},
        "cost": {"usd": "12.50", "tokens": 1000},
    }
    write_json(home / "logs" / "analysis" / "report-2026-02-07.json", report)
    assert here_json("report", "--date", "2026-02-07", "--home", str(home)) == report
    shown = kingdom("report", "--date", "2026-02-07", "--home", str(home)).stdout
    assert shown.splitlines() == [
        "Daily report 2026-02-07",
        "Tasks: 15 created, 12 completed, 2 failed, 0 cancelled, 1 asked a person",
        "Soldiers: 14 started, 1 timed out",
        "Cost: $12.50, 1,000 tokens",
        "Average time of a completed task: gen-pr 420 s",
    ]


def test_a_day_without_a_report_is_counted_from_the_journal(home: Path) -> None:
    yesterday = time.time() - 86400
    for at, count in ((yesterday, 3), (yesterday + 86400, 1)):
        journal = Journal(home / "logs" / "events.log", lambda at=at: at)
        for _ in range(count):
            journal.emit("task.failed", "gen-pr", {"task_id": "t", "error": "no", "retry_count": 0})
    (home / "config" / "system.yaml").write_text("locale: ko\n")
    day = datetime.fromtimestamp(yesterday, UTC).date().isoformat()
    document = here_json("report", "--home", str(home))
    assert (document["date"], document["tasks"]["failed"]) == (day, 3)
    assert here_json("report", "--date", "today", "--home", str(home))["tasks"]["failed"] == 1
    assert "실패 3" in here("report", "--home", str(home)).stdout


@pytest.mark.parametrize(
    ("day", "code", "said"),
    [
        ("2020-01-01", 1, "no report of 2020-01-01"),
        ("soon", 2, "is not a date"),
        ((datetime.now(UTC).date() + timedelta(days=3)).isoformat(), 2, "is in the future"),
    ],
)
def test_a_day_that_has_none_is_told(home: Path, day: str, code: int, said: str) -> None:
    done = here("report", "--date", day, "--home", str(home))
    assert done.returncode == code
    assert said in done.stderr
