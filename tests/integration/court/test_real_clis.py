"""The real Claude Code and the real Codex as soldiers of a court: from an event's file to its end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.commands import submit_answer
from kingdom.court.init_home import SHIPPED_GENERALS_DIR
from tests.support.cli_courts import EVENT, GENERAL, Cli, CliCourt, talking
from tests.support.courts import Court, until
from tests.support.model_servers import Refuse, Say, Stall, Turn
from tests.support.repositories import plain_git
from tests.support.workshop import ECHO, alive

MakeCourt = Callable[..., CliCourt]

# Claude Code takes twice the processor time of Codex. It does the same without a court in
# tests/integration/agents/test_real_claude.py, and in a court in the other tests here.
CODEX_FIRST = pytest.mark.parametrize("cli", [pytest.param("claude", marks=pytest.mark.walk), "codex"], indirect=True)


@pytest.fixture(params=["claude", "codex"])
def cli(request: pytest.FixtureRequest) -> Iterator[Cli]:
    with talking(request.param) as found:
        yield found


@pytest.fixture
def make_court(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> MakeCourt:
    def make(**manifest: Any) -> CliCourt:
        return CliCourt(tmp_path, cli, monkeypatch, **manifest)

    return make


def work(court: CliCourt) -> list[Any]:
    """The turns of a soldier that adds a file and commits it."""
    cli = court.cli

    def edit() -> Turn:
        (place,) = (court.home.work(GENERAL) / "worktrees" / GENERAL).iterdir()
        return cli.writes(place / "notes.txt", "hello\n")

    return [edit, cli.runs("git add notes.txt"), cli.runs('git commit -q -m "Add notes"')]


def used(result: dict[str, Any], turns: int) -> bool:
    """Whether a result counts the tokens of so many answers of the model, which has 100 in and 10 out each."""
    tokens: dict[str, int] = result["tokens"]
    return tokens["output"] == 10 * turns and 100 * turns <= sum(tokens.values()) - 10 * turns <= 110 * turns


async def test_an_event_becomes_a_commit_that_was_looked_at_and_paid(make_court: MakeCourt) -> None:
    court = make_court(evidence=["commit", {"file": "notes.txt"}])
    court.cli.server.script += [*work(court), court.leaves("success"), Say("All done.")]
    async with court.running():
        court.drop(title="Add some notes")
        (event,) = await court.until(lambda: court.documents("events/completed"), "the event completed")
        (task,) = await court.until(lambda: court.documents("tasks/completed"), "the task completed")
    (result,) = court.results()
    assert (result["status"], result["error"]) == ("success", None)
    assert (event["status"], task["status"]) == ("completed", "completed")
    place = court.home.work(GENERAL) / "worktrees" / GENERAL / task["id"]
    branch = f"kingdom/{GENERAL}/{task['id']}"
    assert plain_git(place, "log", "--format=%s", branch).splitlines() == ["Add notes", "A commit"]
    assert plain_git(place, "show", "--name-only", "--format=", branch) == "notes.txt"
    tip = plain_git(place, "rev-parse", branch)
    assert result["evidence"] == [
        {"name": "commit", "ok": True, "detail": tip},
        {"name": "file notes.txt", "ok": True, "detail": "6 bytes"},
    ]
    assert used(result, 5), result["tokens"]
    assert "Add some notes" in court.cli.told()
    (line,) = court.ledger()
    assert (line["task_id"], line["general"], line["status"]) == (task["id"], GENERAL, "success")
    assert (line["cost_usd"], line["tokens"]["output"]) == (result["cost_usd"], 50)
    assert line["cost_usd"] > 0
    assert alive(result["soldier_id"]) == []


@CODEX_FIRST
async def test_it_asks_a_person_and_goes_on_with_the_answer(make_court: MakeCourt) -> None:
    court = make_court()
    ask = court.leaves("needs_human", question={"text": "Red or blue?", "choices": ["red", "blue"]})
    court.cli.server.script += [*work(court), ask, Say("Well?")]
    async with court.running() as services:
        court.drop(title="Paint the shed")
        (question,) = await court.until(lambda: asked(court), "a question to people")
        (first,) = await court.until(lambda: court.documents("tasks/completed"), "the task settled")
        assert first["status"] == "needs_human"
        assert question["context"]["task_id"] == first["id"]
        assert question["context"]["choices"] == ["red", "blue"]
        assert [event["id"] for event in court.documents("events/dispatched")] == [EVENT]

        court.cli.server.script += [
            court.cli.runs("git log -1 --format=last:%s"),
            court.leaves("success"),
            Say("Done."),
        ]
        await submit_answer(services, first["id"], "blue", "ann")
        await court.until(lambda: len(court.documents("events/completed")) == 2, "both events completed")
    asking, resumed = court.results()
    assert (resumed["status"], resumed["error"]) == ("success", None)
    assert resumed["session_id"] == asking["session_id"]
    told = court.cli.told()
    assert told.index("Paint the shed") < told.index("Red or blue?") < told.index("blue", told.index("Go on."))
    assert "last:Add notes" in told, "it works where it stopped"
    assert used(asking, 5)
    assert used(resumed, 3), "what was said before is not paid twice"


def asked(court: CliCourt) -> list[dict[str, Any]]:
    return [one for one in court.documents("messages/pending") if one["type"] == "human_input_request"]


@pytest.mark.walk  # it is silent for long, so that a program on a busy machine is not taken for a silent one
async def test_who_takes_too_long_is_gone_with_everything_it_started(make_court: MakeCourt) -> None:
    court = make_court(retries=1, profile="full", timers={"first_output": 60, "silence": 10})
    children = "setsid sleep 300 & nohup sleep 300 >/dev/null 2>&1 & echo started"
    court.cli.server.script += [court.cli.runs(children), Stall(), court.cli.runs(children), Stall()]
    async with court.running():
        court.drop(title="Take your time")
        (event,) = await court.until(lambda: court.documents("events/completed"), "the event completed")
    (result,) = court.results()
    assert (result["status"], result["retry_count"]) == ("timeout", 1)
    assert event["status"] == "failed"
    first, second = court.soldiers()
    assert (alive(first), alive(second)) == ([], [])
    assert result["soldier_id"] == second
    assert [entry["data"]["soldier_id"] for entry in court.told("soldier.timeout")] == [first, second]
    assert "started" in court.cli.told()
    assert "why the last try at this task failed" in court.cli.told()
    assert [line["status"] for line in court.ledger()] == ["timeout", "timeout"]


@CODEX_FIRST
async def test_it_uses_the_mcp_servers_of_its_general(make_court: MakeCourt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHO_TOKEN", "t0ken")
    court = make_court(mcp_servers={"echo": {"command": sys.executable, "args": [str(ECHO)], "env": ["ECHO_TOKEN"]}})
    court.cli.server.script += [court.cli.calls("echo", "echo", text="hello"), court.leaves("success"), Say("Heard.")]
    async with court.running():
        court.drop(title="Listen")
        await court.until(lambda: court.documents("events/completed"), "the event completed")
    (result,) = court.results()
    assert (result["status"], result["error"]) == ("success", None)
    assert "echo: hello, token: t0ken" in court.cli.told()
    assert list((court.home.role(GENERAL) / "mcp").iterdir()) == []
    assert alive(result["soldier_id"]) == []


@pytest.mark.parametrize("cli", ["claude"], indirect=True)  # the sandbox in which codex only reads is not everywhere
async def test_a_reviewer_that_may_only_read_sees_the_whole_change(make_court: MakeCourt) -> None:
    court = make_court(profile="read")
    shutil.copy(SHIPPED_GENERALS_DIR / "gen-pr" / "prompt.md", court.home.general(GENERAL) / "prompt.md")
    remote = court.remote
    base = remote.git("rev-parse", "main")
    remote.git("checkout", "--quiet", "-b", "theirs")
    head = remote.commit({"door.txt": "ajar\n"}, "Open the door")
    remote.git("update-ref", "refs/pull/7/head", head)
    remote.git("checkout", "--quiet", "main")
    remote.git("branch", "--quiet", "-D", "theirs")
    looks = [f"git log --format=said:%s {base}..{head}", f"git diff {base}...{head}", f"git show {head}:door.txt"]
    court.cli.server.script += [*map(court.cli.runs, looks), court.leaves("success"), Say("Reviewed.")]
    async with court.running():
        court.drop("github.pr.opened", number=7, title="A door", base="main")
        await court.until(lambda: court.documents("events/completed"), "the event completed")
    (result,) = court.results()
    assert (result["status"], result["error"]) == ("success", None)
    told = court.cli.told()
    assert f"`git diff {base}...{head}`" in told, "it was told how to look"
    results = told[told.index("said:Open the door") :]
    assert "+ajar" in results
    assert '"ajar"' in results


@CODEX_FIRST
async def test_over_the_limit_of_the_account_a_task_waits(make_court: MakeCourt) -> None:
    court = make_court()
    resets_at = int(time.time()) + 3600
    court.cli.server.script.append(court.cli.refuses(resets_at))
    async with court.running() as services:
        court.drop(title="Much to do")
        await court.until(lambda: court.told("soldier.ended"), "the end of the soldier")
        (task,) = await court.until(lambda: court.documents("tasks/pending"), "the task back among those that wait")
        record = await services.bus.find(task["id"])
    assert record is not None
    assert (record.status, record.error_code) == ("PENDING", "RATE_LIMITED")
    assert record.next_retry_at is not None
    assert resets_at - 60 <= record.next_retry_at.timestamp() <= resets_at + 120
    assert court.results() == []
    note = json.loads((court.home.role(GENERAL) / "campaigns" / f"{task['id']}.json").read_text())
    assert (note["retries"], note["errors"]) == (0, []), "no try is spent"
    assert len(court.soldiers()) == 1
    assert [event["id"] for event in court.documents("events/dispatched")] == [EVENT]


@CODEX_FIRST
@pytest.mark.parametrize(("status", "words"), [(529, "overloaded or away"), (401, "refuses its key or login")])
async def test_an_overloaded_model_and_a_wrong_key_hold_the_task(
    make_court: MakeCourt, status: int, words: str
) -> None:
    court = make_court()
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    court.cli.server.script.append(Refuse(status, error if status == 529 else {"error": {"message": "bad key"}}))
    async with court.running() as services:
        court.drop(title="Much to do")
        await court.until(lambda: court.told("soldier.ended"), "the end of the soldier")
        (task,) = await court.until(lambda: court.documents("tasks/pending"), "the task back among those that wait")
        record = await services.bus.find(task["id"])
    assert record is not None
    assert (record.status, record.error_code) == ("PENDING", "RATE_LIMITED")
    assert words in str(record.error_message)
    assert court.results() == []


@CODEX_FIRST
@pytest.mark.parametrize("sandbox", ["required", pytest.param("off", marks=pytest.mark.walk)])
async def test_a_new_general_goes_on_with_the_soldier_of_one_that_was_killed(
    cli: Cli, make_court: MakeCourt, sandbox: str
) -> None:
    """A confined request goes through its general and is cut off with it: the program makes it again."""
    cli.tries_again = True
    court = make_court(evidence=["commit"])
    court.confine(sandbox)
    go = threading.Event()
    leaves = court.leaves("success")

    def wait() -> Turn:
        assert go.wait(60)
        return leaves() if sandbox == "off" else Stall()

    again = [leaves] if sandbox == "required" else []
    court.cli.server.script += [*work(court), wait, *again, Say("All done.")]
    processes = Court(court.home.root)
    with processes.up("--roles", f"king,{GENERAL}"):
        processes.wait_for_roles("king", GENERAL)
        court.drop(title="Add some notes")
        until(lambda: len(court.cli.server.requests) == 4, "the soldier in the middle of its work")
        before = processes.pids()[GENERAL]
        os.kill(before, signal.SIGKILL)
        until(lambda: processes.pids().get(GENERAL, before) != before, "another general")
        processes.wait_for_roles(GENERAL)
        go.set()
        processes.wait_completed(EVENT)
    (result,) = court.results()
    assert (result["status"], result["error"], result["retry_count"]) == ("success", None, 0)
    assert court.soldiers() == [result["soldier_id"]]
    assert len(court.cli.server.requests) == 5 + len(again)
    assert used(result, 5), "also what was said while nobody listened"
    assert len(court.ledger()) == len(court.told("task.completed")) == 1
    assert json.loads(court.home.raw_result(result["task_id"]).read_text())["status"] == "success"
    assert alive(result["soldier_id"]) == []
