"""What an earlier version left is opened, migrated and worked on by this one: homes, buses, workflow stores."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import Envelope, connect
from kingdom.workflow.store.database import open_store
from tests.support.command import kingdom
from tests.support.courts import WORKER, Court, until
from tests.support.earlier import Earlier, earlier_version
from tests.support.repositories import Remote

pytestmark = pytest.mark.timeout(300)

PUBLISH = """
import asyncio, sys
from kingdom.bus import Envelope, connect

async def main() -> None:
    async with connect(sys.argv[1]) as bus:
        await bus.setup()
        await bus.declare("orders", ordered=True)
        made = [Envelope("Ordered", {"number": n}, event_id=f"o-{n}", aggregate_type="Shop", aggregate_id=str(n % 2))
                for n in range(6)]
        await bus.publish("orders", made)
        await bus.publish("mails", [Envelope("Mail", {"text": "Grüße"}, event_id=f"m-{n}") for n in range(4)])
        done, dead, held = await bus.claim("mails", worker="old", limit=3, lease=600)
        await bus.settle(done=[done], dead=[(dead, "NO_ADDRESS", "there is none")])

asyncio.run(main())
"""
TEMPLATE = """
name: small
engine:
  name: scripted
  options: {{script: {script}}}
works:
  - name: plan
    pause_after: true
    tasks:
      - {{name: look, query: Look, report: [Findings]}}
  - name: build
    tasks:
      - {{name: write, query: Write it}}
      - {{name: check, query: Check it}}
