"""A general with real soldiers: processes of the ``command`` engine, and the ``scripted`` one."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.engines import default_engines
from kingdom.agents.processes import processes_of_run
from kingdom.agents.runner import Runner
from kingdom.court.cancellations import request_cancel
from kingdom.court.packages.manifest import Manifest
from tests.support.generals import Post, posted
from tests.support.repositories import Remote, plain_git

SOLDIER = """
import json, os, pathlib, subprocess, sys, time
task = json.loads(pathlib.Path(".kingdom-task.json").read_text())
prompt = sys.stdin.read()
marks = pathlib.Path(sys.argv[1])
(marks / ("began-" + os.environ["KINGDOM_RUN_ID"])).touch()
if task["payload"].get("children"):
    subprocess.Popen(["sleep", "300"], start_new_session=True)
while task["payload"].get("waits") and not (marks / "go").exists():
    print("still here", flush=True)
    time.sleep(0.05)
pathlib.Path("made.txt").write_text(prompt)
environment = ["-c", "user.name=S", "-c", "user.email=s@example.com"]
subprocess.run(["git", "add", "--all"], check=True)
subprocess.run(["git", *environment, "commit", "--quiet", "--message", "Made"], check=True)
report = {"status": "success", "summary": "Made by " + os.environ["KINGDOM_TASK_ID"], "memory_updates": ["Real."]}
pathlib.Path(os.environ["KINGDOM_RESULT_PATH"]).write_text(json.dumps(report))
"""


class Field:
    """A post whose soldiers are real."""

    def __init__(self, root: Path, post: Post) -> None:
        self.post = post
        self.marks = root / "marks"
        self.marks.mkdir(exist_ok=True)
        program = root / "soldier.py"
        program.write_text(SOLDIER)
        self.remote = Remote(root / "hub" / "acme" / "shop")
        self.remote.commit({"README.md": "A shop.\n"})
        post.base_url = str(root / "hub")
        self.order(name="command", options={"argv": [sys.executable, str(program), str(self.marks)]})
        self.muster()

    def order(self, **engine: Any) -> None:
        changed = {**self.post.manifest.model_dump(), "engine": engine}
        self.post.manifest = Manifest.model_validate(changed)

    def muster(self) -> None:
        """A new runner, as a new process has it."""
        home = self.post.home
        self.post.agents = Runner(
            soldiers=home.soldiers, sessions=home.sessions, ledger=home.ledger, engines=default_engines()
        )

    def began(self) -> list[str]:
        return sorted(path.name.removeprefix("began-") for path in self.marks.glob("began-*"))


@pytest.fixture
async def field(tmp_path: Path) -> AsyncIterator[Field]:
    async with posted(tmp_path, evidence=["commit"]) as post:
        yield Field(tmp_path, post)


async def test_a_program_does_a_task_in_its_worktree(field: Field) -> None:
    post = field.post
    task = await post.task(repo="acme/shop", payload={"title": "A title"})
    (result,) = await post.finish(task)
    assert result["status"] == "success", result["error"]
    assert result["summary"] == f"Made by {task.id}"
    place = post.home.work("gen-test") / "worktrees" / "gen-test" / task.id
    assert "A title" in plain_git(place, "show", "HEAD:made.txt")
    assert plain_git(place, "show", "--name-only", "--format=", "HEAD") == "made.txt"
    assert result["evidence"] == [{"name": "commit", "ok": True, "detail": plain_git(place, "rev-parse", "HEAD")}]
    assert (post.home.general_memory("gen-test") / "learned.md").read_text().endswith("- Real.\n")
    assert list(post.home.ledger.glob("*.jsonl"))


async def test_a_soldier_outlives_its_general_and_is_taken_over(field: Field) -> None:
    post = field.post
    task = await post.task(repo="acme/shop", payload={"waits": True})
    general = post.general()
    await general.start()
    await post.work(general, lambda: bool(field.began()))
    await general.stop()
    (soldier,) = field.began()
    assert processes_of_run(soldier), "it goes on"
    field.muster()
    (field.marks / "go").touch()
    (result,) = await post.finish(task)
    assert result["status"] == "success", result["error"]
    assert result["soldier_id"] == soldier
    assert field.began() == [soldier]


async def test_a_cancelled_soldier_is_gone_with_everything_it_started(field: Field) -> None:
    post = field.post
    task = await post.task(repo="acme/shop", payload={"waits": True, "children": True})
    general = post.general()
    await general.start()
    await post.work(general, lambda: bool(field.began()))
    (soldier,) = field.began()
    request_cancel(post.home, "gen-test", task.id, "cancelled by ann")
    await post.work(general, lambda: post.state(task) == "completed")
    await general.stop()
    assert (post.result(task)["status"], post.result(task)["error"]) == ("cancelled", "cancelled by ann")
    assert not processes_of_run(soldier)


async def test_a_script_asks_and_goes_on_with_the_answer(field: Field) -> None:
    post = field.post
    script = {
        "steps": [{"ask": {"question": "Which colour?", "choices": ["red", "blue"]}}],
        "on_resume": [{"write": {"path": "colour.txt", "text": "{answer}"}}, {"commit": "Painted"},
                      {"result": {"status": "success", "summary": "Painted it {answer}."}}],
    }  # fmt: skip
    field.order(name="scripted", options={"script": script})
    task = await post.task(repo="acme/shop")
    (asked,) = await post.finish(task)
    assert asked["status"] == "needs_human", asked["error"]
    assert asked["question"]["choices"] == ["red", "blue"]
    payload = {"original_task_id": task.id, "question": "Which colour?", "answer": "blue", "user": "ann"}
    field.muster()
    (result,) = await post.finish(await post.task(2, type="resume", payload=payload))
    assert result["status"] == "success", result["error"]
    assert result["summary"] == "Painted it blue."
    place = post.home.work("gen-test") / "worktrees" / "gen-test" / task.id
    assert plain_git(place, "show", "HEAD:colour.txt") == "blue"


async def test_a_part_that_was_played_in_a_process_that_is_gone_is_played_again(field: Field) -> None:
    post = field.post
    field.order(name="scripted", options={"script": [{"wait": 300}]})
    task = await post.task(repo="acme/shop")
    general = post.general()
    await general.start()
    await post.work(general, lambda: post.home.session_id(task.id).exists())
    await general.stop()
    field.muster()
    steps = [{"write": {"path": "a.txt", "text": "a"}}, {"commit": "A"}, {"result": {"status": "success"}}]
    field.order(name="scripted", options={"script": steps})
    (result,) = await post.finish(task)
    assert (result["status"], result["retry_count"]) == ("success", 0), result["error"]


async def test_a_task_waits_for_a_program_that_is_not_there(field: Field) -> None:
    field.order(name="command", options={"argv": ["no-such-program-anywhere"]})
    task = await field.post.task(repo="acme/shop")
    general = field.post.general()
    await general.start()
    await field.post.work(general, lambda: bool(general.report()["held"]))
    await general.stop()
    assert field.post.state(task) == "pending"
    assert "no-such-program-anywhere" in general.report()["held"][task.id]["reason"]
