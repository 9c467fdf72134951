"""Runs outlive whoever watches them: the daemon dies, the next one takes over, nothing is counted twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.port import AgentEvent, Began, Text, Timers
from kingdom.agents.processes import find_process
from tests.support.agents import ESCAPES, RUN, Barracks, let_go, run_to_end


@pytest.fixture
def barracks(tmp_path: Path) -> Barracks:
    return Barracks(tmp_path)


@contextlib.contextmanager
def killed_daemon(barracks: Barracks, source: str, until: str = "Began") -> Any:
    """Have another process start a run, and kill that process when it has heard of this event."""
    program = barracks.program(source)
    daemon = Path(__file__).parents[2] / "support" / "agents_daemon.py"
    with subprocess.Popen(
        [sys.executable, str(daemon), str(barracks.root), str(program)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert any(until in line for line in process.stdout)
        finally:
            process.kill()
    yield


async def test_a_run_survives_its_daemon_and_is_taken_over(barracks: Barracks) -> None:
    go = barracks.fifo()
    source = f"""
    tell(began={{"session_id": "s-1"}})
    tell(text="before")
    tell(usage={{"tokens": {{"input": 5}}, "turns": 1}})
    wait_at({str(go)!r})
    tell(text="after")
    result(status="success", summary="done")
    tell(finished={{"ok": True}})
    """
    with killed_daemon(barracks, source, until="Usage"):
        events: list[AgentEvent] = []
        runner = barracks.runner()
        going = await runner.adopt(RUN, events.append)
        assert going is not None
        assert going.pid == barracks.document("identity.json")["pid"]
        assert await runner.adopt(RUN) is going
        await asyncio.to_thread(let_go, go)
        outcome = await going.wait()
    assert (outcome.status, outcome.session_id, outcome.tokens.input) == ("success", "s-1", 5)
    assert Text("before") not in events
    assert [event for event in events if isinstance(event, Began | Text)] == [Began("s-1"), Text("after")]
    assert len(barracks.ledger_lines()) == 1
    assert barracks.alive() == set()
    again = await barracks.runner().adopt(RUN)
    assert again is not None
    assert await again.wait() == outcome
    assert len(barracks.ledger_lines()) == 1


async def test_a_run_that_ended_while_no_daemon_was_there_is_told_at_adoption(barracks: Barracks) -> None:
    go = barracks.fifo()
    source = f"""
    tell(began={{}})
    wait_at({str(go)!r})
    result(status="needs_human", question="Which?")
    tell(finished={{"ok": True}})
    """
    with killed_daemon(barracks, source):
        await asyncio.to_thread(let_go, go)
        while barracks.alive():
            await asyncio.sleep(0.02)
        going = await barracks.runner().adopt(RUN)
    assert going is not None
    assert (await going.wait()).status == "needs_human"
    assert len(barracks.ledger_lines()) == 1


async def test_a_daemon_that_died_between_ledger_and_outcome_is_not_counted_twice(barracks: Barracks) -> None:
    await run_to_end(barracks, 'tell(finished={"ok": True})')
    (barracks.folder() / "outcome.json").unlink()
    going = await barracks.runner().adopt(RUN)
    assert going is not None
    assert (await going.wait()).status == "success"
    assert len(barracks.ledger_lines()) == 1


async def test_an_adopted_run_whose_shim_is_gone_was_killed(barracks: Barracks) -> None:
    with killed_daemon(barracks, "tell(began={})\n" + ESCAPES + "time.sleep(600)"):
        os.kill(barracks.document("identity.json")["shim_pid"], signal.SIGKILL)
        going = await barracks.runner().adopt(RUN)
    assert going is not None
    assert (await going.wait()).status == "killed"
    assert barracks.alive() == set()


async def test_what_was_stopped_before_the_daemon_died_keeps_its_reason(barracks: Barracks) -> None:
    with killed_daemon(barracks, "tell(began={})\ntime.sleep(600)"):
        stop = {"status": "timeout", "reason": "it was silent for 5 s", "timer": "silence"}
        (barracks.folder() / "stop.json").write_text(json.dumps(stop))
        going = await barracks.runner().adopt(RUN)
    assert going is not None
    outcome = await going.wait()
    assert (outcome.status, outcome.timer, outcome.error) == ("timeout", "silence", "it was silent for 5 s")


async def test_a_run_of_an_earlier_boot_is_over_and_nobody_is_signalled(barracks: Barracks) -> None:
    await run_to_end(barracks, 'tell(finished={"ok": True})')
    for name in ("outcome.json", "exit.json"):
        (barracks.folder() / name).unlink()
    (barracks.sessions / f"{RUN}.json").write_text('{"text": "half way"}\n')
    bystander = subprocess.Popen(["sleep", "600"])
    identity = {**barracks.document("identity.json"), "boot_id": "earlier", "shim_pid": bystander.pid}
    (barracks.folder() / "identity.json").write_text(json.dumps(identity))
    try:
        going = await barracks.runner().adopt(RUN)
        assert going is not None
        assert (await going.wait()).status == "killed"
        identity["boot_id"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        (barracks.folder() / "identity.json").write_text(json.dumps(identity))
        (barracks.folder() / "outcome.json").unlink()
        going = await barracks.runner().adopt(RUN)
        assert going is not None
        assert (await going.wait()).status == "killed"
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def test_what_an_agent_writes_into_its_own_folder_turns_us_on_nobody(barracks: Barracks) -> None:
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        with killed_daemon(barracks, "tell(began={})\ntime.sleep(600)"):
            true = barracks.document("identity.json")
            start = find_process(bystander.pid)
            assert start is not None
            forged = {**true, "shim_pid": bystander.pid, "shim_start": start.start, "pid": bystander.pid}
            (barracks.folder() / "identity.json").write_text(json.dumps(forged))
            (barracks.folder() / "stop.json").write_text('{"status": "timeout", "reason": "x", "timer": null}')
            (barracks.folder() / "exit.json").write_text('{"code": [], "signal": {}}')
            (barracks.folder() / "outcome.json").write_text("[]")
            going = await barracks.runner().adopt(RUN)
        assert going is not None
        assert (await going.wait()).status == "timeout"
        assert bystander.poll() is None
        assert barracks.alive() == set()
    finally:
        bystander.kill()
        bystander.wait()


async def test_a_stop_begins_with_an_interrupt(barracks: Barracks) -> None:
    began = asyncio.Event()
    source = """
    try:
        tell(text="ready")
        time.sleep(600)
    except KeyboardInterrupt:
        tell(text="interrupted")
    """
    events: list[AgentEvent] = []

    def listen(event: AgentEvent) -> None:
        events.append(event)
        began.set()

    patient = Timers(first_output=30, silence=30, total=60, stop=30)
    going = await barracks.runner().start(barracks.order(source, timers=patient), listen)
    await began.wait()
    await going.stop("enough")
    outcome = await going.wait()
    assert (outcome.status, outcome.exit_code) == ("killed", 0)
    assert events == [Text("ready"), Text("interrupted")]


async def test_a_run_that_never_got_to_running_is_none_and_never_will(barracks: Barracks) -> None:
    runner = barracks.runner()
    assert await runner.adopt(RUN) is None
    order = barracks.order('tell(finished={"ok": True})')
    for torn in ("", "{torn", "[]", '{"cwd": "/", "env": []}'):
        barracks.folder().mkdir(parents=True)
        (barracks.folder() / "order.json").write_text(torn)
        assert await runner.adopt(RUN) is None
        assert not barracks.folder().exists()
    going = await runner.start(order)
    await going.wait()
    spec = barracks.document("spec.json")
    late = barracks.root / "late.json"
    late.write_text(json.dumps(spec))
    for name in ("identity.json", "exit.json", "outcome.json"):
        (barracks.folder() / name).unlink()
    assert await runner.adopt(RUN) is None
    assert not barracks.folder().exists()
    shim = [sys.executable, "-m", "kingdom.agents.shim", str(late)]
    assert subprocess.run(shim, capture_output=True, check=False).returncode != 0
    assert not barracks.folder().exists()
    barracks.folder().mkdir()
    (barracks.folder() / "identity.json").write_text('{"given_up": true}')
    (barracks.sessions / f"{RUN}.json").write_text("")
    assert subprocess.run(shim, check=False).returncode == 3
    assert (barracks.sessions / f"{RUN}.json").read_text() == ""
    assert [path.name for path in barracks.folder().iterdir()] == ["identity.json"]


async def test_a_run_that_nobody_watches_any_more_has_an_end(barracks: Barracks) -> None:
    await run_to_end(barracks, 'tell(finished={"ok": True})')
    alone = barracks.root / "alone"
    alone.mkdir()
    spec = {**barracks.document("spec.json"), "folder": str(alone), "argv": ["sleep", "600"], "ceiling": 0.2}
    (alone / "spec.json").write_text(json.dumps(spec))
    subprocess.run([sys.executable, "-m", "kingdom.agents.shim", str(alone / "spec.json")], check=True)
    ended = json.loads((alone / "exit.json").read_text())
    assert (ended["stopped"], ended["signal"]) == ("ceiling", signal.SIGINT)


async def test_letting_go_of_a_runner_leaves_its_runs_alone(barracks: Barracks) -> None:
    go = barracks.fifo()
    runner = barracks.runner()
    source = f"tell(began={{}})\nwait_at({str(go)!r})\ntell(finished={{'ok': True}})"
    await runner.start(barracks.order(source))
    await runner.close()
    await runner.close()
    assert barracks.alive()
    going = await barracks.runner().adopt(RUN)
    await asyncio.to_thread(let_go, go)
    assert going is not None
    assert (await going.wait()).status == "success"