"""
SCRIPT: dict[str, Any] = {
    "plan/look": [{"write": {"path": "plan.md", "text": "the plan"}}, {"result": {"summary": "looked"}}],
    "plan/look/report": [{"say": "## Findings\n\nIt is small.\n"}],
    "build/write": [{"write": {"path": "new.txt", "text": "new"}}, {"result": {"summary": "written"}}],
    "build/check": [{"result": {"summary": "checked"}}],
}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    return earlier_version(tmp_path_factory.mktemp("earlier"))


def status_of(court: Court, event_id: str) -> str | None:
    return next((one["status"] for one in court.ask("task", "ls")["tasks"] if one["event_id"] == event_id), None)


def is_(court: Court, event_id: str, status: str) -> bool:
    return status_of(court, event_id) == status


@pytest.mark.parametrize("queues", ["files", pytest.param("postgresql", marks=pytest.mark.walk)])
def test_a_court_goes_on_with_the_home_of_an_earlier_version(
    earlier: Earlier, tmp_path: Path, queues: str, request: pytest.FixtureRequest
) -> None:
    court = Court(tmp_path / "home")
    where = {"KINGDOM_HOME": str(court.root)}
    earlier.kingdom("init", str(court.root), "--general", "gen-briefing")
    if queues == "postgresql":
        url = request.getfixturevalue("postgres_url")
        (court.root / "config/system.yaml").write_text(f"queue: {{transport: '{url}'}}\n")
    court.run("general", "remove", "gen-briefing", "--yes")
    (court.root / "worker.py").write_text(WORKER)
    court.install("gen-test", concurrency=2)

    def emit(payload: dict[str, Any]) -> str:
        said = earlier.kingdom("emit", "test.work", "--payload", json.dumps(payload), "--json", **where)
        return str(json.loads(said)["id"])

    def old_status(event_id: str) -> str | None:
        tasks = json.loads(earlier.kingdom("task", "ls", "--json", **where))["tasks"]
        return next((one["status"] for one in tasks if one["event_id"] == event_id), None)

    question = {"status": "needs_human", "summary": "?", "question": {"text": "which?", "choices": ["a", "b"]}}
    with earlier.up(court.root):
        done, asked = emit({"number": 1}), emit({"result": question})
        until(lambda: old_status(done) == "completed", "the first task")
        until(lambda: old_status(asked) == "needs_human", "the question")
    waiting = emit({"number": 2})  # nobody takes it up any more
    lines = court.journal.count("\n")

    with court.up():
        until(partial(is_, court, waiting, "completed"), "the event that had been waiting")
        (task,) = [one["id"] for one in court.ask("task", "ls")["tasks"] if one["event_id"] == asked]
        assert court.run("answer", task, "b").returncode == 0
        new = court.emit({"number": 3})
        until(partial(is_, court, new, "completed"), "a new event")
        until(
            lambda: any(
                "the answer was b" in path.read_text() for path in court.root.glob("state/results/task-*.json")
            ),
            "the answer",
        )
    assert status_of(court, done) == "completed"
    assert done in court.run("trace", done).stdout
    assert court.journal.count("\n") > lines
    ids = [one["id"] for one in court.ask("task", "ls")["tasks"]]
    assert len(ids) == len(set(ids)) == 5, "no number was given twice"
    if queues == "files":
        assert court.run("backup", str(tmp_path / "court.tar.gz")).returncode == 0


async def test_a_bus_of_an_earlier_version_is_migrated_and_worked_on(
    earlier: Earlier, tmp_path: Path, bus_url: str
) -> None:
    earlier.python(PUBLISH, bus_url)
    async with connect(bus_url) as bus:
        applied = await bus.setup()
        assert applied or not bus_url.startswith("postgresql")
        assert await bus.setup() == []
        depths = await bus.depth()
        assert (depths["orders"].pending, depths["mails"].pending) == (6, 1)
        assert (depths["mails"].processing, depths["mails"].dead) == (1, 1)
        (letter,) = await bus.dead("mails")
        assert (letter.error_code, letter.envelope.payload) == ("NO_ADDRESS", {"text": "Grüße"})
        assert await bus.requeue("mails", [letter.event_id]) == 1
        known = [Envelope("Mail", {}, event_id=f"m-{number}") for number in range(5)]
        assert await bus.publish("mails", known) == ["m-4"], "ids that were published before are known"
        for number in (1, 3, 5):
            heads = await bus.claim("orders", worker="new", limit=9, lease=60)
            assert sorted(one.event_id for one in heads) == [f"o-{number - 1}", f"o-{number}"]
            await bus.settle(done=heads)
        held = await bus.recall("mails", worker="old")
        assert len(held) == 1
        await bus.release(held)
        rest = await bus.claim("mails", worker="new", limit=9, lease=60)
        await bus.settle(done=rest)
        assert len(rest) == 4
        assert [check for check in await bus.doctor() if check.level == "error"] == []


@pytest.mark.walk
async def test_a_workflow_of_an_earlier_version_is_resumed(earlier: Earlier, tmp_path: Path, database_url: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    where = {"KINGDOM_HOME": str(home)}
    if database_url.startswith("postgresql"):
        where["KINGDOM_WORKFLOW_STORE"] = database_url
    remote = Remote(tmp_path / "app")
    remote.commit({"README.md": "hello\n"})
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    template = tmp_path / "small.yaml"
    template.write_text(TEMPLATE.format(script=tmp_path / "script.json"))
    earlier.kingdom("git", "add", remote.url, **where)
    created = earlier.kingdom("workflow", "create", str(template), "--repo", "app", "--json", **where)
    workflow = str(json.loads(created)["id"])
    earlier.kingdom("workflow", "start", workflow, **where)
    old = json.loads(earlier.kingdom("workflow", "show", workflow, "--json", **where))
    assert old["status"] == "PAUSED"

    def show() -> Any:
        done = kingdom("workflow", "show", workflow, "--json", **where)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    new = show()
    assert (new["status"], [one["status"] for one in new["works"]]) == ("PAUSED", ["COMPLETED", "PENDING"])
    resumed = kingdom("workflow", "resume", workflow, **where)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert show()["status"] == "COMPLETED"
    verified = kingdom("workflow", "verify", workflow, **where)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    url = where.get("KINGDOM_WORKFLOW_STORE", f"sqlite://{home}/workflows/workflows.db")
    async with open_store(url, lambda: pytest.fail("nothing is written")) as opened:
        assert await opened.setup() == [], "everything is migrated"
        events = await opened.events(workflow, 0, 1000)
        assert [one.sequence for one in events] == list(range(1, len(events) + 1))
