"""Soldiers that are real processes: found by their identity, ended exactly, and nobody else is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.processes import RUN_ID_VARIABLE, boot_id, find_process
from kingdom.court.chamberlain.sessions import LocalSoldierProcesses
from kingdom.court.home import Home

START = "import signal, sys, time; signal.signal(signal.SIGTERM, {}); print('up', flush=True); time.sleep(60)"
SLEEPER = START.format("lambda *_: sys.exit(3)")
STUBBORN = START.format("signal.SIG_IGN")


class Camp:
    """Real processes, and the identities they have on disk."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, program: str, run_id: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, RUN_ID_VARIABLE: run_id},
        )
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    def enlist(self, run_id: str, process: subprocess.Popen[str], **changes: Any) -> None:
        """Write an identity in which the process is keeper and agent at once."""
        seen = find_process(process.pid)
        assert seen is not None
        identity = {
            "run_id": run_id,
            "boot_id": boot_id(),
            "pid": process.pid,
            "start": seen.start,
            "shim_pid": process.pid,
            "shim_start": seen.start,
            "started_at": 1000.0,
        }
        folder = self.home.soldiers / run_id
        folder.mkdir(parents=True)
        (folder / "identity.json").write_text(json.dumps({**identity, **changes}))


@pytest.fixture
def camp(tmp_path: Path) -> Iterator[Camp]:
    camp = Camp(tmp_path)
    yield camp
    for process in camp.started:
        process.kill()
        process.communicate()


def test_a_soldier_runs_until_it_has_ended(camp: Camp) -> None:
    processes = LocalSoldierProcesses(camp.home)
    assert processes.soldiers() == []
    process = camp.start(SLEEPER, "soldier-1")
    camp.enlist("soldier-1", process)
    (soldier,) = processes.soldiers()
    assert (soldier.id, soldier.pid, soldier.running, soldier.ended) == ("soldier-1", process.pid, True, False)
    processes.stop(soldier)
    assert process.wait(timeout=30) == 3, "it was asked, not forced"
    (camp.home.soldiers / "soldier-1" / "exit.json").write_text("{}")
    (soldier,) = processes.soldiers()
    assert (soldier.running, soldier.ended) == (False, True)


def test_one_that_does_not_listen_is_killed_with_everything_that_carries_its_mark(camp: Camp) -> None:
    processes = LocalSoldierProcesses(camp.home)
    process, left_behind, other = (
        camp.start(STUBBORN, "soldier-1"),
        camp.start(STUBBORN, "soldier-1"),
        camp.start(STUBBORN, "soldier-10"),
    )
    camp.enlist("soldier-1", process)
    (soldier,) = processes.soldiers()
    assert processes.kill(soldier) >= 2
    assert process.wait(timeout=30) == -9
    assert left_behind.wait(timeout=30) == -9
    assert other.poll() is None


@pytest.mark.parametrize(
    "change", [{"start": 1, "shim_start": 1}, {"boot_id": "another"}, {"start": None, "shim_start": None}]
)
def test_a_process_that_only_has_the_number_is_left_alone(camp: Camp, change: dict[str, Any]) -> None:
    process = camp.start(SLEEPER, "somebody-else")
    camp.enlist("soldier-1", process, **change)
    processes = LocalSoldierProcesses(camp.home)
    (soldier,) = processes.soldiers()
    assert not soldier.running
    processes.stop(soldier)
    assert processes.kill(soldier) == 0
    assert process.poll() is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"run_id": "soldier-2", "pid": 1, "started_at": 0}', "\0"])
def test_an_identity_that_makes_no_sense_is_nobody(camp: Camp, content: str) -> None:
    folder = camp.home.soldiers / "soldier-1"
    folder.mkdir(parents=True)
    (folder / "identity.json").write_text(content)
    (camp.home.soldiers / "file").write_text("")
    (camp.home.soldiers / "link").symlink_to("/")
    assert LocalSoldierProcesses(camp.home).soldiers() == []
