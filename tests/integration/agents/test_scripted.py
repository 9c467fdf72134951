"""Runs of the scripted engine: every step does what it says, and every end is told."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.port import AgentEvent, Began, Caps, Outcome, Text, Timers, ToolUse, Usage
from tests.support.agents import RUN, Barracks


@pytest.fixture
def barracks(tmp_path: Path) -> Barracks:
    return Barracks(tmp_path)


async def play(barracks: Barracks, script: Any, **changes: Any) -> tuple[Outcome, list[AgentEvent]]:
    events: list[AgentEvent] = []
    order = barracks.order(engine="scripted", options={"script": script}, **changes)
    run = await barracks.runner().start(order, events.append)
    assert run.pid is None
    return await run.wait(), events


async def test_a_whole_script(barracks: Barracks) -> None:
    subprocess.run(["git", "init", "-q", str(barracks.cwd)], check=True)
    outcome, events = await play(
        barracks,
        [
            {"say": "looking"},
            {"tool": {"name": "Read", "detail": "a.py"}},
            {"write": {"path": "src/a.py", "text": "print('hi')\n"}},
            {"commit": {"message": "Say hi"}},
            {"wait": {"seconds": 0}},
            {"usage": {"input": 10, "output": 5}},
            {"usage": {"input": 10, "cost_usd": 0.25}},
            {"result": {"summary": "done", "links": ["https://example.org"]}},
        ],
    )
    assert outcome.status == "success"
    assert outcome.result is not None
    assert outcome.result["summary"] == "done"
    assert (outcome.tokens.total, outcome.cost_usd, outcome.cost_source, outcome.turns) == (25, 0.25, "result", 2)
    assert outcome.session_id
    assert outcome.model == "scripted"
    assert [type(event) for event in events[:3]] == [Began, Text, ToolUse]
    assert [event.tokens.total for event in events if isinstance(event, Usage)] == [15, 25]
    log = subprocess.run(["git", "-C", str(barracks.cwd), "log", "--format=%s"], capture_output=True, text=True)
    assert log.stdout == "Say hi\n"
    assert (barracks.cwd / "src/a.py").read_text() == "print('hi')\n"
    lines = (barracks.sessions / f"{RUN}.json").read_text().splitlines()
    assert [json.loads(line)["type"] for line in lines][:3] == ["began", "text", "tooluse"]
    assert [line["run_id"] for line in barracks.ledger_lines()] == [RUN]


async def test_a_question_then_a_resume_that_knows_the_answer(barracks: Barracks) -> None:
    script = {
        "steps": [{"ask": {"question": "Which base?", "choices": ["main", "next"]}}],
        "on_resume": [{"say": "You said {answer}, {user}; {unknown} stays"}, {"result": {"summary": "on {answer}"}}],
    }
    asked, _ = await play(barracks, script)
    assert asked.status == "needs_human"
    assert asked.result is not None
    assert asked.result["question"] == {"text": "Which base?", "choices": ["main", "next"], "default": None}
    (barracks.cwd / ".kingdom-task.json").write_text('{"id": "t", "payload": {"answer": "main", "user": "kim"}}')
    done, events = await play(barracks, script, run_id="soldier-2", session_id=asked.session_id)
    assert (done.status, done.session_id) == ("success", asked.session_id)
    assert Text("You said main, kim; {unknown} stays") in events
    assert done.result is not None
    assert done.result["summary"] == "on main"


@pytest.mark.parametrize(
    ("step", "status", "error"),
    [
        ({"fail": "no tests"}, "failed", "no tests"),
        ({"crash": True}, "killed", "the agent crashed: the script says so"),
        ({"dance": 1}, "failed", "step 1: 'dance' is not a step"),
        ({"write": {"path": "x"}}, "failed", "step 1, write"),
        ({"write": {"path": "../x", "text": "y"}}, "failed", "not below the working folder"),
        ({"write": {"path": "/tmp/x", "text": "y"}}, "failed", "not below the working folder"),
        ({"result": {"status": "great"}}, "failed", "step 1, result"),
        ("nothing", "failed", "'nothing' is not a step"),
        ({"say": 1, "wait": 2}, "failed", "a step is a mapping with one key"),
        ({"commit": "x"}, "failed", "git add in"),
    ],
)
async def test_every_bad_end_has_its_reason(barracks: Barracks, step: Any, status: str, error: str) -> None:
    outcome, _ = await play(barracks, [step])
    assert outcome.status == status
    assert error in str(outcome.error)


async def test_a_link_does_not_lead_a_script_out_of_its_folder(barracks: Barracks, tmp_path: Path) -> None:
    (barracks.cwd / "out").symlink_to(tmp_path)
    outcome, _ = await play(barracks, [{"write": {"path": "out/x", "text": "y"}}])
    assert outcome.status == "failed"
    assert not (tmp_path / "x").exists()


async def test_a_rate_limit_says_when_it_is_over(barracks: Barracks) -> None:
    outcome, _ = await play(barracks, [{"rate_limit": {"seconds": 60}}])
    assert outcome.status == "rate_limited"
    assert outcome.resets_at == pytest.approx(outcome.ended_at + 60, abs=30)


async def test_a_script_is_ended_by_timers_caps_and_whoever_stops_it(barracks: Barracks) -> None:
    timers = Timers(first_output=30, silence=0.05, total=60)
    silent, _ = await play(barracks, [{"wait": 600}], timers=timers)
    assert (silent.status, silent.timer) == ("timeout", "silence")
    dear, _ = await play(barracks, [{"usage": {"input": 100}}, {"wait": 600}], run_id="soldier-2", caps=Caps(tokens=99))
    assert (dear.status, dear.error) == ("failed", "it is over its cap: 100 tokens used, 99 allowed")
    order = barracks.order(run_id="soldier-3", engine="scripted", options={"script": [{"wait": 600}]})
    run = await barracks.runner().start(order)
    await run.stop("cancelled by kim")
    stopped = await run.wait()
    assert (stopped.status, stopped.error) == ("killed", "cancelled by kim")
    assert len(barracks.ledger_lines()) == 3


async def test_a_part_played_by_a_process_that_is_gone_was_killed_with_it(barracks: Barracks) -> None:
    runner = barracks.runner()
    order = barracks.order(engine="scripted", options={"script": [{"wait": 600}]})
    await runner.start(order)
    await runner.close()
    run = await barracks.runner().adopt(RUN)
    assert run is not None
    assert (await run.wait()).status == "killed"
    again = await barracks.runner().adopt(RUN)
    assert again is not None
    assert (await again.wait()).status == "killed"
    assert len(barracks.ledger_lines()) == 1


async def test_a_result_of_an_earlier_attempt_does_not_count(barracks: Barracks) -> None:
    await play(barracks, [{"result": {"summary": "old"}}])
    outcome, _ = await play(barracks, [{"say": "new"}], run_id="soldier-2")
    assert outcome.result is not None
    assert outcome.result["summary"] == "new"
