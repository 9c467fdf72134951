"""One court is driven through every row of the specification's tables; each leaves its line in the journal.

First a court of real processes works, spends, fails, asks, runs out of time and loses its king. It is stopped while
two soldiers work. Then a chamberlain looks at what it left, by a clock and on a machine that the test sets.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from kingdom import __version__
from kingdom.court.chamberlain import Chamberlain
from kingdom.court.chamberlain.sessions import LocalSoldierProcesses
from kingdom.journal import CATALOG
from tests.support.chamberlains import Watched
from tests.support.courts import Court, gone, until

HOUR, DAY = 3600.0, 86400.0
GENERAL = "general"

# Word for word what stands there: the type, the role that emits it, the fields of its data.
TABLES = {
    "event.detected": ("sentinel", "event_id source event_type"),
    "event.dispatched": ("king", "event_id task_id target_general"),
    "event.discarded": ("king", "event_id event_type reason"),
    "task.created": ("king", "task_id event_type target_general priority"),
    "task.started": (GENERAL, "task_id"),
    "task.completed": (GENERAL, "task_id status duration_seconds"),
    "task.failed": (GENERAL, "task_id error retry_count"),
    "task.needs_human": (GENERAL, "task_id question"),
    "task.resumed": ("king", "task_id original_task_id"),
    "soldier.spawned": (GENERAL, "task_id soldier_id"),
    "soldier.completed": (GENERAL, "task_id soldier_id status"),
    "soldier.timeout": (GENERAL, "task_id soldier_id timeout_seconds"),
    "soldier.killed": ("chamberlain", "soldier_id reason"),
    "system.health_changed": ("chamberlain", "from to reason"),
    "system.heartbeat_missed": ("chamberlain", "target last_seen threshold_seconds"),
    "system.session_orphaned": ("chamberlain", "soldier_id task_id"),
    "system.resource_warning": ("chamberlain", "metric value threshold"),
    "system.token_status_changed": ("chamberlain", "from to daily_cost_usd"),
    "system.token_budget_reset": ("chamberlain", "date previous_cost"),
    "system.startup": ("system", "version"),
    "system.shutdown": ("system", "reason"),
    "recovery.session_restarted": ("chamberlain", "target pid"),
    "recovery.session_killed": ("chamberlain", "soldier_id reason"),
    "recovery.log_rotated": ("chamberlain", "file size_mb"),
    "recovery.files_cleaned": ("chamberlain", "deleted_count"),
    "recovery.sessions_cleaned": ("chamberlain", "removed_count"),
    "message.sent": ("envoy", "msg_id task_id channel"),
    "message.human_response": ("envoy", "task_id thread_ts"),
}

SCRIPTS = {
    "script.spend": [{"usage": {"input": 10, "cost_usd": 9}}, {"result": {"summary": "spent"}}],
    "script.fail": [{"fail": "there is no such file"}],
    "script.ask": {
        "steps": [{"ask": {"question": "Which one?", "choices": ["a", "b"]}}],
        "on_resume": [{"result": {"summary": "took {answer}"}}],
    },
    "resume": {"steps": [], "on_resume": [{"result": {"summary": "took {answer}"}}]},
}
# The processors of the machine that runs the test are nobody's business here; a look every second is.
QUICK = """\
interval_seconds: 1
health:
  cpu_percent: {yellow: null, orange: null, red: null}
  memory_percent: {yellow: null, orange: null, red: null}
  disk_percent: {yellow: null, orange: null, red: null}
