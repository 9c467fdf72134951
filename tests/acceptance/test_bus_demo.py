"""``kingdom bus demo``: it proves what it claims, on both transports, and leaves nothing running."""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.support.command import COMMAND, environment, kingdom, kingdom_json, kingdom_tty
from tests.support.processes import processes_of


@pytest.mark.parametrize("transport", ["sqlite", "files"])
def test_a_killed_worker_loses_nothing(transport: str, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    proof = kingdom_json("bus", "demo", "--transport", transport, "--dir", str(folder), "--events", "100")
    assert proof["holds"] is True
    assert (proof["published"], proof["handled"], proof["lost"]) == (100, 100, 0)
    assert (proof["tookEffectTwice"], proof["unfinished"]) == (0, 0)
    # Not a walk in the park: the worker died with events in its hands, and some had taken effect already.
    assert proof["heldByKilledWorker"] > 0
    assert proof["deliveredTwice"] > 0
    assert processes_of(folder) == []

    (stream,) = kingdom_json("bus", "depth", "--url", proof["url"])["streams"]
    assert (stream["pending"], stream["processing"], stream["dead"]) == (0, 0, 0)
    with sqlite3.connect(folder / "app.db") as ledger:
        assert ledger.execute("SELECT count(*), count(DISTINCT event_id) FROM effect").fetchone() == (100, 100)
    ledger.close()


def test_without_a_terminal_it_prints_lines_and_what_to_try_next(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    result = kingdom("bus", "demo", "--dir", str(folder), "--events", "40")
    assert result.returncode == 0, result.stdout + result.stderr
    for part in ("40 events published", "SIGKILL", "lease ran out", "✓ 40 events published, 40 handled, 0 lost"):
        assert part in result.stdout
    assert "\x1b" not in result.stdout
    (command,) = [line.strip() for line in result.stdout.splitlines() if " bus depth --url " in line]
    again = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert "demo.orders" in again.stdout


def test_on_a_terminal_it_shows_a_live_picture(tmp_path: Path) -> None:
    code, screen = kingdom_tty("bus", "demo", "--dir", str(tmp_path / "demo"), "--events", "40")
    assert code == 0, screen
    assert "worker-1" in screen
    assert "killed" in screen
    assert "✓ 40 events published, 40 handled, 0 lost" in screen


def test_it_does_not_mix_with_what_lies_there_already(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep out")
    result = kingdom("bus", "demo", "--dir", str(tmp_path), "--json")
    assert (result.returncode, json.loads(result.stdout)["error"]["code"]) == (1, "NOT_EMPTY")


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a process that is not its child: Linux only")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_or_killed_it_takes_its_workers_along(how: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with subprocess.Popen(
        [*COMMAND, "bus", "demo", "--dir", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while "starts" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        worker = int(line.split("process ")[1].rstrip(")\n"))
        watched = os.pidfd_open(worker)
        process.send_signal(how)
        assert process.wait(timeout=30) == (130 if how is signal.SIGINT else -how)
        assert "Traceback" not in process.stderr.read()
    try:
        assert select.select([watched], [], [], 30)[0] == [watched]  # readable once the process has ended
    finally:
        os.close(watched)
    assert processes_of(folder) == []
