"""``kingdom clean``: what would go and why, and letting it go."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.support.chamberlains import here, here_json
from tests.support.command import kingdom_json


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "system.yaml").write_text("")
    for name, days in {
        "state/prompts/task-20260101-001.md": 4,
        "state/prompts/task-20260101-002.md": 2,
        "state/sentinel/seen/evt-github-1": 31,
        "logs/events-20260101.log": 8,
        "logs/events.log": 40,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 100)
        at = time.time() - days * 86400
        os.utime(path, (at, at))
    return tmp_path


def test_a_dry_run_shows_what_would_go_and_why_and_removes_nothing(home: Path) -> None:
    document = here_json("clean", "--dry-run", "--home", str(home))
    assert {item["path"] for item in document["files"]} == {
        "state/prompts/task-20260101-001.md",
        "state/sentinel/seen/evt-github-1",
        "logs/events-20260101.log",
    }
    assert document["bytes"] == 300
    shown = here("clean", "--dry-run", "--home", str(home)).stdout
    assert "prompts: 4.0 days old, kept 3" in shown
    assert "3 files would be removed, 300 bytes" in shown
    assert (home / "state/prompts/task-20260101-001.md").exists()


def test_cleaning_asks_first_and_then_removes_exactly_that(home: Path) -> None:
    refused = here("clean", "--home", str(home))
    assert refused.returncode == 2
    assert "repeat the command with --yes" in refused.stderr
    assert kingdom_json("clean", "--yes", "--home", str(home)) == {"removed": 3}
    assert not (home / "state/prompts/task-20260101-001.md").exists()
    assert (home / "state/prompts/task-20260101-002.md").exists()
    assert here("clean", "--dry-run", "--home", str(home)).stdout == "no file is past its retention time\n"


def test_by_a_configuration_with_mistakes_nothing_is_removed(home: Path) -> None:
    (home / "config" / "chamberlain.yaml").write_text("retention:\n  prompts_days: -3\n")
    done = here("clean", "--yes", "--home", str(home))
    assert done.returncode == 1
    assert "chamberlain.yaml:2: retention.prompts_days" in done.stderr
    assert (home / "state/prompts/task-20260101-001.md").exists()


def test_closed_files_of_the_journal_that_the_chamberlain_has_not_read_stay(home: Path) -> None:
    (home / "state/chamberlain").mkdir()
    (home / "state/chamberlain/memory.json").write_text('{"cursor": null}')
    done = here("clean", "--yes", "--home", str(home))
    assert "the chamberlain has not read them yet" in done.stdout
    assert (home / "logs/events-20260101.log").exists()
    assert not (home / "state/prompts/task-20260101-001.md").exists()
