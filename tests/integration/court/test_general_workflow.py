"""A general whose tasks are done by workflows: from the file of an event to the finished branch."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.engines import default_engines
from kingdom.agents.errors import InvalidOrder
from kingdom.agents.port import AgentEvent, Began, ToolUse
from kingdom.court.packages.manifest import Manifest
from kingdom.workflow.engine import run_engine
from kingdom.workflow.home import WorkflowHome, open_home
from kingdom.workflow.player import WorkflowPlayer
from tests.support.court_processes import wait_for
from tests.support.forking import forked
from tests.support.workflow_courts import GENERAL, WorkflowCourt, reign_for_ever

REPORT = "## Findings\n\nThe last line is lost.\n"


def scripted(name: str, tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A Work whose tasks are scripts."""
    script = {f"{name}/{task}": script for task, (_, script) in tasks.items()}
    return {
        "name": name,
        "engine": {"name": "scripted", "options": {"script": {**script, **more.pop("script", {})}}},
        "tasks": [{"name": task, "query": query} for task, (query, _) in tasks.items()],
        **more,
    }


@pytest.fixture
def court(tmp_path: Path) -> WorkflowCourt:
    return WorkflowCourt(tmp_path)


async def test_an_event_becomes_a_finished_branch(court: WorkflowCourt) -> None:
    used = {"usage": {"input": 100, "output": 20, "cost_usd": 0.25}}
    plan = scripted(
        "plan",
        {"look": ("Look into {{ issue.key }}: {{ issue.title }}", [used, {"say": "I looked."}])},
        script={"plan/look/report": [{"say": REPORT}]},
    )
    plan["tasks"][0]["report"] = ["Findings"]
    fix = scripted(
        "fix",
        {
            "write": (
                "Fix {{ event.repo }}.",
                [used, {"write": {"path": "fix.txt", "text": "fixed"}}, {"say": "Mended."}],
            )
        },
    )
    court.found([plan, fix])
    async with court.reigning() as reign:
        court.report()
        await reign.until(court.completed)
    (result,) = court.results()
    assert (result["status"], result["error"], result["engine"]) == ("success", None, "workflow")
    assert "2 of 2 works are done (plan, fix)" in result["summary"]
    assert "Mended." in result["summary"]
    assert (result["cost_usd"], result["tokens"]["input"], result["tokens"]["output"]) == (0.5, 200, 40)
    (branch,) = court.branches()
    assert branch in result["summary"]
    assert court.file_on(branch, "fix.txt") == "fixed"
    (report,) = result["links"]
    assert "The last line is lost." in Path(report).read_text()
    (workflow,) = await court.workflows()
    assert (workflow.id, workflow.status, workflow.issue_key) == (result["session_id"], "COMPLETED", "acme/web#7")


async def test_an_agents_question_goes_to_people_and_their_answer_back_to_it(court: WorkflowCourt) -> None:
    query = "Paint {{ event.repo }}, {{ issue.key }}: {{ issue.title }}"
    court.found([{"name": "paint", "engine": court.asker, "tasks": [{"name": "choose", "query": query}]}])
    async with court.reigning() as reign:
        court.report()
        await reign.until(lambda: any(court.home.queue.glob("messages/*/*.json")) and court.results())
        (first,) = court.results()
        assert (first["status"], first["question"]["text"]) == ("needs_human", "Red or blue?")
        assert (first["question"]["choices"], first["question"]["default"]) == (["red", "blue"], "red")
        assert not court.completed()
        court.answer(first["task_id"], "Blue, {{ please }} {% raw %}")
        await reign.until(court.completed)
    _, second = court.results()
    assert second["status"] == "success", second
    assert second["session_id"] == first["session_id"]
    assert "It is blue now." in second["summary"]
    assert len(court.branches()) == 1
    assert len(await court.workflows()) == 1
    asked = court.prompts()
    assert len(asked) == 2
    assert all("Paint acme/web, acme/web#7: The parser {{ drops }} a line" in prompt for prompt in asked)
    assert "Blue, {{ please }} {% raw %}" in asked[1]


@pytest.mark.parametrize(("said", "status"), [("go on", "success"), ("stop", "failed")])
async def test_a_work_that_is_to_be_reviewed_waits_for_a_person(court: WorkflowCourt, said: str, status: str) -> None:
    plan = scripted("plan", {"look": ("Look.", [{"say": "I looked."}])}, pause_after=True)
    fix = scripted("fix", {"write": ("Fix.", [{"write": {"path": "fix.txt", "text": "fixed"}}])})
    court.found([plan, fix])
    async with court.reigning() as reign:
        court.report()
        await reign.until(lambda: court.results() and any(court.home.queue.glob("messages/*/*.json")))
        (first,) = court.results()
        assert first["status"] == "needs_human"
        assert "review after plan" in first["question"]["text"]
        assert first["question"]["choices"] == ["go on", "stop"]
        court.answer(first["task_id"], said)
        await reign.until(court.completed)
    second = court.results()[-1]
    assert second["status"] == status
    (workflow,) = await court.workflows()
    assert workflow.status == ("COMPLETED" if status == "success" else "CANCELLED")


