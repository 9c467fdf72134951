"""The command line of workflows, as a user runs it: a real repository, real processes, an agent that plays a script."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.folder import RunFolder
from kingdom.agents.port import Order
from kingdom.cli.app import run
from kingdom.cli.session import open_workflow_store
from kingdom.cli.workflow.watch import WorkflowFrame, watch_frames
from kingdom.workflow.home import WorkflowHome
from tests.support.command import Background, Terminal, kingdom, kingdom_tty
from tests.support.repositories import Remote, plain_git

TEMPLATE = """
name: small
description: Two works, three tasks, one report.
engine:
  name: scripted
  options: {{script: {script}}}
works:
  - name: plan
    {pause}
    tasks:
      - name: look
        query: Look into {{{{ issue.key }}}}
        report: [Findings]
  - name: build
    tasks:
      - {{name: write, query: Write it}}
      - {{name: check, query: Check it}}
"""
SCRIPT: dict[str, Any] = {
    "plan/look": [
        {"say": "I look around."},
        {"usage": {"input": 10, "output": 5, "cost_usd": 0.25}},
        {"write": {"path": "plan.md", "text": "the plan"}},
        {"result": {"summary": "looked"}},
    ],
    "plan/look/report": [{"say": "## Findings\n\nIt is small.\n"}],
    "build/write": [{"write": {"path": "src/new.txt", "text": "new"}}, {"result": {"summary": "written"}}],
    "build/check": [{"say": "All is well."}, {"result": {"summary": "checked"}}],
}


class Desk:
    """A folder with workflows, a repository, and the command: called here, or as a process of its own."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capture = capture
        self.home = folder / "home"
        self.home.mkdir()
        self.remote = Remote(folder / "app")
        self.remote.commit({"README.md": "hello\n"})
        self.processes: list[Background] = []

    def template(self, name: str = "small.yaml", *, pause: bool = False, **steps: list[Any]) -> str:
        """A file of the template; ``steps`` replace what the agent does, as ``build_write``."""
        script = self.folder / f"{name}.json"
        script.write_text(json.dumps(SCRIPT | {key.replace("_", "/"): value for key, value in steps.items()}))
        path = self.folder / name
        path.write_text(TEMPLATE.format(script=script, pause="pause_after: true" if pause else "model: m"))
        return str(path)

    def run(self, *arguments: str, code: int = 0) -> str:
        """What the command prints."""
        self.capture.readouterr()
        ended = run(arguments)
        printed = self.capture.readouterr()
        assert ended == code, printed.out + printed.err
        return printed.out + printed.err

    def run_apart(self, *arguments: str) -> str:
        """The same, in a process of its own."""
        done = kingdom(*arguments, KINGDOM_HOME=str(self.home))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code))

    def lines(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run(*arguments, "--json", code=code).splitlines()]

    def begin(self, *arguments: str) -> Background:
        """The command in the background."""
        process = Background(None, *arguments, KINGDOM_HOME=str(self.home))
        self.processes.append(process)
        return process

    def created(self, **how: Any) -> str:
        """A workflow of the template on the repository; returns its id."""
        if not self.json("git", "ls")["repositories"]:
            self.run("git", "add", self.remote.url)
        made = self.json("workflow", "create", self.template(**how), "--repo", "app", "--issue", "APP-1")
        return str(made["id"])

    def show(self, workflow: str) -> Any:
        return self.json("workflow", "show", workflow)


def line_with(process: Background, words: str) -> str:
    """Wait until a process says something."""
    said = []
    for line in process.stdout:
        said.append(line)
        if words in line:
            return line
    raise AssertionError(f"it never said {words!r}: {''.join(said)}")


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk(tmp_path, capsys)
    monkeypatch.setenv("KINGDOM_HOME", str(made.home))
    yield made
    for process in made.processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_from_a_template_and_a_repository_to_a_finished_branch(desk: Desk) -> None:
    workflow = desk.created()
    assert desk.show(workflow)["status"] == "CREATED"
    said = desk.run_apart("workflow", "start", workflow)
    assert "plan/look │ I look around." in said
    assert "WorkflowCompleted" in said
    assert "$0.25" in said
    shown = desk.show(workflow)
    assert shown["status"] == "COMPLETED"
    assert [work["status"] for work in shown["works"]] == ["COMPLETED", "COMPLETED"]
    assert Path(shown["works"][0]["tasks"][0]["reportPath"]).read_text().startswith("## Findings")
    (tree,) = shown["repositories"]
    assert (Path(tree["path"]) / "src/new.txt").read_text() == "new"
    assert plain_git(Path(tree["path"]), "status", "--porcelain") == ""
    assert tree["branch"] in said

    # looking at it afterwards
    first, second = shown["checkpoints"]
    assert (first["workName"], second["workName"]) == ("plan", "build")
    assert "+the plan" in desk.run("workflow", "diff", first["id"])
    assert "+new" in desk.run("workflow", "diff", second["id"][-8:])
    files = desk.json("workflow", "diff", first["id"], second["id"])["repositories"][0]["files"]
    assert [(file["path"], file["status"]) for file in files] == [("src/new.txt", "added")]
    both = desk.json("workflow", "diff", "build", "--workflow", workflow, "--base", "--stat")["repositories"][0]
    assert [file["path"] for file in both["files"]] == ["plan.md", "src/new.txt"]
    assert "2 checkpoints: every commit exists and is held" in desk.run("workflow", "verify", "--deep")
    events = desk.lines("workflow", "log", workflow)
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert (events[0]["type"], events[-1]["type"]) == ("WorkflowCreated", "WorkflowCompleted")
    assert {event["attempt"] for event in events if event["type"] in ("WorkStarted", "TaskStarted")} == {1}
    assert workflow[-12:] in desk.run("workflow", "ls", "--status", "completed")
    assert "WorkflowCompleted" in desk.run("workflow", "watch", "small")


