"""Killed in the middle of a rotation, a cleaning, a report or an alert: the next chamberlain finds nothing amiss."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.chamberlain_victim import EXPIRED, LINES
from tests.support.command import environment

pytestmark = [pytest.mark.walk, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[3]


def test_killed_before_each_file_operation_in_turn(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.chamberlain_victim", str(tmp_path)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    points = [json.loads(line) for line in done.stdout.splitlines()]
    for point in points:
        where = f"killed before {point['operation']} (step {point['step']})"
        assert point["lines"], f"{where}: a line of the journal was lost, repeated or moved"
        assert point["counted"] == LINES, f"{where}: a line was counted twice or not at all"
        assert point["reports"] == ["2026-02-07"], f"{where}: the report"
        assert point["alerts"] == [["health", "red"]], f"{where}: the alert"
        assert point["report_files"] == ["report-2026-02-07.json", "report-2026-02-07.md"], where
        assert point["expired_left"] == 0, f"{where}: the cleaning was not finished"
        assert point["kept"] == EXPIRED, f"{where}: a file was removed early"
        assert point["old_log"] == ["system.log.old"], where
        assert point["closed"] >= 1, f"{where}: the journal was not rotated"
    operations = [point["operation"] for point in points if point["killed"]]
    assert not points[-1]["killed"], "the last one came to its end"
    for part in ("unlink task-20260101-", "rename /logs/events.log", "rename /logs/system.log", "report-2026-02-07"):
        assert any(part in operation for operation in operations), f"never killed at: {part}"
    assert any("memory.json" in operation for operation in operations)
    assert any("messages" in operation or "msg-" in operation for operation in operations)