"""

Lines = dict[str, list[dict[str, Any]]]


def journal_of(root: Path) -> Lines:
    """Every line there is, also in files that were closed, by type."""
    found: Lines = {}
    for path in sorted((root / "logs").glob("events*.log")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            found.setdefault(record["type"], []).append(record)
    return found


class Living:
    """The first part: a court at work."""

    def __init__(self, root: Path) -> None:
        self.court = Court(root)
        self.release = root / "release"
        self.spent = self.failed = self.asked = self.slow = ""

    def make(self) -> None:
        court = self.court
        court.make()
        court.install("gen-test", concurrency=2)
        court.install("gen-slow", timeout_seconds=0.5, subscribes=["slow.work"])
        court.install(
            "gen-script", engine={"name": "scripted", "options": {"script": SCRIPTS}}, subscribes=["script.*"]
        )
        config = court.root / "config"
        (config / "sentinel.yaml").write_text("local: {folder: inbox, interval_seconds: 0.1}\n")
        (config / "system.yaml").write_text("budget: {daily_usd: 100, warning_percent: 5}\n")
        (config / "chamberlain.yaml").write_text(QUICK)

    def work(self) -> None:
        """Everything that a court does while it is up."""
        court = self.court
        with court.up():
            self.spent = self.drop("script.spend")
            court.wait_completed(self.spent)
            self.failed = court.emit(kind="script.fail")
            court.wait_completed(self.failed)
            court.wait_completed(court.emit(kind="nobody.wants.this"))
            self.slow = court.emit({"until": str(self.release)}, kind="slow.work")
            court.wait_completed(self.slow)
            self.ask()
            self.wait_for("system.token_status_changed")
            self.lose_the_king()
            for _ in range(2):  # who will be left behind
                court.emit({"until": str(self.release)})
            until(lambda: len(self.at_work()) == 2, "two soldiers at work")

    def drop(self, kind: str) -> str:
        """Put an event where the sentinel looks; returns its id."""
        inbox = self.court.root / "inbox"
        inbox.mkdir(exist_ok=True)
        (inbox / ".one").write_text(json.dumps({"type": kind, "payload": {}}))
        (inbox / ".one").rename(inbox / "one.json")
        (line,) = self.wait_for("event.detected")
        return str(line["data"]["event_id"])

    def ask(self) -> None:
        """A question is asked and answered."""
        event_id = self.court.emit(kind="script.ask")
        self.asked = str(self.court.task_of(event_id)["id"])
        self.wait_for("task.needs_human")
        self.court.ask("answer", self.asked, "b")
        self.court.wait_completed(event_id)

    def lose_the_king(self) -> None:
        """The king dies, and the supervisor brings him back."""
        os.kill(self.court.wait_for_roles("king", "chamberlain")["king"], signal.SIGKILL)
        self.wait_for("recovery.session_restarted")

    def at_work(self) -> dict[str, dict[str, Any]]:
        """The soldiers of gen-test that have said something, by their names."""
        said = [path for path in (self.court.root / "logs/sessions").glob("*.json") if path.stat().st_size]
        found = {path.stem: self.court.root / "state/soldiers" / path.stem for path in said}
        return {
            name: json.loads((folder / "identity.json").read_text())
            for name, folder in found.items()
            if (folder / "identity.json").exists() and not (folder / "exit.json").exists()
        }

    def wait_for(self, kind: str) -> list[dict[str, Any]]:
        """Until there are lines of a type."""
        found: list[dict[str, Any]] = until(lambda: journal_of(self.court.root).get(kind), f"{kind} in the journal")
        return found


class LeftBehind(Watched):
    """The second part: a chamberlain among real soldiers, by the test's clock."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, (root / "config/system.yaml").read_text())
        self.now = time.time()

    async def restart(self) -> None:
        self.chamberlain = Chamberlain(
            self.services, self.system, resources=self.machine, processes=LocalSoldierProcesses(self.home)
        )
        await self.chamberlain.start()

    async def look_after(self, soldiers: dict[str, dict[str, Any]]) -> tuple[str, str]:
        """Every trouble a chamberlain can have. Returns the soldiers: who got lost, and who got too old."""
        async with self.open():
            return await self._look_after(soldiers)

    async def _look_after(self, soldiers: dict[str, dict[str, Any]]) -> tuple[str, str]:
        lost, old = soldiers
        self.machine.memory = 80.0
        await self.tick()
        for process in ("shim_pid", "pid"):
            os.kill(soldiers[lost][process], signal.SIGKILL)
        until(lambda: gone(soldiers[lost]["pid"]), "the death of a soldier")
        for _ in range(3):
            await self.tick(60)  # longer steps would excuse the roles: the chamberlain was away as well
        await self.tick(HOUR)
        await self.tick(8 * HOUR)
        until(lambda: gone(soldiers[old]["pid"]) and gone(soldiers[old]["shim_pid"]), "the end of an old soldier")
        await self.tick(10 * DAY)
        return lost, old