def test_names_and_beginnings_of_ids_are_enough(desk: Desk) -> None:
    first = desk.created()
    said = desk.run("workflow", "create", "small", "--repo", "app", "--issue", "APP-2")
    assert "small-2 is created (wf-" in said
    assert said.endswith("kingdom workflow start small-2\n")
    assert desk.show("small")["id"] == first
    second = desk.show("small-2")["id"]
    unique = next(at for at, pair in enumerate(zip(first, second, strict=True), 1) if len(set(pair)) == 2)
    assert desk.show(second[:unique])["id"] == second
    assert desk.show(second[len("wf-") : unique])["id"] == second
    said = desk.run("workflow", "show", first[:10], code=1)
    assert "2 workflows match" in said
    assert f"{first} small" in said
    assert f"{second} small-2" in said
    assert "(similar: small" in desk.run("workflow", "show", "smal", code=1)
    desk.run("workflow", "rm", "small", "--yes")
    assert desk.json("workflow", "create", "small", "--repo", "app", "--issue", "APP-3")["name"] == "small"


def test_a_variable_that_is_missing_is_found_when_the_workflow_is_created(desk: Desk) -> None:
    desk.run("git", "add", desk.remote.url)
    said = desk.run("workflow", "create", desk.template(), "--repo", "app", code=1)
    assert "task plan/look: its query: the workflow has no issue.key (--issue KEY)" in said
    assert desk.json("workflow", "ls")["workflows"] == []
    workflow = desk.created()
    plan = desk.folder / "plan.yaml"
    plan.write_text(desk.run("workflow", "show", workflow, "--plan").replace("Check it", "Check {{ issue.title }}"))
    said = desk.run("workflow", "modify", workflow, "--file", str(plan), code=1)
    assert "the workflow has no issue.title (--var issue.title=TEXT)" in said


def test_a_new_template_is_a_plan_that_can_be_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk.folder)
    desk.run("git", "add", desk.remote.url)
    for name in ("first", "no", "a: b"):
        assert f"{name}.yaml is written" in desk.run("template", "new", name)
        assert "no problems" in desk.run("template", "check", f"{name}.yaml")
        made = desk.json("workflow", "create", f"{name}.yaml", "--repo", "app", "--description", "Mend ls")
        assert (made["name"], made["worksTotal"]) == (name, 2)
    assert "exists" in desk.run("template", "new", "first", code=1)
    assert "not a valid name" in desk.run("template", "new", "../first", code=2)
    assert desk.json("template", "new", "first", "--file", "other.yaml")["file"] == "other.yaml"


def test_an_empty_repository_can_be_started_from(desk: Desk) -> None:
    empty = Remote(desk.folder / "empty")
    desk.run("git", "add", empty.url)
    trees = {}
    for issue in ("APP-1", "APP-2"):
        made = desk.json("workflow", "create", desk.template(), "--repo", "empty", "--issue", issue)
        desk.run("workflow", "start", made["id"])
        shown = desk.show(made["id"])
        assert shown["status"] == "COMPLETED"
        trees[made["name"]] = tree = Path(shown["repositories"][0]["path"])
        assert (tree / "src/new.txt").read_text() == "new"
    for name, tree in trees.items():
        plain_git(empty.folder, "fetch", "--quiet", str(tree), f"HEAD:{name}")
    assert plain_git(empty.folder, "merge-base", "small", "small-2"), "both begin with the same commit"


@pytest.mark.parametrize("committed", [False, True])
def test_big_files_are_refused_in_a_checkpoint_by_name(desk: Desk, committed: bool) -> None:
    settings = desk.home / "workflows"
    settings.mkdir()
    (settings / "settings.yaml").write_text("git: {max_file_mb: 1}\n")
    big = [{"write": {"path": "src/big.bin", "text": "x" * (1024 * 1024 + 1)}}, {"write": {"path": "s", "text": "s"}}]
    workflow = desk.created(build_write=[*big, *([{"commit": "Add it"}] if committed else [])])
    said = desk.run("workflow", "start", workflow, code=1)
    assert "files over 1 MiB: src/big.bin (1.0 MiB); delete them, name them in .gitignore" in " ".join(said.split())
    shown = desk.show(workflow)
    assert (shown["status"], shown["works"][1]["status"]) == ("PAUSED", "FAILED")
    tree = Path(shown["repositories"][0]["path"])
    (tree / "src/big.bin").unlink()
    if committed:
        plain_git(tree, "commit", "--quiet", "--all", "--amend", "--no-edit")
    desk.run("workflow", "resume", workflow, "--retry")
    assert desk.show(workflow)["status"] == "COMPLETED"
    assert "src/big.bin" not in plain_git(tree, "log", "--format=", "--name-only")


