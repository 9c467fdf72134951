"""A home whose journal and ledger are rolled up."""

from __future__ import annotations

import json
from pathlib import Path
from zoneinfo import ZoneInfo

from kingdom.bus.delivery import Depth
from kingdom.court.home import Home
from kingdom.court.models import timestamp
from kingdom.court.rollups.queries import StatsHistory, read_history
from kingdom.court.rollups.reading import RollupRecorder
from kingdom.court.rollups.store import rollups_path
from kingdom.journal import Journal
from tests.support.chamberlains import START

SEOUL = ZoneInfo("Asia/Seoul")
WAITING = Depth(pending=1, oldest_pending_seconds=5.0)


class Rolled:
    """A home whose journal and ledger are rolled up."""

    def __init__(self, root: Path, zone: ZoneInfo = SEOUL) -> None:
        self.home = Home(root)
        self.home.logs.mkdir(parents=True)
        self.home.ledger.mkdir(parents=True)
        self.zone = zone
        self.now = START
        self.journal = Journal(self.home.journal, lambda: self.now)
        self.recorder = RollupRecorder(self.home, zone)

    def ends(self, general: str, seconds: float) -> None:
        data = {"task_id": "t", "status": "success", "duration_seconds": seconds}
        self.journal.emit("task.completed", general, data)

    def fails(self, general: str) -> None:
        self.journal.emit("task.failed", general, {"task_id": "t", "error": "no", "retry_count": 0})

    def spend(self, run: str, cost: float, general: str = "gen-pr", model: str | None = "opus") -> None:
        ts = timestamp(self.now)
        line = {"ts": ts, "run_id": run, "general": general, "model": model, "engine": "claude", "cost_usd": cost}
        with (self.home.ledger / f"{ts[:7]}.jsonl").open("a") as file:
            file.write(json.dumps({**line, "tokens": {"total": 1000}}) + "\n")

    def record(self, **depths: Depth) -> None:
        assert self.recorder.record(self.now, depths)

    def copy(self) -> None:
        """Record, and write the copy for the machine that leads next."""
        self.record(tasks=WAITING)
        self.recorder.write_copy()

    def ask(self, seconds: float, general: str | None = None) -> StatsHistory:
        path = rollups_path(self.home)
        return read_history(path, self.zone, self.now, self.now - seconds, general=general)
