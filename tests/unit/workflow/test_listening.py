"""What a workflow's agents say and cost, read from the files of their runs by whoever looks on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from kingdom.agents.engines import default_engines
from kingdom.agents.folder import RunFolder
from kingdom.agents.port import AgentEvent, Order, Text, Tokens, ToolUse, Usage
from kingdom.workflow.agent_records import TranscriptLine, TranscriptReader, WorkflowLedger


class Runs:
    """The files that runs leave."""

    def __init__(self, folder: Path) -> None:
        self.runs, self.sessions = folder / "runs", folder / "sessions"
        self.sessions.mkdir()
        self.listening = TranscriptReader(self.runs, self.sessions, default_engines())

    def begin(self, run_id: str, work: str = "plan", task: str = "look") -> None:
        folder = RunFolder(self.runs, run_id)
        folder.create()
        labels = {"workflow": "wf-1", "work": work, "task": task}
        folder.write_order(Order(run_id, "task-1", "scripted", "", self.runs, self.runs / "result", labels=labels))
        (self.sessions / f"{run_id}.json").touch()

    def say(self, run_id: str, event: AgentEvent) -> None:
        with (self.sessions / f"{run_id}.json").open("a") as file:
            file.write(json.dumps({"type": type(event).__name__.lower(), **asdict(event)}) + "\n")


def test_runs_of_the_works_are_heard_and_no_others(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    assert runs.listening.read_on(["work-1"]) == []
    runs.begin("work-1.task-1.1")
    runs.begin("work-10.task-1.1")
    for run_id in ("work-1.task-1.1", "work-10.task-1.1"):
        runs.say(run_id, Text(f"I am {run_id}"))
    assert runs.listening.read_on(["work-1"]) == [
        TranscriptLine("work-1.task-1.1", "plan", "look", "I am work-1.task-1.1")
    ]
    runs.say("work-1.task-1.1", ToolUse("Bash", "ls"))
    runs.begin("work-1.task-1.1-report", task="tell")
    runs.say("work-1.task-1.1-report", Text("# Report"))
    assert [(said.task, said.text) for said in runs.listening.read_on(["work-1"])] == [
        ("look", "→ Bash ls"),
        ("tell", "# Report"),
    ]


def test_what_a_run_has_used_so_far_is_known(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.begin("work-1.task-1.1")
    runs.say("work-1.task-1.1", Usage(Tokens(1), 0.1))
    runs.say("work-1.task-1.1", Usage(Tokens(5), 0.4))
    assert runs.listening.read_on(["work-1"]) == []
    assert runs.listening.usage == {"work-1.task-1.1": Usage(Tokens(5), 0.4)}


def test_nothing_is_said_where_nothing_ran(tmp_path: Path) -> None:
    listening = TranscriptReader(tmp_path / "runs", tmp_path / "sessions", default_engines())
    assert listening.read_on(["work-1"]) == []


def line(run_id: str, workflow: str, work: str, cost: float | None, tokens: int) -> str:
    document = {
        "workflow": workflow, "work": work, "run_id": run_id, "cost_usd": cost, "tokens": {"total": tokens},
    }  # fmt: skip
    return json.dumps(document) + "\n"


def test_the_cost_of_a_workflow_is_that_of_its_runs_each_once(tmp_path: Path) -> None:
    ledger = tmp_path / "2026-01.jsonl"
    ledger.write_text(
        line("r-1", "wf-1", "plan", 0.5, 10)
        + line("r-2", "wf-2", "plan", 9.0, 99)
        + line("r-1", "wf-1", "plan", 0.5, 10)
        + '{"workflow": "wf-1", "torn\n'
        + line("r-3", "wf-1", "do", None, 5)
    )
    spending = WorkflowLedger(tmp_path, "wf-1")
    spent = spending.read_on()
    assert (spent.cost_usd, spent.tokens, spent.runs, spent.by_work) == (0.5, 15, 2, {"plan": 0.5, "do": 0.0})
    late = line("r-4", "wf-1", "do", 0.25, 1)
    with ledger.open("a") as file:
        file.write(late[:20])
    assert spending.read_on().runs == 2
    with ledger.open("a") as file:
        file.write(late[20:])
    (tmp_path / "2026-02.jsonl").write_text(line("r-5", "wf-1", "do", 0.25, 1))
    assert spending.read_on().cost_usd == 1.0
    assert spending.run_ids == {"r-1", "r-3", "r-4", "r-5"}