def test_the_agent_is_told_to_take_a_big_file_away(desk: Desk) -> None:
    (desk.home / "workflows").mkdir()
    (desk.home / "workflows" / "settings.yaml").write_text("git: {max_file_mb: 1}\n")
    workflow = desk.created(build_write=[{"write": {"path": "big.bin", "text": "x" * (1024 * 1024 + 1)}}])
    assert "kingdom workflow follow-up small TEXT" in desk.run("workflow", "start", workflow, code=1)
    desk.template(build_check=[{"write": {"path": "big.bin", "text": "x"}}, {"result": {"summary": "it is small"}}])
    assert "it is small" in desk.run("workflow", "follow-up", workflow, "Make big.bin small")
    shown = desk.show(workflow)
    assert shown["status"] == "COMPLETED"
    assert [(task["name"], task["attempt"]) for task in shown["works"][1]["tasks"]] == [("write", 1), ("check", 2)]
    assert shown["works"][1]["error"] is None


def test_what_an_agent_leaves_beside_several_repositories_is_refused(desk: Desk) -> None:
    other = Remote(desk.folder / "lib")
    other.commit({"lib.py": "lib\n"})
    desk.run("git", "add", other.url)
    desk.run("git", "add", desk.remote.url)
    stray = [{"write": {"path": "notes.txt", "text": "mine"}}, {"write": {"path": "more/a.txt", "text": "a"}}]
    template = desk.template(plan_look=[{"result": {"summary": "looked"}}], build_write=stray)
    desk.run("workflow", "create", template, "--repo", "app", "--repo", "lib", "--issue", "APP-1")
    said = " ".join(desk.run("workflow", "start", "small", code=1).split())
    assert "the agent left more, notes.txt beside the repositories, in" in said
    assert "then kingdom workflow resume --retry" in said
    parent = Path(desk.show("small")["repositories"][0]["path"]).parent

    # going back moves it away, and keeps it
    mended = {"plan_look": [{"result": {"summary": "looked"}}], "build_write": [{"result": {"summary": "written"}}]}
    desk.template(**mended)
    desk.run("workflow", "resume", "small")
    assert desk.show("small")["status"] == "COMPLETED"
    assert not (parent / "notes.txt").exists()
    (kept,) = (desk.home / "workflows" / "left" / desk.show("small")["id"]).glob("*/notes.txt")
    assert kept.read_text() == "mine"


def test_one_repository_cannot_be_in_a_workflow_twice(desk: Desk) -> None:
    desk.run("git", "add", desk.remote.url)
    desk.run("git", "add", desk.remote.url, "--name", "same")
    for second in ("same", "app@main"):
        said = desk.run(
            "workflow", "create", desk.template(), "--repo", "app", "--repo", second, "--issue", "1", code=1
        )
        assert "is here twice, as app" in said


def test_verify_says_that_a_finished_branch_lacks_its_last_work(desk: Desk) -> None:
    workflow = desk.created()
    desk.run("workflow", "start", workflow)
    (tree,) = desk.show(workflow)["repositories"]
    plain_git(Path(tree["path"]), "reset", "--quiet", "--hard", "HEAD~1")
    for said in (desk.run("workflow", "verify", code=1), desk.run("workflow", "verify", workflow, code=1)):
        assert f"the branch {tree['branch']} is at " in said


def test_a_review_is_waited_for_and_gone_on_after(desk: Desk) -> None:
    workflow = desk.created(pause=True)
    said = desk.run("workflow", "start", workflow)
    assert "PAUSED" in said
    assert "kingdom workflow resume small continues it" in said
    said = desk.run("workflow", "resume", workflow)
    assert desk.show(workflow)["status"] == "COMPLETED", said


def test_going_back_to_a_checkpoint_does_the_later_works_again(desk: Desk) -> None:
    workflow = desk.created(build_check=[{"fail": "no disk"}])
    desk.run("workflow", "start", workflow, code=1)
    before = desk.show(workflow)
    desk.template()  # the script is mended
    desk.run("workflow", "resume", workflow, "--from", "plan")
    after = desk.show(workflow)
    assert after["status"] == "COMPLETED"
    assert [work["attempt"] for work in after["works"]] == [1, 2]
    assert after["checkpoints"][0] == before["checkpoints"][0]


def test_a_task_that_failed_for_good_is_tried_again_in_place(desk: Desk) -> None:
    workflow = desk.created(build_check=[{"fail": "no disk"}])
    said = desk.run("workflow", "start", workflow, code=1)
    assert "no disk" in said
    shown = desk.show(workflow)
    assert (shown["status"], shown["works"][1]["status"]) == ("PAUSED", "FAILED")
    assert "--retry" in said
    desk.template()  # the script is mended
    desk.run("workflow", "resume", workflow, "--retry")
    shown = desk.show(workflow)
    assert shown["status"] == "COMPLETED"
    assert shown["works"][1]["tasks"][0]["attempt"] == 1, "what was done stayed done"


def test_a_question_is_answered_on_the_command_line(desk: Desk) -> None:
    workflow = desk.created(build_write=[{"ask": {"question": "Red or blue?", "choices": ["red", "blue"]}}])
    said = desk.run("workflow", "start", workflow)
    assert "PAUSED: work build asks: Red or blue? (choices: red, blue)" in said
    assert "failed" not in said
    assert "kingdom workflow answer small TEXT" in said
    shown = desk.show(workflow)
    assert (shown["works"][1]["status"], shown["works"][1]["error"]) == ("WAITING", None)
    task = shown["works"][1]["tasks"][0]
    assert (task["question"], task["choices"]) == ("Red or blue?", ["red", "blue"])
    desk.template()
    desk.run("workflow", "answer", workflow, "blue")
    assert desk.show(workflow)["status"] == "COMPLETED"
    assert "asks anything" in desk.run("workflow", "answer", workflow, "blue", code=1)


