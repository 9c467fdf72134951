"""Killed at any step of a roll-up: the next process counts every line of the journal and the ledger once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch
from zoneinfo import ZoneInfo

import pytest

from kingdom.court.home import Home
from kingdom.court.models import timestamp
from kingdom.court.rollups.queries import read_history
from kingdom.court.rollups.reading import RollupRecorder
from kingdom.court.rollups.store import DAY, rollups_path
from kingdom.journal import Journal, Reader, rotate
from tests.support.chamberlain_victim import forked
from tests.support.chamberlains import START

UTC_ZONE = ZoneInfo("UTC")
_connect = sqlite3.connect
_INSTRUCTIONS = 7  # of SQLite between two points, where the walk stops inside of statements


class Mortal:
    """Ends this process at the n-th point: before a statement, or after some instructions of SQLite."""

    def __init__(self, point: int, inside: bool) -> None:
        self._left = point
        self._inside = inside

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        made = _connect(*arguments, **options)
        if self._inside:
            made.set_progress_handler(self._pass, _INSTRUCTIONS)
        else:
            made.set_trace_callback(self._pass)
        return made

    def _pass(self, _statement: str = "") -> Literal[0]:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0


def prepare(root: Path) -> Home:
    """A home with a rotated journal, a journal and a ledger; some of it is rolled up already."""
    home = Home(root)
    for folder in (home.logs, home.ledger):
        folder.mkdir(parents=True)
    now = START
    journal = Journal(home.journal, lambda: now)

    def work(number: int) -> None:
        data = {"task_id": f"t{number}", "status": "success", "duration_seconds": 5.0 * number}
        journal.emit("task.completed", f"gen-{number % 2}", data)
        journal.emit("task.failed", "gen-0", {"task_id": "t", "error": "no", "retry_count": 0})
        line = {"ts": timestamp(now), "run_id": f"r{number}", "general": "gen-0", "model": "m", "cost_usd": 0.1}
        with (home.ledger / "2026-02.jsonl").open("a") as file:
            file.write(json.dumps({**line, "tokens": {"total": 10}}) + "\n")

    for number in range(2):
        work(number)
    recorder = RollupRecorder(home, UTC_ZONE)
    recorder.record(now)
    recorder.close()
    work(2)
    now += DAY
    assert rotate(home.journal, datetime.fromtimestamp(now, UTC), max_bytes=10**9) is not None
    work(3)
    return home


def roll_up(home: Home) -> None:
    recorder = RollupRecorder(home, UTC_ZONE)
    recorder.record(START + DAY)
    recorder.close()


def counted(home: Home) -> tuple[int, int, int, float]:
    found = read_history(rollups_path(home), UTC_ZONE, START + DAY, START - DAY)
    slots = sum(point.tasks.completed for point in found.points)
    assert slots == found.total.completed
    return found.total.completed, found.total.failed, found.total.runs, found.total.cost_usd


def written(home: Home) -> tuple[int, int, int, float]:
    """The same, from the journal and the ledger themselves."""
    with Reader(home.journal) as reader:
        types = [entry.type for entry in reader.read()]
    lines = [json.loads(line) for line in (home.ledger / "2026-02.jsonl").read_text().splitlines()]
    cost = round(sum(line["cost_usd"] for line in lines), 6)
    return types.count("task.completed"), types.count("task.failed"), len(lines), cost


@pytest.mark.parametrize("inside", [False, True], ids=["before each statement", "inside of statements"])
def test_wherever_it_dies_its_successor_counts_every_line_once(tmp_path: Path, inside: bool, stride: int) -> None:
    template = prepare(tmp_path / "template")
    expected = written(template)
    deaths = 0
    for point in range(1, 100_000, stride):
        home = Home(tmp_path / "copy")
        shutil.copytree(template.root, home.root)

        def victim(point: int = point, home: Home = home) -> None:
            with patch.object(sqlite3, "connect", Mortal(point, inside).connect):
                roll_up(home)

        code = forked(victim)
        assert code in (0, -signal.SIGKILL), f"the victim failed by itself at {point}"
        roll_up(home)
        assert counted(home) == expected, f"killed at {point}: a line was counted twice or not at all"
        shutil.rmtree(home.root)
        if code == 0:
            break
        deaths += 1
    assert deaths > 5, "there were points"
