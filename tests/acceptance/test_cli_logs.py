"""``kingdom logs``: reading the journal as a person, and as a program."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from kingdom.journal import Journal, rotate
from tests.support.chamberlains import here
from tests.support.command import COMMAND, environment, kingdom, kingdom_tty

NOW = time.time()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "system.yaml").write_text("timezone: Asia/Seoul\n")
    (tmp_path / "logs").mkdir()
    return tmp_path


def journal(home: Path, at: float = NOW) -> Journal:
    return Journal(home / "logs" / "events.log", lambda: at)


def fill(home: Path) -> None:
    old, new = journal(home, NOW - 7200), journal(home)
    old.emit(
        "task.created", "king", {"task_id": "t1", "event_type": "a.b", "target_general": "gen-pr", "priority": "low"}
    )
    new.emit("task.started", "gen-pr", {"task_id": "t1"})
    new.emit("task.failed", "gen-pr", {"task_id": "t1", "error": "no \x1b[31mway", "retry_count": 2})
    new.emit("task.started", "gen-doc", {"task_id": "t2"})
    new.emit("task.resumed", "king", {"task_id": "t3", "original_task_id": "t1"})


def types(*arguments: str, home: Path) -> list[str]:
    done = here("logs", "--home", str(home), "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["type"] for line in done.stdout.splitlines()]


def test_events_are_shown_a_line_each_without_what_could_steer_the_terminal(home: Path) -> None:
    fill(home)
    done = kingdom("logs", "--home", str(home))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[3] for line in lines] == [
        "task.created",
        "task.started",
        "task.failed",
        "task.started",
        "task.resumed",
    ]
    assert "task_id=t1" in lines[1]
    assert "\x1b" not in done.stdout
    code, screen = kingdom_tty("logs", "--home", str(home), "--type", "task.failed")
    assert code == 0
    assert "\x1b[31mtask.failed" in screen, "red"
    assert "\x1b[31mway" not in screen


def test_filters_narrow_down_and_those_of_one_kind_add_up(home: Path) -> None:
    fill(home)
    assert types("--type", "task.failed", "--type", "task.r*", home=home) == ["task.failed", "task.resumed"]
    assert types("--actor", "gen-doc", home=home) == ["task.started"]
    assert types("--task", "t1", home=home) == ["task.created", "task.started", "task.failed", "task.resumed"]
    assert types("--task", "t1", "--type", "task.started", "--actor", "gen-doc", home=home) == []
    assert types("--since", "1h", home=home) == ["task.started", "task.failed", "task.started", "task.resumed"]
    assert types("-n", "2", home=home) == ["task.started", "task.resumed"]


def test_a_time_without_a_zone_is_in_the_courts(home: Path) -> None:
    journal(home, 1_770_458_400).emit("task.started", "gen-pr", {"task_id": "t"})  # 2026-02-07 19:00 in Seoul
    assert types("--since", "2026-02-07T18:59", home=home) == ["task.started"]
    assert types("--since", "2026-02-07T19:01", home=home) == []
    assert types("--since", "2026-02-07T10:01Z", home=home) == []


def test_closed_files_are_read_as_far_back_as_asked(home: Path) -> None:
    from datetime import UTC, datetime

    for days in (5, 4, 3):
        at = NOW - days * 86400
        journal(home, at).emit("task.started", "gen-pr", {"task_id": f"t{days}"})
        done = rotate(home / "logs" / "events.log", datetime.fromtimestamp(at + 86400, UTC))
        assert done is not None
        os.utime(done.file, (at, at))
    journal(home).emit("task.started", "gen-pr", {"task_id": "t0"})

    def tasks(*arguments: str) -> list[str]:
        lines = here("logs", "--home", str(home), "--json", *arguments).stdout.splitlines()
        return [json.loads(line)["data"]["task_id"] for line in lines]

    assert tasks("--since", "10d") == ["t5", "t4", "t3", "t0"]
    assert tasks("--since", "97h") == ["t4", "t3", "t0"]
    assert tasks("--since", "1h") == ["t0"]
    assert tasks() == ["t3", "t0"], "the last closed one and what is written now"


def test_following_shows_each_event_as_it_happens(home: Path) -> None:
    fill(home)
    command = [*COMMAND, "logs", "--home", str(home), "--follow", "--json", "--type", "task.completed"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        log = journal(home)
        try:
            for number in range(3):
                log.emit("task.started", "gen-pr", {"task_id": "x"})
                log.emit(
                    "task.completed", "gen-pr", {"task_id": f"n{number}", "status": "success", "duration_seconds": 1}
                )
            seen: list[str] = []
            while "n2" not in seen:
                seen.append(json.loads(process.stdout.readline())["data"]["task_id"])
        finally:
            process.terminate()
    assert seen == ["n0", "n1", "n2"], "those of before the start and those after it, each once"


def test_lines_that_are_no_events_are_told_of_beside_the_output(home: Path) -> None:
    fill(home)
    with (home / "logs" / "events.log").open("ab") as file:
        file.write(b"garbage\n")
    done = here("logs", "--home", str(home), "--json")
    assert len(done.stdout.splitlines()) == 5
    assert "garbage" in done.stderr


def test_mistakes_are_told_in_one_line(home: Path, tmp_path: Path) -> None:
    done = here("logs", "--home", str(home), "--since", "tomorrow")
    assert done.returncode == 2
    assert "--since 'tomorrow' is not a time" in done.stderr
    assert here("logs", "--home", str(tmp_path / "nowhere")).returncode == 1
    empty = here("logs", "--home", str(home))
    assert (empty.returncode, empty.stdout) == (0, "")