def test_ctrl_c_pauses_and_it_can_go_on(desk: Desk) -> None:
    workflow = paused_with_half_a_file(desk)
    tree = Path(desk.show(workflow)["repositories"][0]["path"])
    assert "+half of it" in desk.run("workflow", "diff", workflow)
    assert "half.txt" in desk.run("workflow", "diff", "small", "--stat")
    desk.template()
    desk.run("workflow", "resume", workflow)
    assert desk.show(workflow)["status"] == "COMPLETED"
    assert (tree / "half.txt").exists(), "what lay in the worktree stayed"
    since = f"nothing changed since the last checkpoint: kingdom workflow diff {workflow} --base shows all"
    assert since in desk.run("workflow", "diff", workflow)


def test_what_is_dropped_after_a_pause_is_said_and_shown(desk: Desk) -> None:
    workflow = paused_with_half_a_file(desk)
    tree = Path(desk.show(workflow)["repositories"][0]["path"])
    desk.template()
    assert "use only one of them" in desk.run("workflow", "resume", workflow, "--discard", "--retry", code=2)
    assert "--hold" in desk.run("workflow", "resume", workflow, "--hold", code=2)
    said = desk.run("workflow", "resume", workflow, "--discard")
    assert "dropped, and kept under a rescue ref:" in said
    assert "half.txt" in said
    assert desk.show(workflow)["status"] == "COMPLETED"
    assert not (tree / "half.txt").exists()


def test_what_was_dropped_is_shown_and_brought_back(desk: Desk) -> None:
    workflow = paused_with_half_a_file(desk)
    tree = Path(desk.show(workflow)["repositories"][0]["path"])
    assert "nothing of small was dropped" in desk.run("workflow", "rescue", "ls", "small")
    desk.template(build_write=[{"write": {"path": "half.txt", "text": "another half\n"}}, {"fail": "no disk"}])
    desk.run("workflow", "resume", workflow, "--discard", code=1)
    (kept,) = desk.show(workflow)["rescues"]
    assert (kept["repository"], kept["why"].startswith("Kept when")) == ("app", True)
    assert (kept["files"], kept["fileCount"]) == (["half.txt"], 1)
    back = f"  kingdom workflow rescue restore small {kept['id']}\n"
    for said in (desk.run("workflow", "show", workflow), desk.run("workflow", "rescue", "ls", "small")):
        assert "rescue of app, 20" in said
        assert ": 1 file. Kept when kingdom/" in said
        assert "  added   half.txt  +1 -0\n" in said
        assert back in said
    said = desk.run("workflow", "rescue", "restore", "small", kept["id"])
    assert (tree / "half.txt").read_text() == "half of it\n"
    (_, replaced) = desk.json("workflow", "rescue", "ls", "small")["rescues"]
    assert f"what was there is kept as {replaced['id']}" in said
    assert "(there are" in desk.run("workflow", "rescue", "restore", "small", "nothing", code=1)
    desk.template(build_write=[{"result": {"summary": "written"}}])
    desk.run("workflow", "resume", workflow, "--retry")
    assert plain_git(tree, "show", "HEAD:half.txt") == "half of it", "it is in the next checkpoint"


def test_a_deleted_workflow_leaves_no_ref_and_its_repository_no_clone(desk: Desk) -> None:
    workflow = paused_with_half_a_file(desk)
    desk.template()
    desk.run("workflow", "resume", workflow, "--discard")
    other = desk.created()
    desk.run("workflow", "start", other)
    (clone,) = (desk.home / "workflows" / "clones").iterdir()
    refs = plain_git(clone / "repo" / ".git", "for-each-ref", "--format=%(refname)").splitlines()
    assert {ref.split("/")[2] for ref in refs if workflow in ref} == {"kingdom", "checkpoints", "rescue"}
    desk.run("workflow", "rm", "small", "--yes")
    left = plain_git(clone / "repo" / ".git", "for-each-ref", "--format=%(refname)").splitlines()
    assert [ref for ref in left if workflow in ref] == []
    assert [ref for ref in left if other in ref] == [ref for ref in refs if other in ref]
    assert "every commit exists" in desk.run("workflow", "verify")
    assert list((desk.home / "workflows").glob(f"*/{workflow}")) == []
    desk.run("workflow", "rm", other, "--yes")
    desk.run("git", "rm", "app", "--yes")
    assert not clone.exists()


def paused_with_half_a_file(desk: Desk) -> str:
    """A workflow that Ctrl-C stopped in its second work, which had written a file."""
    script = [{"write": {"path": "half.txt", "text": "half of it\n"}}, {"say": "I begin."}, {"wait": 600}]
    workflow = desk.created(build_write=script)
    process = desk.begin("workflow", "start", workflow)
    line_with(process, "I begin.")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "kingdom workflow resume small continues where it stopped" in said
    assert desk.show(workflow)["status"] == "PAUSED"
    return workflow


