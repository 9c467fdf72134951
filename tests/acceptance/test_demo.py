"""``kingdom demo``: a whole court at work; it proves what it claims, and leaves nothing running."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.command import COMMAND, environment, kingdom, kingdom_json, kingdom_tty
from tests.support.processes import processes_of


@pytest.mark.walk
def test_three_events_are_finished_though_the_king_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    proof = kingdom_json("demo", "--dir", str(folder))
    assert proof["holds"] is True
    assert (proof["events"], proof["completed"], proof["succeeded"], proof["asked"]) == (3, 3, 3, 1)
    assert proof["king_killed"] is True
    assert sorted(proof["commits"].values()) == ["Release v2.4.0", "SHOP-7: a discount for the whole cart"]
    assert processes_of(folder) == []

    status = kingdom_json("status", "--home", proof["home"])
    assert status["running"] is False
    assert {queue["name"]: queue["counts"].get("pending", 0) for queue in status["queues"]} == {
        "events": 0,
        "tasks": 0,
        "messages": 0,
    }


def test_without_a_terminal_it_prints_lines_and_what_to_try_next(tmp_path: Path) -> None:
    result = kingdom("demo", "--dir", str(tmp_path / "demo"))
    assert result.returncode == 0, result.stdout + result.stderr
    for part in (
        "queue/events/pending/",
        "kill -9",
        "Release it today?",
        "a person answers",
        "✓ 3 events in, 3 completed",
    ):
        assert part in result.stdout
    assert "\x1b" not in result.stdout
    commands = [
        line.strip()
        for line in result.stdout.splitlines()
        if line.startswith("  ") and " --home " in line and "»" not in line
    ]
    assert len(commands) == 3
    for command in commands:
        again = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=True)
        assert again.stdout


def test_on_a_terminal_it_shows_a_live_picture(tmp_path: Path) -> None:
    code, screen = kingdom_tty("demo", "--dir", str(tmp_path / "demo"))
    assert code == 0, screen
    for part in ("gen-release", "needs_human", "waiting", "✓ 3 events in, 3 completed"):
        assert part in screen


def test_it_does_not_mix_with_what_lies_there_already(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep out")
    result = kingdom("demo", "--dir", str(tmp_path), "--json")
    assert (result.returncode, json.loads(result.stdout)["error"]["code"]) == (1, "NOT_EMPTY")


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a process that is not its child: Linux only")
@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.walk), signal.SIGKILL])
def test_interrupted_or_killed_it_takes_its_court_along(how: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with subprocess.Popen(
        [*COMMAND, "demo", "--dir", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while "three files" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        record = json.loads((folder / "court/state/supervisor/pid.json").read_text())
        watched = os.pidfd_open(record["pid"])
        process.send_signal(how)
        process.wait(timeout=60)
        assert "Traceback" not in process.stderr.read()
    try:
        assert select.select([watched], [], [], 60)[0] == [watched]  # readable once the process has ended
    finally:
        os.close(watched)
    assert processes_of(folder) == []
