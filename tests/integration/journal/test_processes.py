"""Real processes at one journal: twenty writers under rotation, and a rotator that is killed at every step.

``KINGDOM_JOURNAL_LINES`` is the number of lines each of the twenty writes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kingdom.journal import Journal, Problem, Reader, rotate
from kingdom.journal.catalog import TaskStarted
from kingdom.journal.logfiles import list_rotated
from tests.support.command import environment
from tests.support.searching import examples

PROCESSES = 20
LINES = int(os.environ.get("KINGDOM_JOURNAL_LINES", examples(1000)))
NOW = datetime(2026, 2, 8, 1, tzinfo=UTC)


@pytest.mark.search
def test_twenty_processes_append_while_the_log_is_rotated_and_read(tmp_path: Path):
    log, cursor = tmp_path / "events.log", tmp_path / "cursor"
    problems: list[Problem] = []
    seen: list[int] = [0] * PROCESSES
    command = [sys.executable, "-m", "tests.support.journal_crowd", str(log), str(PROCESSES), str(LINES)]
    reader = Reader(log, cursor, report=problems.append, sync=False)
    rounds = 0
    with subprocess.Popen(command, env=environment()) as crowd:
        running = True
        while running:
            running = crowd.poll() is None
            for entry in reader.read():
                process, _, number = entry.fields["task_id"].partition(":")
                assert seen[int(process)] == int(number), f"writer {process}"
                seen[int(process)] += 1
            rounds += 1
            if rounds % 5 == 0:
                reader.commit()
                reader.close()
                reader = Reader(log, cursor, report=problems.append, sync=False)
    reader.close()
    assert crowd.returncode == 0
    assert seen == [LINES] * PROCESSES
    assert problems == []
    rotated = [tmp_path / split.name for split in list_rotated(log)]
    assert len(rotated) > 2, "the log was rotated meanwhile"
    files = [*rotated, log] if log.exists() else rotated  # it does not when the last line was followed by a rotation
    whole = Counter(line for file in files for line in file.read_bytes().splitlines(keepends=True))
    assert len(whole) == PROCESSES * LINES
    assert set(whole.values()) == {1}
    assert all(line.endswith(b"}}\n") for line in whole)


# ── a rotator that is killed ──────────────────────────────────────────────────────────────────────────────────


def test_a_rotator_killed_at_any_step_leaves_nothing_lost_and_the_next_one_goes_on(tmp_path: Path):
    calls: list[str] = []
    for step in range(50):
        folder = tmp_path / str(step)
        folder.mkdir()
        calls, survived = killed_at(folder, step)
        if survived:
            break
    assert survived
    assert calls == ["open", "lstat", "rename", "open", "close", "fsync", "close"]


def killed_at(folder: Path, step: int) -> tuple[list[str], bool]:
    log, cursor = folder / "events.log", folder / "cursor"
    journal = Journal(log, clock=NOW.timestamp)
    journal.emit(TaskStarted("0"), "gen-a")
    earlier = rotate(log, NOW, max_bytes=1)
    assert earlier is not None
    kept = earlier.file.read_bytes()
    journal.emit(TaskStarted("1"), "gen-a")
    with Reader(log, cursor) as reader:
        assert ids(reader) == ["0", "1"]
        reader.commit()
    journal.emit(TaskStarted("2"), "gen-a")

    command = [sys.executable, "-m", "tests.support.journal_rotator", str(log), str(step)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr

    with Reader(log, cursor) as reader:
        assert ids(reader) == ["2"]
        journal.emit(TaskStarted("3"), "gen-a")
        assert ids(reader) == ["3"]
        assert rotate(log, NOW, max_bytes=1) is not None
        journal.emit(TaskStarted("4"), "gen-a")
        assert ids(reader) == ["4"]
    with Reader(log) as everything:
        assert ids(everything) == ["0", "1", "2", "3", "4"]
    assert earlier.file.read_bytes() == kept
    journal.close()
    return done.stdout.split(), done.returncode == 0


def ids(reader: Reader) -> list[str]:
    return [entry.fields["task_id"] for entry in reader.read()]