def test_one_goes_back_changes_the_plan_and_goes_on(desk: Desk) -> None:
    workflow = desk.created()
    desk.run("workflow", "start", workflow)
    said = desk.run("workflow", "resume", workflow, "--from", "start", "--hold")
    assert "PAUSED: it went back to the start" in said
    plan = desk.folder / "plan.yaml"
    text = desk.run("workflow", "show", workflow, "--plan")
    plan.write_text(text.replace("query: Look into", "query: Look well into"))
    assert "another query" in desk.run("workflow", "modify", workflow, "--file", str(plan))
    desk.run("workflow", "resume", workflow)
    shown = desk.show(workflow)
    assert (shown["status"], [work["attempt"] for work in shown["works"]]) == ("COMPLETED", [2, 2])

    assert "small --from CHECKPOINT goes back to one" in desk.run("workflow", "resume", workflow, code=1)
    script = {"more/check": [{"say": "Still well."}, {"result": {"summary": "checked"}}]}
    engine = {"name": "scripted", "options": {"script": script}}
    more = {"name": "more", "engine": engine, "tasks": [{"name": "check", "query": "Once more"}]}
    text = desk.run("workflow", "show", workflow, "--plan").rstrip("\n")
    plan.write_text(f"{text}\n  - {json.dumps(more)}\n")
    assert "work more is added" in desk.run("workflow", "modify", workflow, "--file", str(plan))
    assert desk.show(workflow)["status"] == "PAUSED"
    desk.run("workflow", "resume", workflow)
    shown = desk.show(workflow)
    assert (shown["status"], len(shown["checkpoints"])) == ("COMPLETED", 5)


def test_after_a_kill_it_is_started_again_and_goes_on(desk: Desk) -> None:
    workflow = desk.created(build_write=[{"say": "I begin."}, {"wait": 600}])
    process = desk.begin("workflow", "start", workflow)
    line_with(process, "I begin.")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)
    shown = desk.show(workflow)
    assert (shown["status"], shown["engineRunning"]) == ("RUNNING", False)
    assert "none runs: kingdom workflow start" in desk.run("workflow", "show", workflow)
    listed = desk.run("workflow", "ls")
    assert "RUNNING (no engine)" in listed
    assert "no engine runs: kingdom workflow start" in listed
    refused = desk.run("workflow", "resume", workflow, "--from", "plan", code=1)
    assert "workflow small cannot be resumed: it is at work (RUNNING); kingdom workflow pause small stops it" in refused
    desk.template()
    desk.run("workflow", "start", workflow)
    shown = desk.show(workflow)
    assert shown["status"] == "COMPLETED"
    assert [work["attempt"] for work in shown["works"]] == [1, 1]


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.walk), signal.SIGKILL])
def test_a_command_that_waits_becomes_the_engine_when_the_engine_goes(desk: Desk, number: signal.Signals) -> None:
    first = desk.created(build_write=[{"say": "I begin."}, {"wait": 600}])
    second = desk.created(name="other.yaml", plan_look=[{"say": "the other begins"}, {"wait": 600}])
    engine = desk.begin("workflow", "start", first)
    line_with(engine, "I begin.")
    waiting = desk.begin("workflow", "start", second)
    line_with(waiting, "the other begins")
    assert desk.show(second)["engineRunning"]
    desk.template("other.yaml")  # what the engine that takes over reads
    os.killpg(engine.pid, number)
    line_with(waiting, "this process is the engine now")
    line_with(waiting, "WorkflowCompleted")
    if number == signal.SIGKILL:  # the first was not paused, and this process stays its engine
        line_with(waiting, "this engine also runs small: Ctrl-C ends the wait and leaves it to the next engine")
    else:
        assert waiting.wait(timeout=60) == 0
    assert desk.show(second)["status"] == "COMPLETED"


def test_without_an_engine_a_command_carries_its_consequences_through(desk: Desk) -> None:
    lib = Remote(desk.folder / "lib")
    lib.commit({"README.md": "lib\n"})
    desk.run("git", "add", desk.remote.url)
    desk.run("git", "add", lib.url)
    desk.run("mcp", "add", "tools", "--", "true")
    path = Path(desk.template(pause=True, plan_look=[{"result": {"summary": "looked"}}]))
    path.write_text(path.read_text() + "repositories: [app, lib]\nmcp: [tools]\n")
    desk.run("template", "add", str(path))
    workflow = desk.json("workflow", "create", "small", "--issue", "APP-1")["id"]
    desk.run("workflow", "start", workflow)
    plan = desk.folder / "plan.yaml"
    text = desk.run("workflow", "show", workflow, "--plan")
    plan.write_text("".join(line for line in text.splitlines(keepends=True) if line.strip() != "- lib"))
    assert "other repositories" in desk.run("workflow", "modify", workflow, "--file", str(plan))
    trees = {tree["name"]: Path(tree["path"]) for tree in desk.show(workflow)["repositories"]}
    assert "used by 1 workflows" in desk.run("git", "rm", "lib", "--yes", code=1)

    desk.run("workflow", "cancel", workflow, "--yes")
    assert {name: tree.is_dir() for name, tree in trees.items()} == {"app": True, "lib": False}
    assert [one["usedBy"] for one in desk.json("git", "ls")["repositories"]] == [[], []]
    assert [one["usedBy"] for one in desk.json("mcp", "ls")["mcpServers"]] == [[]]

    desk.run("git", "rm", "lib", "--yes")
    desk.run("mcp", "rm", "tools", "--yes")
    shown = desk.run("template", "show", "small")
    assert "app" in shown
    assert not [word for word in ("- lib", "tools", "git-", "mcp-") if word in shown], shown