async def test_a_general_that_is_killed_goes_on_with_the_same_workflow(court: WorkflowCourt) -> None:
    court.found([{"name": "fix", "engine": court.worker, "tasks": [{"name": "write", "query": "Fix it."}]}])
    process = forked(reign_for_ever, str(court.root))
    assert wait_for((court.home.queue / "tasks" / "pending").is_dir, 60)
    court.report()
    assert wait_for(court.begun.exists, 60)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    court.gate.touch()
    async with court.reigning() as reign:
        await reign.until(court.completed)
    (result,) = court.results()
    assert result["status"] == "success", result
    (branch,) = court.branches()
    assert court.file_on(branch, "fix.txt") == "fixed"
    (workflow,) = await court.workflows()
    assert (workflow.id, workflow.status) == (result["session_id"], "COMPLETED")
    assert court.begun.read_text() == "x", "its agent outlived the general, and was not started twice"


async def test_a_general_that_stops_leaves_the_workflow_to_the_next_one(court: WorkflowCourt) -> None:
    court.found([{"name": "fix", "engine": court.worker, "tasks": [{"name": "write", "query": "Fix it."}]}])
    async with court.reigning() as reign:
        court.report()
        await reign.until(court.begun.exists)
    assert court.results() == []
    (workflow,) = await court.workflows()
    assert workflow.status == "RUNNING"
    court.gate.touch()
    async with court.reigning() as reign:
        await reign.until(court.completed)
    (result,) = court.results()
    assert (result["status"], result["session_id"]) == ("success", workflow.id)
    assert court.begun.read_text() == "x"


async def test_a_cancelled_task_pauses_its_workflow_and_ends_its_agent(court: WorkflowCourt) -> None:
    court.found([{"name": "fix", "engine": court.worker, "tasks": [{"name": "write", "query": "Fix it."}]}])
    async with court.reigning() as reign:
        court.report()
        await reign.until(court.begun.exists)
        (task,) = court.home.queue.glob("tasks/in_progress/task-*.json")
        task_id = json.loads(task.read_text())["id"]
        court.drop(f"evt-console-cancel-{task_id}-1", "console.task_cancel", {"task_id": task_id})
        await reign.until(court.completed)
    result = next(one for one in court.results() if one["task_id"] == task_id)
    assert result["status"] == "cancelled"
    assert "cancelled" in result["error"]
    (workflow,) = await court.workflows()
    assert workflow.status == "PAUSED"
    assert workflow.reason.startswith("stopped with its task: ")
    (work_folder,) = (court.home.workflows / "agents" / "runs").iterdir()
    outcome = json.loads((work_folder / "outcome.json").read_text())
    assert outcome["status"] == "killed"


async def test_a_failed_workflow_goes_on_when_the_general_tries_again(court: WorkflowCourt) -> None:
    flag = court.root / "flag"
    program = (
        "import pathlib, sys; flag = pathlib.Path(sys.argv[1]); there = flag.exists(); flag.touch(); "
        "print('second' if there else 'first'); sys.exit(0 if there else 3)"
    )
    engine = {"name": "command", "options": {"argv": [sys.executable, "-c", program, str(flag)]}}
    court.found([{"name": "fix", "engine": engine, "tasks": [{"name": "write", "query": "Fix it."}]}], retries=1)
    template = court.home.general(GENERAL) / "workflow.yaml"
    template.write_text(template.read_text() + "on_failure: fail\n")
    async with court.reigning() as reign:
        court.report()
        await reign.until(court.completed)
    (result,) = court.results()
    assert (result["status"], result["retry_count"]) == ("success", 1)
    assert len(await court.workflows()) == 1
    assert len(court.branches()) == 1


async def test_an_engine_of_another_process_does_the_work_and_when_it_goes_ours_does(court: WorkflowCourt) -> None:
    court.found([{"name": "fix", "engine": court.worker, "tasks": [{"name": "write", "query": "Fix it."}]}])
    async with court.reigning() as reign:
        async with open_home(WorkflowHome(court.home.workflows), default_engines()) as parts, run_engine(parts):
            court.report()
            await reign.until(court.begun.exists)
        court.gate.touch()
        await reign.until(court.completed)
    (result,) = court.results()
    assert result["status"] == "success", result
    assert court.begun.read_text() == "x"