@pytest.fixture
def living(tmp_path: Path) -> Any:
    living = Living(tmp_path / "home")
    living.make()
    yield living
    living.release.touch()


def test_every_row_of_the_tables_happens_in_a_court_and_is_written_down_by_the_role_named_there(
    living: Living,
) -> None:
    living.work()
    root = living.court.root
    soldiers = living.at_work()
    (root / "config/chamberlain.yaml").write_text("retention: {logs_days: 30}  # what is read here must not go\n")
    lost, old = asyncio.run(LeftBehind(root).look_after(soldiers))

    journal = journal_of(root)
    missing = TABLES.keys() - journal.keys()
    assert not missing, f"never written: {', '.join(sorted(missing))}"
    for kind, (role, fields) in TABLES.items():
        lines = [line for line in journal[kind] if plays(line["actor"], role)]
        assert lines, f"{kind} was written by {journal[kind][0]['actor']}, not by {role}"
        for line in lines:
            assert list(line) == ["ts", "type", "actor", "data"]
            assert list(line["data"]) == fields.split(), kind
    check_what_they_say(living, journal, lost, old)


def plays(actor: str, role: str) -> bool:
    return actor.startswith("gen-") if role == GENERAL else actor == role


def check_what_they_say(living: Living, journal: Lines, lost: str, old: str) -> None:
    """That the fields hold what happened, where the test knows it."""

    def said(kind: str) -> list[tuple[Any, ...]]:
        return [tuple(line["data"].values()) for line in journal[kind]]

    root, tasks = living.court.root, {line["data"]["event_id"]: line["data"] for line in journal["event.dispatched"]}
    spent, failed, slow = (tasks[event]["task_id"] for event in (living.spent, living.failed, living.slow))
    assert said("event.detected")[0] == (living.spent, "local", "script.spend")
    assert said("event.discarded")[0][1] == "nobody.wants.this"
    assert (spent, "script.spend", "gen-script", "normal") in said("task.created")
    assert said("task.completed")[0][:2] == (spent, "success")
    assert (failed, 0) in [(task, retries) for task, _, retries in said("task.failed")]
    assert said("task.needs_human") == [(living.asked, "Which one?")]
    assert [original for _, original in said("task.resumed")] == [living.asked]
    assert [(task, seconds) for task, _, seconds in said("soldier.timeout")] == [(slow, 0.5)]
    assert said("soldier.killed") == said("recovery.session_killed") == [(old, "over-age")]
    assert [soldier for soldier, _ in said("system.session_orphaned")] == [lost]
    assert said("system.resource_warning")[0] == ("memory_percent", 80.0, 75.0)
    assert said("system.health_changed")[0][:2] == ("green", "yellow")
    assert "gen-test" in {target for target, _, _ in said("system.heartbeat_missed")}
    assert said("system.token_status_changed")[0] == ("ok", "warning", "9.00")
    assert said("system.token_budget_reset")[0][1] == "9.00"
    assert said("system.startup") == [(__version__,)]
    assert said("system.shutdown") == [("SIGTERM",)]
    assert "king" in {target for target, _ in said("recovery.session_restarted")}
    assert all((root / "logs" / file).is_file() for file, _ in said("recovery.log_rotated"))
    assert said("recovery.files_cleaned")[0][0] > 0
    assert sum(count for (count,) in said("recovery.sessions_cleaned")) >= 2
    assert living.asked in {task for _, task, _ in said("message.sent")}
    assert said("message.human_response") == [(living.asked, "console")]


def test_the_tables_and_the_catalog_name_the_same() -> None:
    known = {kind: [field.key for field in spec.fields] for kind, spec in CATALOG.items()}
    assert {kind: known[kind] for kind in TABLES} == {kind: fields.split() for kind, (_, fields) in TABLES.items()}