def test_an_engine_in_the_foreground_takes_what_others_give_it_and_stays_for_it(desk: Desk) -> None:
    workflow = desk.created(build_write=[{"say": "I begin."}, {"wait": 600}])
    other = desk.created(name="other.yaml", plan_look=[{"say": "the other begins"}, {"wait": 600}])
    process = desk.begin("workflow", "start", workflow)
    line_with(process, "I begin.")
    desk.run("workflow", "start", other, "--detach")
    desk.run("workflow", "pause", workflow)
    line_with(process, "kingdom workflow resume")
    line_with(process, "this engine also runs small-2")
    desk.run("workflow", "cancel", other, "--yes")
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert desk.show(other)["status"] == "CANCELLED"


def test_what_an_agent_says_while_a_watch_begins_is_shown(desk: Desk) -> None:
    """The state is read first, then the transcripts: a run may begin in between."""
    shown = desk.show(desk.created())
    work = shown["works"][0]
    place = WorkflowHome(desk.home / "workflows")
    place.sessions.mkdir(parents=True)
    for task_id, attempt in ((work["tasks"][0]["id"], 1), (work["tasks"][0]["id"], 0)):  # one is over
        run_id = f"{work['id']}.{task_id}.{attempt}"
        folder = RunFolder(place.runs, run_id)
        folder.create()
        folder.write_order(Order(run_id, task_id, "scripted", "", place.runs, place.runs / "result"))
        text = json.dumps({"type": "text", "text": f"attempt {attempt}"})
        (place.sessions / f"{run_id}.json").write_text(f"{text}\n")

    async def first_frame() -> WorkflowFrame:
        async with open_workflow_store(place) as store, aclosing(watch_frames(place, store, shown["id"])) as frames:
            return await anext(frames)

    assert [line.text for line in asyncio.run(first_frame()).said] == ["attempt 1"]


def test_other_processes_hand_over_pause_watch_and_cancel(desk: Desk) -> None:
    workflow = desk.created(build_write=[{"say": "I begin."}, {"wait": 600}])
    other = desk.created(name="other.yaml")
    engine = desk.begin("workflow", "engine")
    line_with(engine, "the engine runs on")
    assert "There is one for each store" in desk.run("workflow", "engine", code=1)

    assert "kingdom workflow watch" in desk.run("workflow", "start", workflow, "--detach")
    watch = desk.begin("workflow", "watch", workflow, "--json")
    line_with(watch, "I begin.")
    assert "WorkflowCompleted" in desk.run("workflow", "start", other), "the running engine does it, and we look on"
    desk.run("workflow", "pause", workflow)
    assert desk.show(workflow)["status"] == "PAUSED"
    rest, _ = watch.communicate(timeout=60)
    assert json.loads(rest.splitlines()[-1])["status"] == "PAUSED"
    refused = desk.json("workflow", "pause", workflow, code=1)
    assert refused["error"]["code"] == "WFL_ILLEGAL_TRANSITION"
    refused = refused["error"]["message"]
    assert "small cannot be paused: it has stopped and can go on (PAUSED); kingdom workflow resume small" in refused
    desk.run("workflow", "cancel", workflow, "--yes")
    assert desk.show(workflow)["status"] == "CANCELLED"
    refused = desk.run("workflow", "resume", workflow, code=1)
    assert "small cannot be resumed: it is over for good (CANCELLED); kingdom workflow fork small --from" in refused
    refused = desk.run("workflow", "pause", other, code=1)
    assert "small-2 cannot be paused: it is done (COMPLETED); kingdom workflow follow-up small-2 TEXT has" in refused
    desk.run("workflow", "rm", workflow, "--yes")
    assert [one["id"] for one in desk.json("workflow", "ls")["workflows"]] == [other]
    engine.send_signal(signal.SIGTERM)
    said, _ = engine.communicate(timeout=60)
    assert (engine.returncode, "the engine has stopped" in said) == (0, True)


def test_without_an_engine_it_is_paused_cancelled_and_removed_here(desk: Desk) -> None:
    workflow = desk.created(pause=True)
    assert "no engine runs here" in desk.run("workflow", "start", workflow, "--detach", code=1)
    desk.run("workflow", "start", workflow)
    tree = Path(desk.show(workflow)["repositories"][0]["path"])
    desk.run("workflow", "cancel", workflow, "--yes")
    assert tree.is_dir(), "what it did stays"
    desk.run("workflow", "rm", workflow, "--yes")
    assert not tree.exists()
    assert "no workflows" in desk.run("workflow", "ls")


def test_a_fork_goes_its_own_way_from_a_checkpoint(desk: Desk) -> None:
    workflow = desk.created()
    desk.run("workflow", "start", workflow)
    fork = desk.json("workflow", "fork", workflow, "--from", "plan")["id"]
    desk.run("workflow", "start", fork)
    first, second = desk.show(workflow), desk.show(fork)
    assert (first["status"], second["status"]) == ("COMPLETED", "COMPLETED")
    assert first["repositories"][0]["branch"] != second["repositories"][0]["branch"]
    assert second["works"][0]["attempt"] == 1
    for either in (workflow, fork):
        assert "every commit exists and is held" in desk.run("workflow", "verify", either)