async def test_tasks_of_one_general_share_an_engine(court: WorkflowCourt) -> None:
    works = [{"name": "fix", "engine": court.worker, "tasks": [{"name": "write", "query": "Fix it."}]}]
    court.found(works, concurrency=2)
    async with court.reigning() as reign:
        for number in (1, 2):
            court.drop(f"evt-github-{number}", "github.pr.opened", {"pr_number": number}, "acme/web")
        await reign.until(lambda: court.begun.exists() and court.begun.read_text() == "xx")
        court.gate.touch()
        await reign.until(lambda: court.completed("evt-github-1") and court.completed("evt-github-2"))
    assert [one["status"] for one in court.results()] == ["success", "success"]
    branches = court.branches()
    assert len(branches) == 2
    assert {court.file_on(branch, "fix.txt") for branch in branches} == {"fixed"}
    assert sorted(one.issue_key for one in await court.workflows()) == ["acme/web#1", "acme/web#2"]


async def test_an_answer_is_given_once_however_often_its_run_is_repeated(court: WorkflowCourt) -> None:
    asker = {**court.asker, "options": {"argv": [*court.asker["options"]["argv"], "always"]}}
    court.found([{"name": "paint", "engine": asker, "tasks": [{"name": "choose", "query": "Paint."}]}])
    player, heard = WorkflowPlayer(), list[AgentEvent]()
    first = await player.play(court.order("task-1"), heard.append)
    assert first.structured is not None
    assert first.structured["question"]["text"] == "Red or blue?"
    answered = court.order("task-2", key="task-1", answer={"task_id": "task-2", "text": "Blue."})
    for _ in range(2):  # as if the general had been killed before it wrote down what came of it
        again = await player.play(answered, heard.append)
        assert again.structured is not None
        assert (again.structured["status"], again.structured["workflow_id"]) == (
            "needs_human",
            first.structured["workflow_id"],
        )
    asked = court.prompts()
    assert len(asked) == 2
    assert asked[1].count("# A person's answer") == 1
    assert {event.session_id for event in heard if isinstance(event, Began)} == {first.structured["workflow_id"]}


@pytest.mark.parametrize("moment", [Began, ToolUse("WorkflowStarted"), ToolUse("TaskStarted", "fix/write")])
async def test_a_run_that_is_stopped_leaves_nothing_that_goes_on(court: WorkflowCourt, moment: Any) -> None:
    court.found([{"name": "fix", "engine": court.worker, "tasks": [{"name": "write", "query": "Fix it."}]}])

    def stop_then(event: AgentEvent) -> None:
        if event == moment or type(event) is moment:
            playing.cancel("its time is over")

    player = WorkflowPlayer()
    playing = asyncio.create_task(player.play(court.order("task-1"), stop_then))
    await asyncio.wait([playing])
    assert playing.cancelled()
    async with open_home(WorkflowHome(court.home.workflows), default_engines()) as parts, run_engine(parts) as engine:
        await engine.idle()
        (workflow,) = await court.workflows()
        if workflow.status != "CREATED":  # it was stopped before it was asked to start
            assert (workflow.status, workflow.reason) == ("PAUSED", "stopped with its task: its time is over")
    court.gate.touch()
    again = await player.play(court.order("task-1"), lambda _: None)
    assert again.ok, again
    assert len(await court.workflows()) == 1


async def test_options_that_make_no_sense_are_refused(court: WorkflowCourt) -> None:
    with pytest.raises(InvalidOrder, match="'home' is missing"):
        await WorkflowPlayer().play(court.order("task-1", home=None), lambda _: None)
    with pytest.raises(InvalidOrder, match="not the id of a task"):
        await WorkflowPlayer().play(court.order("task-1", key="../out"), lambda _: None)


async def test_a_template_that_is_not_there_is_told(court: WorkflowCourt) -> None:
    court.found([{"name": "fix", "engine": court.worker, "tasks": [{"query": "Fix it."}]}], template="another")
    async with court.reigning() as reign:
        court.report()
        await reign.until(court.completed)
    (result,) = court.results()
    assert result["status"] == "failed"
    assert "there is no workflow template 'another'" in result["error"]
    assert "kingdom template add" in result["error"]


@pytest.mark.parametrize(
    ("field", "problem"),
    [({"engine": "claude"}, "no 'engine'"), ({"evidence": ["commit"]}, "'evidence' is for mode: agent")],
)
def test_a_manifest_that_mixes_the_modes_is_refused(field: dict[str, Any], problem: str) -> None:
    document = {"name": GENERAL, "description": "d", "mode": "workflow", "template": "repair", **field}
    with pytest.raises(ValueError, match=problem):
        Manifest.model_validate(document)


def test_a_manifest_of_a_workflow_has_its_engine() -> None:
    manifest = Manifest.model_validate({"name": GENERAL, "description": "d", "mode": "workflow", "template": "repair"})
    assert manifest.engine.name == "workflow"
