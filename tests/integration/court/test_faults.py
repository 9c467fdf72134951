"""What can be wrong around a court: each gives a clear reason in status, trace and the result, and the rest goes on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chaos.disks import NotPermitted, small_disk
from tests.support.court_processes import ROOT, CourtProcesses, wait_for
from tests.support.courts import Court, until

pytestmark = pytest.mark.timeout(300)
CREATED = "2026-02-07T12:00:00Z"


def event(name: str, kind: str, **fields: Any) -> dict[str, Any]:
    """An event as somebody writes it by hand."""
    return {"id": name, "type": kind, "source": "hand", "payload": {}, "created_at": CREATED, **fields}


# Files that are no events: what they hold, and what the reason must say.
BROKEN = {
    "evt-hand-empty": ("", "the file is empty"),
    "evt-hand-torn": ('{"id": "evt-hand-torn", "type": "test.wo', "JSON"),
    "evt-hand-binary": ("\x00\x01\x02", "JSON"),
    "evt-hand-list": ("[1, 2]", "object"),
    "evt-hand-deep": ("[" * 100_000, "recursion"),
    "evt-hand-payload": (json.dumps(event("evt-hand-payload", "test.work", payload="text")), "payload"),
    "evt-hand-time": (json.dumps(event("evt-hand-time", "test.work", created_at="soon")), "created_at"),
    "evt-hand-priority": (json.dumps(event("evt-hand-priority", "test.work", priority="urgent")), "priority"),
    "evt-hand-number": (json.dumps(event("evt-hand-number", "test.work", type=7)), "type"),
    "evt-hand-another": (json.dumps(event("evt-hand-other", "test.work")), "evt-hand-other"),
}
# Events whose task fails: their type, and what the result must say.
FAILING = {
    "evt-hand-clone": ("clone.work", "nobody/nothing"),
    "evt-hand-script": ("script.work", "is not a step"),
    "evt-hand-template": ("template.work", "prompt.md"),
}
# Events whose task waits for a program to be installed: their type, and what status must say.
HELD = {
    "evt-hand-engine": ("engine.work", "is not an executable file"),
    "evt-hand-cli": ("cli.work", "/no/such/claude is not a program"),
}


@dataclass(frozen=True)
class Aftermath:
    """A court that has dealt with all of it and is down."""

    court: Court
    good: list[str]
    status: dict[str, Any]
    shown: str

    def problem(self, what: str) -> str:
        """Why something is wrong, by status."""
        return " ".join(problem["why"] for problem in self.status["problems"] if problem["what"] == what)


def install(court: Court, folder: Path) -> None:
    """Generals that cannot do their work, each for another reason."""
    court.install("gen-engine", engine={"name": "command", "options": {"argv": ["/no/such/program"]}})
    court.install("gen-cli", engine={"name": "claude"})
    court.install("gen-clone", fetch_repo=True)
    court.install("gen-script", engine={"name": "scripted", "options": {"script": [{"dance": 1}]}})
    court.install("gen-template")
    (court.root / "config/generals/gen-template/prompt.md").write_text("{{ nothing.like.this }}\n")
    court.install("gen-promptless")
    (court.root / "config/generals/gen-promptless/prompt.md").unlink()
    court.install("gen-typo", timeout_seconds="long")
    (folder / "repositories").mkdir()
    system = {
        "name": "faults",
        "repos": {"base_url": str(folder / "repositories")},
        "engines": {"claude": {"path": "/no/such/claude"}},
        "concurrency": {"max_soldiers": 8},
    }
    (court.root / "config/system.yaml").write_text(yaml.safe_dump(system))


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    folder = tmp_path_factory.mktemp("faults")
    court = Court(folder / "home")
    court.make()
    install(court, folder)
    pending = court.root / "queue/events/pending"
    with court.up():
        court.wait_for_roles("king", "envoy", "gen-test", "gen-clone")
        good = [court.emit()]
        for name, (content, _) in BROKEN.items():
            (pending / f"{name}.json").write_text(content)
        for name, (kind, _) in (FAILING | HELD).items():
            repo = {"repo": "nobody/nothing"} if kind == "clone.work" else {}
            (pending / f"{name}.json").write_text(json.dumps(event(name, kind, **repo)))
        for name in ("promptless", "typo", "nobody"):
            document = event(f"evt-hand-{name}", f"{name}.work")
            (pending / f"evt-hand-{name}.json").write_text(json.dumps(document))
        task = {"id": "task-20260207-900", "event_id": "evt-hand-lost", "target_general": "gen-nobody"}
        task |= {"type": "test.work", "created_at": CREATED}
        (court.root / "queue/tasks/pending/task-20260207-900.json").write_text(json.dumps(task))
        good.append(court.emit())
        for name in (*FAILING, "evt-hand-nobody", *good):
            court.wait_completed(name)
        for name in BROKEN:
            until((court.root / f"queue/events/invalid/{name}.json").exists, f"{name} put aside")
        good.append(court.emit())
        court.wait_completed(good[-1])
        until(lambda: court.heartbeat("king").get("waiting") == 2, "the king to tell what waits")
        for name, (_, wanted) in HELD.items():
            until(lambda wanted=wanted: any(wanted in why for why in court.ask("status")["holds"]), f"{name} held")
        status = court.ask("status")
        shown = court.call("status").stdout
    return Aftermath(court, good, status, shown)


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_no_event_lies_aside_with_its_reason(aftermath: Aftermath, name: str) -> None:
    path = f"queue/events/invalid/{name}.json"
    reason = aftermath.court.root.joinpath(path + ".reason").read_text()
    assert BROKEN[name][1] in reason
    assert BROKEN[name][1] in aftermath.problem(path)
    story = aftermath.court.ask("trace", name)["story"]
    assert any(BROKEN[name][1] in line["what"] for line in story)


@pytest.mark.parametrize("name", FAILING)
def test_a_task_that_cannot_be_done_says_why(aftermath: Aftermath, name: str) -> None:
    court, wanted = aftermath.court, FAILING[name][1]
    task = court.task_of(name, "failed")
    result = json.loads((court.root / f"state/results/{task['id']}.json").read_text())
    assert result["status"] == "failed"
    assert wanted in result["error"]
    assert court.document("events", "completed", name) is not None
    assert wanted in aftermath.problem(task["id"])
    assert any(wanted in line["what"] for line in court.ask("trace", name)["story"])
    assert wanted in court.console, "and people were told"


@pytest.mark.parametrize("name", HELD)
def test_a_task_whose_program_is_missing_waits_and_status_says_for_what(aftermath: Aftermath, name: str) -> None:
    task, wanted = aftermath.court.task_of(name, "pending"), HELD[name][1]
    (held,) = [hold for why, hold in aftermath.status["holds"].items() if wanted in why]
    assert held["tasks"] == [task["id"]]
    assert wanted in aftermath.shown
    assert not (aftermath.court.root / f"state/results/{task['id']}.json").exists(), "nothing was spent on it"


def test_an_event_for_nobody_is_completed_and_the_journal_says_why(aftermath: Aftermath) -> None:
    story = [line["what"] for line in aftermath.court.ask("trace", "evt-hand-nobody")["story"]]
    assert any("event.discarded" in line and "no general subscribes to it" in line for line in story)


@pytest.mark.parametrize(("name", "reason"), [("promptless", "prompt.md: missing"), ("typo", "timeout_seconds")])
def test_events_of_a_general_that_cannot_be_used_wait_and_status_says_for_what(
    aftermath: Aftermath, name: str, reason: str
) -> None:
    assert aftermath.court.document("events", "pending", f"evt-hand-{name}") is not None
    assert reason in aftermath.problem("config")
    (held,) = [why for why, hold in aftermath.status["holds"].items() if f"evt-hand-{name}" in hold.get("events", ())]
    assert reason in held
    assert reason in aftermath.shown


def test_a_task_for_a_general_that_is_not_there_is_told_of(aftermath: Aftermath) -> None:
    assert "gen-nobody is not installed" in aftermath.problem("task-20260207-900")


def test_the_rest_goes_on(aftermath: Aftermath) -> None:
    for name in aftermath.good:
        aftermath.court.task_of(name, "completed")
    states = {role["name"]: role["state"] for role in aftermath.status["roles"]}
    assert states["king"] == states["gen-test"] == states["envoy"] == "running"
    assert all(role["deaths"] == 0 for role in aftermath.status["roles"])


# ── the disk ──────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def court_on(root: Path, log: Path, *command: str) -> Iterator[tuple[Court, CourtProcesses]]:
    """A court at work; at the end it is stopped, and must have left nobody."""
    court = Court(root)
    court.make()
    court.install("gen-test", concurrency=3)
    processes = CourtProcesses(root, log, *([command] if command else []))
    processes.start()
    try:
        assert wait_for(lambda: processes.at_work("king", "envoy", "gen-test"), 60), log.read_text()
        yield court, processes
        assert processes.stop() == 0
        assert not processes.left()
    finally:
        processes.kill_everything()


def test_a_full_disk_loses_nothing_and_work_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    try:
        with small_disk(tmp_path / "disk", 16) as disk, court_on(disk / "home", log) as (court, up):
            before = court.emit()
            court.wait_completed(before)
            at_work = court.emit({"until": str(tmp_path / "go")})
            task = court.task_of(at_work)["id"]
            until(lambda: f"soldier.spawned  {task}" in log.read_text(), "a soldier at work")
            staged = disk / "staged.json"
            staged.write_text(json.dumps(event("evt-hand-staged", "test.work")))
            fill(disk / "ballast")
            staged.rename(court.root / "queue/events/pending/evt-hand-staged.json")  # needs no room
            (tmp_path / "go").touch()  # neither its soldier nor its general finds any
            refused = court.call("emit", "test.work")
            assert refused.returncode == 1
            assert "No space left" in refused.stderr
            until(lambda: "o space left" in log.read_text(), "the roles to notice")
            status = court.call("status")
            assert status.returncode == 0, status.stderr
            assert re.search("No space left|only 0 bytes are free", status.stdout), "status says why"
            assert re.search("king +running", status.stdout), "and all it can tell beside"
            (disk / "ballast").unlink()
            after = court.emit()
            for name in (before, at_work, "evt-hand-staged", after):
                court.wait_completed(name)
            assert up.at_work("king", "envoy", "gen-test"), "the same processes all the time"
            up.kill_everything()  # what the envoy could not settle is his for a while, and the next envoy's at once
            up.start()
            until(lambda: up.at_work("king", "envoy", "gen-test"), "the next court")
            until(lambda: not list((court.root / "queue/messages/pending").glob("*.json")), "all messages said")
            for name in (before, "evt-hand-staged", after):
                court.task_of(name, "completed")
            result = json.loads((court.root / f"state/results/{task}.json").read_text())
            assert result["status"] == "success" or result["error"]
            said = [line for line in court.console.split("\n") if line.startswith("-- ")]
            assert len(said) == len(set(said)) == 8
    except NotPermitted as reason:
        pytest.skip(str(reason))


def fill(path: Path) -> None:
    """Write until not one byte more fits."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