def test_the_plan_is_changed_while_it_waits(desk: Desk) -> None:
    workflow = desk.created(pause=True)
    desk.run("workflow", "start", workflow)
    plan = desk.folder / "plan.yaml"
    text = desk.run("workflow", "show", workflow, "--plan")
    plan.write_text(text.replace("name: check", "name: check-again").replace("query: Write it", "query: Write it well"))
    wanted = [
        "work build: task write: another query",
        "work build: task check is removed",
        "work build: task check-again is added",
    ]
    dry = desk.json("workflow", "modify", workflow, "--file", str(plan), "--dry-run")
    assert (sorted(dry["changes"]), dry["made"]) == (sorted(wanted), False)
    assert "is changed" in desk.run("workflow", "modify", workflow, "--file", str(plan))
    assert "nothing changes" in desk.run("workflow", "modify", workflow, "--file", str(plan))
    plan.write_text(plan.read_text().replace("name: small", "name: smaller", 1))
    assert "its name becomes smaller" in desk.run("workflow", "modify", workflow, "--file", str(plan))
    assert desk.show("smaller")["id"] == workflow
    assert [task["name"] for task in desk.show(workflow)["works"][1]["tasks"]] == ["write", "check-again"]
    plan.write_text(plan.read_text().replace("query: Look into", "query: Forget"))
    refused = desk.json("workflow", "modify", workflow, "--file", str(plan), code=1)
    assert refused["error"]["code"] == "MOD_NOT_NOW", "what is done stays"
    plan.write_text("name: small\nworks:\n  - {name: plan, tasks: []}\n  - {name: plan, tasks: [x]}\n")
    said = desk.run("workflow", "modify", workflow, "--file", str(plan), code=1)
    assert f"{plan}:3: works plan, tasks: at least one is needed" in said
    assert "NO_EDITOR" in desk.run("workflow", "modify", workflow, "--json", code=2)


def editor(folder: Path, *texts: tuple[str, str]) -> str:
    """An editor that replaces a text by another, a further one each time it is opened."""
    steps, script = folder / "edits.json", folder / "edit.py"
    steps.write_text(json.dumps(texts))
    script.write_text(
        "import json, pathlib, sys\n"
        f"steps, plan = pathlib.Path({str(steps)!r}), pathlib.Path(sys.argv[1])\n"
        "(old, new), *left = json.loads(steps.read_text())\n"
        "assert old in plan.read_text()\n"
        "plan.write_text(plan.read_text().replace(old, new))\n"
        "steps.write_text(json.dumps(left))\n"
    )
    return f"{sys.executable} {script}"


def test_a_mistake_in_the_editor_is_mended_there(desk: Desk) -> None:
    workflow = desk.created(pause=True)
    mends = editor(desk.folder, ("query: Write it", "qeury: Write it"), ("qeury: Write it", "query: Write it well"))
    with Terminal("workflow", "modify", workflow, EDITOR=mends) as terminal:
        assert "'qeury'" in terminal.see("Edit it again? [Y/n]: ")
        terminal.type("\n")
        assert "work build: task write: another query" in terminal.see("Apply these changes to small? [y/N]: ")
        terminal.type("y\n")
        terminal.see("the plan of small is changed")
        assert terminal.wait() == 0


def test_what_was_written_in_the_editor_is_kept_with_the_command_that_takes_it(desk: Desk) -> None:
    workflow = desk.created(pause=True)
    wrong = editor(desk.folder, ("query: Write it", "qeury: Write it"))
    with Terminal("workflow", "modify", workflow, EDITOR=wrong, columns=400) as terminal:
        terminal.see("Edit it again? [Y/n]: ")
        terminal.type("n\n")
        said = terminal.see(" takes it")
        assert "the plan was not changed; what you wrote is kept: kingdom workflow modify small --file /" in said
        assert terminal.wait() == 1
    plan = Path(said.partition("--file ")[2].split()[0])
    plan.write_text(plan.read_text().replace("qeury: Write it", "query: Write it well"))
    assert "is changed" in desk.run("workflow", "modify", workflow, "--file", str(plan))
    plan.unlink()

    unsure = editor(desk.folder, ("query: Write it well", "query: Write it twice"))
    with Terminal("workflow", "modify", workflow, EDITOR=unsure, columns=400) as terminal:
        terminal.see("Apply these changes to small? [y/N]: ")
        terminal.type("n\n")
        said = terminal.see(" takes it")
        assert "not confirmed: nothing was changed; what you wrote is kept" in said
        assert terminal.wait() == 1
    Path(said.partition("--file ")[2].split()[0]).unlink()

    code, screen = kingdom_tty("workflow", "modify", workflow, EDITOR="false")
    assert code == 1
    assert "false exited with 1: nothing was changed" in screen
    assert "is kept" not in screen, "nothing was written"
    desk.run("workflow", "cancel", workflow, "--yes")
    code, screen = kingdom_tty("workflow", "modify", workflow, EDITOR="false")
    assert "small cannot be changed now" in screen, "no editor is opened for nothing"


def test_a_repository_that_is_gone_fails_the_workflow_with_the_reason(desk: Desk) -> None:
    workflow = desk.created()
    desk.remote.folder.rename(desk.folder / "elsewhere")
    said = desk.run("workflow", "start", workflow, code=1)
    assert "FAILED: a worktree could not be made" in said
    assert "Traceback" not in said
    assert "--retry continues" in said
    assert "follow-up" not in said, "there is no conversation yet"
    assert "no work of it has begun: kingdom workflow resume small" in desk.run(
        "workflow", "follow-up", workflow, "More", code=1
    )
    (desk.folder / "elsewhere").rename(desk.remote.folder)
    desk.run("workflow", "resume", workflow)
    assert desk.show(workflow)["status"] == "COMPLETED"


def test_on_a_terminal_it_is_one_picture(desk: Desk) -> None:
    workflow = desk.created()
    code, screen = kingdom_tty("workflow", "start", workflow, KINGDOM_HOME=str(desk.home))
    assert code == 0, screen
    for words in ("step", "look", "COMPLETED", "I look around.", "$0.25", "15 tokens"):
        assert words in screen


