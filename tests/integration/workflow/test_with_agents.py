"""A whole workflow, three works of five tasks with two reports, on a real repository with real agents."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.engine import Engine as AgentEngine
from kingdom.agents.engine import Examined, InProcessEngine
from kingdom.agents.engines.claude import ClaudeEngine
from kingdom.agents.engines.codex import CodexEngine
from kingdom.agents.engines.command import CommandEngine
from kingdom.agents.engines.scripted import ScriptedEngine
from kingdom.agents.port import Began, Finished, OnEvent, Order, SandboxMode
from kingdom.agents.sandbox.sandbox import Sandbox
from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.resources import Checkpoint, Git, GitRef, WorkTree
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.domain.work import Report, Work
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, Workflow, WorkflowTemplate
from kingdom.workflow.engine import WorkflowEngine
from kingdom.workflow.home import WorkflowHome, open_home
from kingdom.workflow.usecases.lifecycle import answer_workflow, delete_workflow, resume_workflow, start_workflow
from kingdom.workflow.usecases.workflows import create_workflow
from tests.support.agent_clis import installed
from tests.support.agents import let_go
from tests.support.model_servers import MessagesServer, ResponsesServer, Say, Turn, Use
from tests.support.repositories import Remote, plain_git
from tests.support.workshop import NO_NETWORK, alive

LOOKED = "## Findings\n\nThe parser drops the last line.\n\n## Next steps\n\n- Mend it.\n"
SUMMARY = "## Summary\n\nThe last line is kept.\n"
PLAN = (
    ("plan", (("look", "Look into {{ issue.key }}.", ("Findings", "Next steps")), ("choose", "Choose a way.", ()))),
    ("build", (("write", 'Do this:\n{{ reports["plan/look"] }}', ()), ("check", "Check it.", ()))),
    ("ship", (("describe", "Describe it, after {{ answers['build/check'] }}", ("Summary",)),)),
)
ANSWERS = {
    "plan/look": "I looked.",
    "plan/choose": "I chose.",
    "build/write": "I wrote.",
    "build/check": "I checked.",
    "ship/describe": "I described.",
}
REPORTS = {"plan/look": LOOKED, "ship/describe": SUMMARY}
# Between the works: WorkStatusChanged tells what others tell as well, and comes when it comes.
TASK = ["TaskStarted", "QuerySent", "QueryResponded", "TaskCompleted"]
REPORTED = [*TASK[:3], "ReportGenerationStarted", "ReportGenerated", "TaskCompleted"]
BEGUN = ["WorkSpaceCreated", "WorkStarted"]
DONE = ["WorkCompleted", "AgentStopped", "CheckpointCreated"]


def begun(first: list[str]) -> list[str]:
    """The beginning of a work: its agent has started when the first query has."""
    return [*BEGUN, *first[:2], "AgentStarted", *first[2:]]


TOLD = [
    [*begun(REPORTED), *TASK, *DONE],
    [*begun(TASK), *TASK, *DONE],
    [*begun(REPORTED), *DONE],
]
RUNS = [3, 2, 2]
# Each query starts a program, and some take seconds to start: `make walks` does the whole plan with them.
LENGTHS = pytest.mark.parametrize("length", [1, pytest.param(3, marks=pytest.mark.walk)])


@dataclass
class Story:
    """What is left when a workflow has run."""

    workflow: Workflow
    works: list[Work]
    reports: list[Report]
    points: list[Checkpoint]
    tree: WorkTree
    told: list[str]


@asynccontextmanager
async def running(
    folder: Path, engines: Mapping[str, AgentEngine | InProcessEngine], sandbox: SandboxMode = "off"
) -> AsyncIterator[WorkflowContext]:
    (folder / "user").mkdir(exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder / "user")}
    home = WorkflowHome(folder / "home")
    async with open_home(home, engines, environ=environ, sandbox=Sandbox(sandbox)) as parts, WorkflowEngine(parts):
        yield parts


async def create(parts: WorkflowContext, folder: Path, *works: WorkDefinition) -> str:
    """A workflow of these works on a repository with one file."""
    remote = Remote(folder / "remote")
    remote.commit({"README": "hello\n"})
    async with parts.store.transaction() as tx:
        await tx.gits.save(Git("git-1", "app", url=remote.url))
        await tx.templates.save(WorkflowTemplate("tpl-1", "repair", works, git_refs=(GitRef("git-1"),)))
    return await create_workflow(parts, "tpl-1", issue_key="ABC-7")


async def wait_while_running(parts: WorkflowContext, workflow_id: str) -> Workflow:
    """The workflow when it does not run any more. A pause is told to the interface only, so it is looked for."""
    async with asyncio.timeout(120):
        while (workflow := await find(parts, workflow_id)).status is WorkflowStatus.RUNNING:
            await asyncio.sleep(0.02)
    return workflow


async def tell(
    parts: WorkflowContext, folder: Path, engine: str, options: Mapping[str, Any], length: int = len(PLAN)
) -> Story:
    """Run the plan, or so many works of it, with an engine from its start to its end."""
    works = [
        WorkDefinition(
            name,
            tuple(TaskDefinition(task, query, outline, retries=0) for task, query, outline in tasks),
            engine,
            engine_options=options,
        )
        for name, tasks in PLAN[:length]
    ]
    workflow_id = await create(parts, folder, *works)
    await start_workflow(parts, workflow_id)
    workflow = await wait_while_running(parts, workflow_id)
    seen = await parts.store.events(workflow_id, 0, 1000)
    assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
    assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
    async with parts.store.transaction() as tx:
        return Story(
            workflow,
            await tx.works.of_workflow(workflow_id),
            await tx.reports.of_workflow(workflow_id),
            await tx.checkpoints.of_workflow(workflow_id),
            (await tx.work_trees.of_workflow(workflow_id))[0],
            [event.type for event in seen if event.type != "WorkStatusChanged"],
        )


async def find(parts: WorkflowContext, workflow_id: str) -> Workflow:
    async with parts.store.transaction() as tx:
        return await tx.workflows.get(workflow_id)


def check(story: Story, folder: Path) -> None:
    """Right commits, right reports, right events; nothing left over."""
    length = len(story.works)
    told = [event for work in TOLD[:length] for event in work]
    assert story.told == ["WorkflowCreated", "WorkTreeCreated", "WorkflowStarted", *told, "WorkflowCompleted"]
    tree = Path(str(story.tree.path))
    log = plain_git(tree, "log", "--reverse", "--format=%H %(trailers:key=Kingdom-Work,valueonly)").split()
    assert log[1:] == [word for work, point in zip(story.works, story.points, strict=True)
                       for word in (point.hashes["git-1"], work.id)]  # fmt: skip
    for count, point in enumerate(story.points, 1):
        files = plain_git(tree, "ls-tree", "--name-only", point.hashes["git-1"]).split()
        assert files == sorted(["README", *["plan.txt", "build.txt", "ship.txt"][:count]])
    answers = {f"{work.name}/{task.name}": task.response for work in story.works for task in work.tasks}
    assert answers == {name: text for name, text in ANSWERS.items() if name in answers}
    assert len(answers) == sum(len(tasks) for _, tasks in PLAN[:length])
    names = {task.id: f"{work.name}/{task.name}" for work in story.works for task in work.tasks}
    texts = {names[report.task_id]: Path(str(report.file_path)).read_text() for report in story.reports}
    assert texts == {name: text for name, text in REPORTS.items() if name in answers}
    sessions = [work.session_id for work in story.works]
    assert None not in sessions
    assert len(set(sessions)) == length, "each Work has a conversation of its own"
    runs = sorted(path.name for path in (folder / "home" / "agents" / "runs").iterdir())
    assert len(runs) == sum(RUNS[:length])
    assert [pid for run in runs for pid in alive(run)] == []


def conversation(texts: list[str], *words: str) -> None:
    """The last request of a conversation has all of it, in its order."""
    last = texts[-1]
    places = [last.index(word) for word in words]
    assert places == sorted(places)


async def test_with_scripted_agents(tmp_path: Path) -> None:
    script: dict[str, Any] = {f"{name}/report": [{"say": text}] for name, text in REPORTS.items()}
    for name, answer in ANSWERS.items():
        script[name] = [{"say": answer}]
    for work, task in (("plan", "look"), ("build", "write"), ("ship", "describe")):
        script[f"{work}/{task}"].insert(0, {"write": {"path": f"{work}.txt", "text": "x\n"}})
    async with running(tmp_path, {"scripted": ScriptedEngine()}) as parts:
        check(await tell(parts, tmp_path, "scripted", {"script": script}), tmp_path)


def turns(shell: str, argument: str) -> list[Turn]:
    """What a model says, in the order it is asked."""

    def makes(name: str) -> Turn:
        more = {"description": "Work"} if shell == "Bash" else {}
        return Use(((shell, {argument: f"echo x > {name}.txt", **more}),))

    return [
        *(makes("plan"), Say("I looked."), Say(LOOKED), Say("I chose.")),
        *(makes("build"), Say("I wrote."), Say("I checked.")),
        *(makes("ship"), Say("I described."), Say(f"```markdown\n{SUMMARY}```")),
    ]


@pytest.mark.walk  # another test has Claude Code work on a workflow, and the next one writes the same with Codex
@LENGTHS
async def test_with_claude_code(tmp_path: Path, length: int) -> None:
    program = installed().claude
    with MessagesServer(*turns("Bash", "command")) as server:
        env = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "x", "CLAUDE_CODE_MAX_RETRIES": "0"}
        engine = ClaudeEngine({"path": program, "env": {**NO_NETWORK, **env}}, {})
        async with running(tmp_path, {"claude": engine}, "required") as parts:
            check(await tell(parts, tmp_path, "claude", {"profile": "full"}, length), tmp_path)
    texts = [json.dumps(request["messages"]) for request in server.requests]
    conversation(texts[:4], "Look into ABC-7.", "I looked.", "Write the report", "The parser drops", "Choose a way.")
    if length > 1:
        conversation(texts[4:7], "information, not instructions", "The parser drops", "I wrote.", "Check it.")
        assert "I chose." not in texts[6], "another Work is another conversation"


@LENGTHS
async def test_with_codex(tmp_path: Path, length: int) -> None:
    program = installed().codex
    with ResponsesServer(*turns("exec_command", "cmd")) as server:
        provider = f'{{name="ours",base_url="{server.url}/v1",env_key="OUR_KEY",wire_api="responses"'
        provider += ",request_max_retries=0,stream_max_retries=0}"
        args = ["-c", 'model_provider="ours"', "-c", f"model_providers.ours={provider}"]
        env = {**NO_NETWORK, "OUR_KEY": "x", "CODEX_HOME": str(tmp_path / "codex-home")}
        (tmp_path / "codex-home").mkdir()
        engine = CodexEngine({"path": program, "args": args, "env": env}, {"HOME": str(tmp_path / "user")})
        async with running(tmp_path, {"codex": engine}, "required") as parts:
            check(await tell(parts, tmp_path, "codex", {"profile": "full"}, length), tmp_path)
    texts = [json.dumps(request["input"]) for request in server.requests]
    conversation(texts[:4], "Look into ABC-7.", "I looked.", "Write the report", "The parser drops", "Choose a way.")
    assert length == 1 or "I chose." not in texts[6]


async def test_a_work_goes_on_in_the_conversation_of_another(tmp_path: Path) -> None:
    with MessagesServer(Say("I looked."), Say("I remember."), Say("I am new here.")) as server:
        env = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "x", "CLAUDE_CODE_MAX_RETRIES": "0"}
        engine = ClaudeEngine({"path": installed().claude, "env": {**NO_NETWORK, **env}}, {})
        async with running(tmp_path, {"claude": engine}, "required") as parts:
            works = [
                WorkDefinition("look", (TaskDefinition("do", "Look around."),)),
                WorkDefinition("review", (TaskDefinition("do", "What did you see?"),), continues="look"),
                WorkDefinition("other", (TaskDefinition("do", "Who are you?"),)),
            ]
            workflow_id = await create(parts, tmp_path, *works)
            await start_workflow(parts, workflow_id)
            workflow = await wait_while_running(parts, workflow_id)
            assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
    texts = [json.dumps(request["messages"]) for request in server.requests]
    conversation(texts[:2], "Look around.", "I looked.", "What did you see?")
    assert "Look around." not in texts[2]


# ── what happens on the way ───────────────────────────────────────────────────────────────────────────────────────


def plays(name: str, *steps: Any, after: tuple[str, ...] = (), merge: bool = False) -> WorkDefinition:
    """A Work of one task that a script does."""
    tasks = (TaskDefinition("do", "Do it.", retries=2),)
    return WorkDefinition(name, tasks, "scripted", engine_options={"script": steps}, after=after, merge=merge)


def writes(path: str, text: str) -> dict[str, Any]:
    return {"write": {"path": path, "text": text}}


async def test_works_beside_each_other_are_merged(tmp_path: Path) -> None:
    async with running(tmp_path, {"scripted": ScriptedEngine()}) as parts:
        workflow_id = await create(
            parts,
            tmp_path,
            plays("first", writes("first", "1")),
            plays("left", writes("left", "1"), after=("first",)),
            plays("right", writes("right", "1"), after=("first",)),
            plays("last", writes("last", "1"), after=("left", "right"), merge=True),
        )
        await start_workflow(parts, workflow_id)
        workflow = await wait_while_running(parts, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
        async with parts.store.transaction() as tx:
            trees = await tx.work_trees.of_workflow(workflow_id)
            points = await tx.checkpoints.of_workflow(workflow_id)
    (main,) = [Path(str(tree.path)) for tree in trees if tree.work_id is None]
    assert len(trees) == 3
    assert sorted(path.name for path in main.iterdir()) == [".git", "README", "first", "last", "left", "right"]
    history = plain_git(main, "log", "--format=%H").split()
    assert {point.hashes["git-1"] for point in points} <= set(history)


def runs(name: str, script: str, **more: Any) -> WorkDefinition:
    """A Work whose agent is a line of shell."""
    options = {"argv": ["sh", "-c", script]}
    task = TaskDefinition("do", "Do it.", retries=0)
    return WorkDefinition(name, (task,), "command", engine_options=options, **more)


def command_engines() -> dict[str, AgentEngine | InProcessEngine]:
    return {"command": CommandEngine(environ={"PATH": os.environ["PATH"]})}


async def test_works_beside_each_other_are_done_again_from_where_they_began(tmp_path: Path) -> None:
    async with running(tmp_path, command_engines()) as parts:
        workflow_id = await create(
            parts,
            tmp_path,
            runs("prep", "echo p >> p.txt"),
            runs("left", "echo l >> l.txt", after=("prep",)),
            runs("right", "echo r >> r.txt", after=("prep",)),
            runs("join", "echo $(cat l.txt r.txt)", after=("left", "right"), merge=True, pause_after=True),
            runs("end", "true"),
        )
        await start_workflow(parts, workflow_id)
        assert (await wait_while_running(parts, workflow_id)).reason == "review after join"
        async with parts.store.transaction() as tx:
            (prep,) = [point for point in await tx.checkpoints.of_workflow(workflow_id) if point.work_sequence == 0]
        await resume_workflow(parts, workflow_id, checkpoint_id=prep.id)
        assert (await wait_while_running(parts, workflow_id)).reason == "review after join"
        async with parts.store.transaction() as tx:
            works = await tx.works.of_workflow(workflow_id)
    assert [(work.name, work.attempt) for work in works[1:4]] == [("left", 2), ("right", 2), ("join", 2)]
    assert works[3].tasks[0].response == "l r"


async def test_a_work_whose_agent_committed_and_failed_is_done_again(tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    commits = "git -c user.name=a -c user.email=a@example.org commit --quiet --message mine"
    script = f"echo l >> l.txt; git add l.txt; {commits}; test -e {mended}"
    async with running(tmp_path, command_engines()) as parts:
        workflow_id = await create(
            parts,
            tmp_path,
            runs("left", script, after=("start",)),
            runs("right", "echo r >> r.txt", after=("start",)),
            runs("join", "echo $(cat l.txt r.txt)", after=("left", "right"), merge=True),
        )
        await start_workflow(parts, workflow_id)
        for _ in range(2):
            workflow = await wait_while_running(parts, workflow_id)
            assert workflow.status is WorkflowStatus.PAUSED
            assert "task do of work left failed" in str(workflow.reason)
            await resume_workflow(parts, workflow_id)
        await wait_while_running(parts, workflow_id)
        mended.touch()
        await resume_workflow(parts, workflow_id)
        workflow = await wait_while_running(parts, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
        async with parts.store.transaction() as tx:
            works = await tx.works.of_workflow(workflow_id)
    assert works[2].tasks[0].response == "l r"


async def test_works_may_run_beside_each_other_from_the_very_start(tmp_path: Path) -> None:
    async with running(tmp_path, {"scripted": ScriptedEngine()}) as parts:
        workflow_id = await create(
            parts,
            tmp_path,
            plays("left", writes("left", "1"), after=("start",)),
            plays("right", writes("right", "1"), after=("start",)),
            plays("last", writes("last", "1"), after=("left", "right"), merge=True),
        )
        await start_workflow(parts, workflow_id)
        workflow = await wait_while_running(parts, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
        async with parts.store.transaction() as tx:
            trees = await tx.work_trees.of_workflow(workflow_id)
        told = [event.type for event in await parts.store.events(workflow_id, 0, 1000)]
    (main,) = [Path(str(tree.path)) for tree in trees if tree.work_id is None]
    assert sorted(path.name for path in main.iterdir()) == [".git", "README", "last", "left", "right"]
    assert told.index("TaskStarted") > [place for place, kind in enumerate(told) if kind == "WorkStarted"][1]


async def test_works_that_do_not_go_together_stop_the_workflow_until_somebody_mends_it(tmp_path: Path) -> None:
    async with running(tmp_path, {"scripted": ScriptedEngine()}) as parts:
        workflow_id = await create(
            parts,
            tmp_path,
            plays("first"),
            plays("left", writes("README", "left"), after=("first",)),
            plays("right", writes("README", "right"), after=("first",)),
            plays("last", after=("left", "right"), merge=True),
        )
        await start_workflow(parts, workflow_id)
        workflow = await wait_while_running(parts, workflow_id)
        assert workflow.status is WorkflowStatus.FAILED
        assert "both sides changed README" in str(workflow.reason)
        async with parts.store.transaction() as tx:
            works = {work.id: work.name for work in await tx.works.of_workflow(workflow_id)}
            trees = await tx.work_trees.of_workflow(workflow_id)
        asked = {path.name.partition(".")[0] for path in (tmp_path / "home" / "agents" / "runs").iterdir()}
        assert {works[work_id] for work_id in asked} == {"first", "left", "right"}  # the last was asked nothing
        (right,) = [Path(str(tree.path)) for tree in trees if works.get(str(tree.work_id)) == "right"]
        (right / "README").write_text("left")
        plain_git(right, "commit", "--quiet", "--all", "--message", "As on the left")
        await resume_workflow(parts, workflow_id, retry=True)
        workflow = await wait_while_running(parts, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
    (main,) = [Path(str(tree.path)) for tree in trees if tree.work_id is None]
    assert (main / "README").read_text() == "left"


async def test_a_work_that_merges_goes_on_where_it_stopped(tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    program = f"import os, sys; open('half', 'w').close(); sys.exit(not os.path.exists({str(mended)!r}))"
    options = {"argv": [sys.executable, "-I", "-S", "-c", program]}
    tasks = (TaskDefinition("do", "Do it.", retries=0),)
    command = CommandEngine(environ={"PATH": os.environ["PATH"]})
    engines: dict[str, AgentEngine | InProcessEngine] = {"scripted": ScriptedEngine(), "command": command}
    async with running(tmp_path, engines) as parts:
        workflow_id = await create(
            parts,
            tmp_path,
            plays("left", writes("left", "1"), after=("start",)),
            plays("right", writes("right", "1"), after=("start",)),
            WorkDefinition("last", tasks, "command", engine_options=options, after=("left", "right"), merge=True),
        )
        await start_workflow(parts, workflow_id)
        assert (await wait_while_running(parts, workflow_id)).status is WorkflowStatus.PAUSED
        mended.touch()
        await resume_workflow(parts, workflow_id, retry=True)
        workflow = await wait_while_running(parts, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
        async with parts.store.transaction() as tx:
            trees = await tx.work_trees.of_workflow(workflow_id)
    (main,) = [Path(str(tree.path)) for tree in trees if tree.work_id is None]
    assert sorted(path.name for path in main.iterdir()) == [".git", "README", "half", "left", "right"]


class Asker:
    """An agent that asks once, and writes down what it is told."""

    name = "asker"

    def __init__(self) -> None:
        self.orders: list[Order] = []

    async def play(self, order: Order, on_event: OnEvent) -> Finished:
        self.orders.append(order)
        on_event(Began("conversation-1", "model"))
        if len(self.orders) > 1:
            return Finished(ok=True, text="Blue it is.")
        (order.cwd / "half").write_text("begun\n")
        result = {"status": "needs_human", "question": {"text": "Red or blue?"}}
        order.result_path.write_text(json.dumps(result))
        return Finished(ok=True, text="I have to ask.")

    async def examine(self) -> Examined:
        return Examined(ok=True)


async def test_an_answer_goes_to_the_same_conversation_with_the_files_as_they_are(tmp_path: Path) -> None:
    asker = Asker()
    async with running(tmp_path, {"asker": asker}) as parts:
        task = TaskDefinition("paint", "Paint it.", retries=3)
        workflow_id = await create(parts, tmp_path, WorkDefinition("first", (task,), "asker"))
        await start_workflow(parts, workflow_id)
        workflow = await wait_while_running(parts, workflow_id)
        assert (workflow.status, workflow.reason) == (WorkflowStatus.PAUSED, "work first asks: Red or blue?")
        await answer_workflow(parts, workflow_id, "Blue, please.")
        workflow = await wait_while_running(parts, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
        async with parts.store.transaction() as tx:
            (tree,) = await tx.work_trees.of_workflow(workflow_id)
    first, second = asker.orders
    assert "Paint it." in first.prompt
    assert second.session_id == "conversation-1"
    assert "Blue, please." in second.prompt
    assert "Paint it." not in second.prompt, "the conversation knows it"
    assert (Path(str(tree.path)) / "half").exists()


async def test_an_agent_that_hangs_fails_the_workflow_which_can_be_resumed(tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    options = {
        "argv": ["sh", "-c", f"test -e {mended} || sleep 600"],
        "timers": {"first_output": 0.5, "silence": 0.5, "stop": 0.5},
    }
    task = TaskDefinition("do", "Do it.", retries=3)
    async with running(tmp_path, command_engines()) as parts:
        workflow_id = await create(parts, tmp_path, WorkDefinition("first", (task,), "command", engine_options=options))
        await start_workflow(parts, workflow_id)
        workflow = await wait_while_running(parts, workflow_id)
        assert workflow.status is WorkflowStatus.FAILED
        assert "the agent of work first broke: timeout" in str(workflow.reason)
        told = [event.type for event in await parts.store.events(workflow_id, 0, 100)]
        assert (told.count("QuerySent"), told.count("AgentError")) == (1, 1)
        mended.touch()
        await resume_workflow(parts, workflow_id)
        assert (await wait_while_running(parts, workflow_id)).status is WorkflowStatus.COMPLETED


async def test_a_question_pauses_the_workflow_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, {"scripted": ScriptedEngine()}) as parts:
        workflow_id = await create(parts, tmp_path, plays("first", {"ask": "Red or blue?"}))
        await start_workflow(parts, workflow_id)
        workflow = await wait_while_running(parts, workflow_id)
        seen = [event.type for event in await parts.store.events(workflow_id, 0, 100)]
    assert workflow.status is WorkflowStatus.PAUSED
    assert workflow.reason == "work first asks: Red or blue?"
    assert seen.count("QuerySent") == 1


async def test_a_deleted_workflow_leaves_nothing_of_its_runs_but_their_cost(tmp_path: Path) -> None:
    async with running(tmp_path, {"scripted": ScriptedEngine()}) as parts:
        first = await create(parts, tmp_path, plays("first", {"usage": {"input": 5, "output": 1}}, {"say": "Done."}))
        second = await create_workflow(parts, "tpl-1")
        for workflow_id in (first, second):
            await start_workflow(parts, workflow_id)
            await wait_while_running(parts, workflow_id)
        agents = tmp_path / "home" / "agents"
        before = {path for name in ("runs", "sessions") for path in (agents / name).iterdir()}
        async with parts.store.transaction() as tx:
            (gone,) = await tx.works.of_workflow(first)
        await delete_workflow(parts, first)
        left = {path for name in ("runs", "sessions") for path in (agents / name).iterdir()}
    assert left == {path for path in before if not path.name.startswith(gone.id)}
    assert len(left) < len(before)
    assert any(gone.id in path.read_text() for path in (agents / "ledger").iterdir())


async def test_an_engine_goes_on_where_the_former_one_stopped_watching(tmp_path: Path) -> None:
    here, gate = tmp_path / "here", tmp_path / "gate"
    os.mkfifo(here)
    os.mkfifo(gate)
    argv = ["sh", "-c", f"echo once >> asked; echo > {here}; cat {gate} > /dev/null; echo Done."]
    work = WorkDefinition("first", (TaskDefinition("do", "Do it."),), "command", engine_options={"argv": argv})
    async with running(tmp_path, {"command": CommandEngine()}) as parts:
        workflow_id = await create(parts, tmp_path, work)
        await start_workflow(parts, workflow_id)
        await asyncio.to_thread(here.read_text)
    async with running(tmp_path, {"command": CommandEngine()}) as parts:
        await asyncio.to_thread(let_go, gate)
        workflow = await wait_while_running(parts, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
        async with parts.store.transaction() as tx:
            (part,) = await tx.works.of_workflow(workflow_id)
            (tree,) = await tx.work_trees.of_workflow(workflow_id)
    assert part.tasks[0].response == "Done."
    assert (Path(str(tree.path)) / "asked").read_text() == "once\n"