# ── the clock ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.walk
def test_a_clock_set_back_one_hour_stops_nothing(tmp_path: Path) -> None:
    offset = tmp_path / "offset"
    offset.write_text("0")
    command = (sys.executable, "-m", "tests.support.court_clock", str(offset))
    with court_on(tmp_path / "home", tmp_path / "up.log", *command) as (court, up):
        at_work = [court.emit({"until": str(tmp_path / "go")}) for _ in range(3)]
        waiting = court.emit()  # all three soldiers are at work
        asking = court.emit({"result": {"status": "needs_human", "question": {"text": "Now?"}}})
        until(lambda: court.heartbeat("king").get("waiting") == 2, "the king to know of them")

        offset.write_text("-3600")
        later = court.emit()  # by a clock an hour ahead of the court's
        until(lambda: court.heartbeat("king")["ts"] < court.heartbeat("king")["started_at"], "the king to notice")
        (tmp_path / "go").touch()
        for name in (*at_work, waiting, later):
            court.wait_completed(name)
        until(lambda: "Now?" in court.console, "the question")
        task = court.task_of(asking)["id"]
        assert court.call("answer", task, "yes").returncode == 0
        court.wait_completed(asking)
        for name in at_work:
            result = json.loads((court.root / f"state/results/{court.task_of(name)['id']}.json").read_text())
            assert result["status"] == "success"
            assert result["duration_seconds"] >= 0

        up.kill_everything()
        up.start()  # a court that finds files of the future
        assert wait_for(lambda: up.at_work("king", "envoy", "gen-test"), 60), (tmp_path / "up.log").read_text()
        last = court.emit()
        court.wait_completed(last)
        told = subprocess.run([*command, "status", "--json", "--home", court.root], capture_output=True, cwd=ROOT)
        assert {role["state"] for role in json.loads(told.stdout)["roles"]} == {"running"}
        tasks = {court.task_of(name)["id"] for name in (*at_work, waiting, asking, later, last)}
        assert len(tasks) == 7, "no number was given twice"
        messages = [line for line in court.console.split("\n") if line.startswith("-- ")]
        assert len(messages) == len(set(messages))