def test_the_store_may_be_on_postgresql(desk: Desk, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINGDOM_WORKFLOW_STORE", postgres_url)
    workflow = desk.created()
    desk.run("workflow", "start", workflow)
    assert desk.show(workflow)["status"] == "COMPLETED"
    assert not (desk.home / "workflows" / "workflows.db").exists()
    assert "WorkflowCompleted" in desk.run("workflow", "log", workflow)


def test_a_local_repository_is_looked_for_when_it_is_added(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "beside").mkdir()
    monkeypatch.chdir(desk.folder / "beside")
    assert desk.json("git", "add", "../app")["url"] == str(desk.remote.folder.resolve())
    for missing in ("/no/such/folder", "../nowhere", "file:///no/such/folder"):
        assert "there is no folder" in desk.run("git", "add", missing, code=2)
    assert "is not a git repository" in desk.run("git", "add", ".", code=2)
    assert len(desk.json("git", "ls")["repositories"]) == 1


def test_the_model_of_the_whole_plan_changes_for_the_works_to_come(desk: Desk) -> None:
    workflow = desk.created(pause=True)
    desk.run("workflow", "start", workflow)
    plan = desk.folder / "plan.yaml"
    text = desk.run("workflow", "show", workflow, "--plan")
    assert "  name: scripted\n" in text
    plan.write_text("model: opus\n" + text)
    said = desk.run("workflow", "modify", workflow, "--file", str(plan))
    assert "work build: another model" in said
    assert "work plan" not in said
    assert [work["model"] for work in desk.show(workflow)["works"]] == [None, "opus"]


@pytest.mark.parametrize(
    "arguments",
    [("template", "ls"), ("git", "ls"), ("mcp", "ls"), ("workflow", "ls"), ("workflow", "show", "x")],
)
def test_looking_where_there_is_no_store_creates_none(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = kingdom(*arguments, "--home", str(tmp_path))
    assert "Traceback" not in done.stderr
    assert done.returncode == (1 if "show" in arguments else 0), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_templates_repositories_and_servers_are_looked_after(desk: Desk) -> None:
    desk.run("git", "add", desk.remote.url)
    desk.run("git", "add", "https://example.com/you/lib.git", "--name", "lib", "--no-check")
    assert "ALREADY_THERE" in desk.run("git", "add", desk.remote.url, "--json", code=1)
    desk.run("mcp", "add", "jira", "--env", "TOKEN=${JIRA_TOKEN}", "--", "jira-mcp", "--stdio")
    desk.run("mcp", "add", "web", "--url", "https://example.com/mcp")
    assert "looks like a secret" in desk.run("mcp", "add", "x", "--env", "T=ghp_0123456789abcdef01", "--", "x", code=2)
    assert desk.json("mcp", "ls")["mcpServers"][0]["command"] == ["jira-mcp", "--stdio"]
    assert "JIRA_TOKEN" not in desk.run("mcp", "ls"), "values are not shown"

    path = desk.template()
    text = Path(path).read_text()
    Path(path).write_text(text + "repositories: [lib, {name: app, base: main}]\nmcp: [jira]\n")
    assert "no problems" in desk.run("template", "check", path)
    desk.run("template", "add", path)
    assert "--replace" in desk.run("template", "add", path, code=1)
    desk.run("template", "add", path, "--replace")
    shown = desk.run("template", "show", "small")
    assert "  - name: app\n    base: main\n" in shown
    assert desk.json("template", "ls")["templates"][0]["tasks"] == 3
    desk.run("mcp", "rm", "jira", "--yes")
    desk.run("git", "rm", "lib", "--yes")
    Path(path).write_text(text + "repositories: [lib]\ncolour: red\n")
    said = desk.run("template", "check", path, code=1)
    assert "there is no repository 'lib' (app): kingdom git add URL --name lib" in said
    assert "unknown key 'colour'" in said
    desk.run("template", "rm", "small", "--yes")
    assert "no templates" in desk.run("template", "ls")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("workflow", "show", "nothing"), 1, "kingdom workflow ls"),
        (("workflow", "create", "nothing"), 1, "kingdom template ls"),
        (("workflow", "create", "nothing.yaml"), 1, "nothing.yaml: No such file"),
        (("workflow", "start", "nothing"), 1, "kingdom workflow ls"),
        (("workflow", "resume", "x", "--retry", "--from", "y"), 2, "use only one of them"),
        (("workflow", "diff", "cp-1", "cp-2", "--base"), 2, "not both"),
        (("workflow", "diff", "nothing"), 1, "kingdom workflow show"),
        (("workflow", "ls", "--status", "odd"), 2, "RUNNING"),
        (("workflow", "rm", "nothing"), 2, "--yes"),
        (("workflow", "ls", "--store", "mysql://x"), 1, "sqlite:///file.db or postgresql://"),
        (("git", "rm", "nothing", "--yes"), 1, "kingdom git ls"),
        (("git", "add", "ext::sh"), 1, "remote helpers"),
        (("mcp", "add", "x"), 2, "a command after -- or a --url"),
        (("template", "show", "nothing"), 1, "kingdom template ls"),
    ],
)
def test_mistakes_are_told_with_the_next_step(desk: Desk, arguments: tuple[str, ...], code: int, words: str) -> None:
    assert words in desk.run(*arguments, code=code)
