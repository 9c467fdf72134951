"""Runs of real processes: whatever a program does, the outcome is right and nothing of it is left."""

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

from kingdom.agents.errors import AlreadyStarted, InvalidOrder
from kingdom.agents.port import AgentEvent, Began, Caps, Heartbeat, Outcome, Text, Timers, Usage
from kingdom.agents.processes import look
from tests.support.agents import Barracks, let_go

QUICK = Timers(first_output=30, silence=30, total=60, after_result=0.1, stop=0.2)


@pytest.fixture
def barracks(tmp_path: Path) -> Barracks:
    return Barracks(tmp_path)


async def run(barracks: Barracks, source: str, **changes: Any) -> tuple[Outcome, list[AgentEvent]]:
    """Run a program to its end. Nothing of it is alive then."""
    events: list[AgentEvent] = []
    order = barracks.order(source, **changes)
    outcome = await (await barracks.runner().start(order, events.append)).wait()
    assert barracks.alive(order.run_id) == set()
    return outcome, events


async def test_a_program_that_does_its_work(barracks: Barracks) -> None:
    outcome, events = await run(
        barracks,
        """
        assert sys.stdin.read() == "do it"
        assert os.getcwd().endswith("/work")
        tell(began={"session_id": "s-1", "model": "claude-sonnet-4-5"})
        tell(usage={"tokens": {"input": 1000, "output": 100}, "turns": 1})
        result(status="success", summary="done", memory_updates=["a fact"])
        tell(finished={"ok": True})
        """,
    )
    assert outcome.status == "success"
    assert outcome.result is not None
    assert outcome.result["memory_updates"] == ["a fact"]
    assert (outcome.session_id, outcome.model, outcome.exit_code) == ("s-1", "claude-sonnet-4-5", 0)
    assert (outcome.tokens.total, outcome.cost_usd, outcome.cost_source) == (1100, 0.0045, "estimate")
    assert events[0] == Began("s-1", "claude-sonnet-4-5")
    (line,) = barracks.ledger_lines()
    assert (line["run_id"], line["general"], line["status"]) == ("soldier-1", "gen-test", "success")
    assert (barracks.sessions / "soldier-1.json").read_text().count("\n") == 3


async def test_a_program_that_prints_nothing(barracks: Barracks) -> None:
    timers = Timers(first_output=0.3, silence=30, total=60, stop=0.2)
    outcome, _ = await run(barracks, "time.sleep(600)", timers=timers)
    assert (outcome.status, outcome.timer) == ("timeout", "first_output")
    assert "printed nothing for 0.3 s" in str(outcome.error)
    assert len(barracks.ledger_lines()) == 1


async def test_a_program_that_stalls_midway_still_costs_what_it_used(barracks: Barracks) -> None:
    timers = Timers(first_output=30, silence=0.3, total=60, stop=0.2)
    source = 'tell(usage={"tokens": {"output": 10}, "cost_usd": 0.5})\ntime.sleep(600)'
    outcome, _ = await run(barracks, source, timers=timers)
    assert (outcome.status, outcome.timer) == ("timeout", "silence")
    assert (outcome.cost_usd, outcome.cost_source) == (0.5, "stream")
    assert barracks.ledger_lines()[0]["cost_usd"] == 0.5


async def test_a_program_that_talks_for_ever_ends_at_twice_its_total(barracks: Barracks) -> None:
    timers = Timers(first_output=30, silence=30, total=0.4, stop=0.2)
    outcome, _ = await run(barracks, 'while True:\n    tell(text="still here")\n    time.sleep(0.005)', timers=timers)
    assert (outcome.status, outcome.timer) == ("timeout", "total")


async def test_a_program_that_says_it_is_done_and_hangs_is_done(barracks: Barracks) -> None:
    source = """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    result(status="success", summary="done")
    tell(finished={"ok": True})
    time.sleep(600)
    """
    outcome, _ = await run(barracks, source, timers=QUICK)
    assert (outcome.status, outcome.exit_code) == ("success", -9)


async def test_a_line_of_5_mib_is_read(barracks: Barracks) -> None:
    outcome, events = await run(barracks, 'tell(text="x" * 5 * 1024 * 1024)\ntell(finished={"ok": True})')
    assert outcome.status == "success"
    assert [len(event.text) for event in events if isinstance(event, Text)] == [5 * 1024 * 1024]


async def test_a_line_too_long_to_keep_is_a_sign_of_life(barracks: Barracks) -> None:
    source = 'sys.stdout.write("x" * 17 * 1024 * 1024 + "\\n")\ntell(finished={"ok": True})'
    outcome, events = await run(barracks, source)
    assert outcome.status == "success"
    assert events[0] == Heartbeat()


async def test_a_program_that_floods_us_is_ended(barracks: Barracks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.agents.process_run.MAX_TRANSCRIPT", 1_000_000)
    outcome, _ = await run(barracks, 'while True:\n    print("x" * 100_000)', timers=QUICK)
    assert (outcome.status, outcome.error) == ("failed", "it printed more than 1000000 bytes")


async def test_a_torn_last_line_is_no_result(barracks: Barracks) -> None:
    source = 'tell(text="a")\nsys.stdout.write(\'{"finished": {"ok": tr\')'
    outcome, _ = await run(barracks, source)
    assert outcome.status == "failed"
    assert "without saying that it was done" in str(outcome.error)


async def test_a_last_line_without_an_end_counts(barracks: Barracks) -> None:
    outcome, _ = await run(barracks, 'sys.stdout.write(\'{"finished": {"ok": true}}\')')
    assert outcome.status == "success"


async def test_success_with_an_error_flag_is_a_failure(barracks: Barracks) -> None:
    source = 'result(status="success")\ntell(finished={"ok": False, "error": "API Error: 500"})\nsys.exit(1)'
    outcome, _ = await run(barracks, source)
    assert (outcome.status, outcome.error, outcome.exit_code) == ("failed", "API Error: 500", 1)


async def test_what_it_says_on_standard_error_is_in_the_reason(barracks: Barracks) -> None:
    outcome, _ = await run(barracks, 'sys.exit("no credentials")')
    assert outcome.status == "failed"
    assert "(exit code 1)" in str(outcome.error)
    assert str(outcome.error).endswith(": no credentials")


ESCAPES = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
subprocess.Popen(["setsid", "sleep", "600"])
subprocess.Popen(["nohup", "sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
subprocess.Popen(["env", "-i", "/bin/sh", "-c", "trap '' INT TERM HUP; sleep 600 & wait"])
for _ in range(2):  # a daemon: fork, a session of its own, fork again
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
"""


async def test_children_that_run_away_do_not_get_far(barracks: Barracks) -> None:
    source = ESCAPES + 'tell(text="ran")\ntell(finished={"ok": True})'
    outcome, _ = await run(barracks, source, timers=QUICK)
    assert outcome.status == "success"
    assert barracks.document("exit.json")["left"] == []


async def test_a_stopped_run_leaves_nothing_behind_and_a_stranger_alone(barracks: Barracks) -> None:
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        began = asyncio.Event()
        order = barracks.order(ESCAPES + 'tell(text="ran")\ntime.sleep(600)', timers=QUICK)
        going = await barracks.runner().start(order, lambda _: began.set())
        await began.wait()
        assert len(barracks.alive()) >= 6
        await going.stop("cancelled by kim")
        outcome = await going.wait()
        assert (outcome.status, outcome.error) == ("killed", "cancelled by kim")
        assert barracks.alive() == set()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_where_the_kernel_tells_us_nothing_we_look(barracks: Barracks, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("os.pidfd_open", refuse)
    monkeypatch.setattr("kingdom.bus.inotify._open_instance", lambda: None)
    outcome, events = await run(barracks, 'tell(text="a")\ntell(finished={"ok": True})\ntime.sleep(600)', timers=QUICK)
    assert outcome.status == "success"
    assert events[0] == Text("a")


async def test_an_agent_killed_from_outside_is_killed(barracks: Barracks) -> None:
    began = asyncio.Event()
    going = await barracks.runner().start(barracks.order('tell(text="a")\ntime.sleep(600)'), lambda _: began.set())
    await began.wait()
    assert going.pid is not None
    os.kill(going.pid, signal.SIGKILL)
    outcome = await going.wait()
    assert (outcome.status, outcome.exit_code) == ("killed", -9)
    assert "SIGKILL, not by us" in str(outcome.error)
    assert len(barracks.ledger_lines()) == 1


async def test_when_the_shim_is_killed_its_strays_are_ended(barracks: Barracks) -> None:
    began = asyncio.Event()
    order = barracks.order(ESCAPES + 'tell(usage={"tokens": {"input": 7}})\ntime.sleep(600)')
    going = await barracks.runner().start(order, lambda _: began.set())
    await began.wait()
    os.kill(barracks.document("identity.json")["shim_pid"], signal.SIGKILL)
    outcome = await going.wait()
    assert (outcome.status, outcome.exit_code, outcome.tokens.input) == ("killed", None, 7)
    assert barracks.alive() == set()
    assert len(barracks.ledger_lines()) == 1


async def test_who_the_agent_is_stands_on_disk_before_it_runs(barracks: Barracks) -> None:
    source = f"""
    with open({str(barracks.folder() / "identity.json")!r}) as file:
        identity = json.load(file)
    stat = open(f"/proc/{{os.getpid()}}/stat").read().rsplit(")", 1)[1].split()
    assert identity["pid"] == identity["pgid"] == os.getpid() == os.getpgid(0) == os.getsid(0)
    assert identity["start"] == int(stat[19])
    assert identity["boot_id"] == open("/proc/sys/kernel/random/boot_id").read().strip()
    assert identity["shim_pid"] == os.getppid()
    assert identity["run_id"] == os.environ["KINGDOM_RUN_ID"]
    tell(finished={{"ok": True}})
    """
    outcome, _ = await run(barracks, source)
    assert outcome.error is None


async def test_nothing_of_our_environment_leaks_to_the_agent_or_the_disk(
    barracks: Barracks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush-1")
    monkeypatch.setenv("CLAUDECODE", "1")
    source = "tell(text=json.dumps(dict(os.environ)))\ntell(finished={'ok': True, 'text': 'seen'})"
    outcome, events = await run(barracks, source, env={"GH_TOKEN": "hush-2"})
    assert outcome.status == "success"
    (seen,) = [json.loads(event.text) for event in events if isinstance(event, Text)]
    assert not {"SECRET_TOKEN", "CLAUDECODE"} & seen.keys()
    assert seen["GH_TOKEN"] == "hush-2"
    assert seen["KINGDOM_TASK_ID"] == "task-20260101-001"
    for path in barracks.folder().iterdir():
        assert b"hush" not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("caps", "error"),
    [
        (Caps(turns=60), "61 turns used, 60 allowed"),
        (Caps(tokens=600), "610 tokens used, 600 allowed"),
        (Caps(cost_usd=0.6), "0.61 US dollars used, 0.6 allowed"),
    ],
)
async def test_caps_are_kept_here_whatever_the_agent_thinks(barracks: Barracks, caps: Caps, error: str) -> None:
    source = """
    for turn in range(1, 74):
        tell(usage={"tokens": {"input": 10 * turn}, "turns": turn, "cost_usd": turn / 100})
    time.sleep(600)
    """
    outcome, events = await run(barracks, source, caps=caps, timers=QUICK)
    assert outcome.status == "failed"
    assert error in str(outcome.error)
    assert isinstance(events[0], Usage)


async def test_a_rate_limit_parks_the_run(barracks: Barracks) -> None:
    source = """
    tell(rate={"status": "rejected", "resets_at": 2000000000.0, "window": "five_hour"})
    tell(finished={"ok": False, "error": "limit reached"})
    """
    outcome, _ = await run(barracks, source)
    assert (outcome.status, outcome.resets_at) == ("rate_limited", 2000000000.0)


async def test_a_result_of_an_earlier_attempt_does_not_count(barracks: Barracks) -> None:
    barracks.result.parent.mkdir()
    barracks.result.write_text('{"status": "success", "summary": "old"}')
    outcome, _ = await run(barracks, 'tell(finished={"ok": True, "text": "new"})')
    assert outcome.result is not None
    assert outcome.result["summary"] == "new"


async def test_a_command_decides_by_its_exit_code(barracks: Barracks) -> None:
    runner = barracks.runner()
    order = barracks.order(engine="command", prompt="the prompt\n")
    script = 'cat "$1"; cat; echo "{\\"status\\": \\"success\\"}" > "$KINGDOM_RESULT_PATH"; exit "$2"'
    outcomes = []
    for code in ("0", "3"):
        events: list[AgentEvent] = []
        argv = ["sh", "-c", script, "sh", "{prompt_path}", code]
        order = barracks.order(
            run_id=f"soldier-{code}", engine="command", prompt="the prompt\n", options={"argv": argv}
        )
        outcomes.append(await (await runner.start(order, events.append)).wait())
        assert events == [Text("the prompt"), Text("the prompt")]
    assert [outcome.status for outcome in outcomes] == ["success", "failed"]
    assert outcomes[1].error == "exit code 3"


async def test_a_program_that_cannot_be_started_is_told(barracks: Barracks) -> None:
    program = barracks.cwd / "job"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    order = barracks.order(engine="command", options={"argv": ["./job"]})
    outcome = await (await barracks.runner().start(order)).wait()
    assert outcome.status == "failed"
    assert "could not be started: No such file or directory" in str(outcome.error)


async def test_orders_that_cannot_be_carried_out_are_refused_before_anything_is_made(barracks: Barracks) -> None:
    runner = barracks.runner()
    wrong: list[dict[str, Any]] = [
        {"run_id": "../x"},
        {"run_id": "-x"},
        {"cwd": barracks.root / "none"},
        {"result_path": Path("relative.json")},
        {"options": {"argv": ["true"], "bad": object()}},
    ]
    for changes in wrong:
        order = barracks.order(**{"engine": "command", "options": {"argv": ["true"]}, **changes})
        with pytest.raises(InvalidOrder):
            await runner.start(order)
    assert list(barracks.soldiers.glob("*")) == []


async def test_a_run_id_is_used_once(barracks: Barracks) -> None:
    await run(barracks, 'tell(finished={"ok": True})')
    with pytest.raises(AlreadyStarted, match="soldier-1"):
        await barracks.runner().start(barracks.order('tell(finished={"ok": True})'))


async def test_a_listener_that_raises_does_not_harm_the_run(barracks: Barracks) -> None:
    def listen(event: AgentEvent) -> None:
        raise RuntimeError(str(event))

    order = barracks.order('tell(text="a")\ntell(finished={"ok": True})')
    assert (await (await barracks.runner().start(order, listen)).wait()).status == "success"


# ── the daemon dies, the run goes on ──────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def killed_daemon(barracks: Barracks, source: str, until: str = "Began") -> Any:
    """Have another process start a run, and kill that process when it has heard of this event."""
    program = barracks.program(source)
    daemon = Path(__file__).parent.parent / "support" / "agents_daemon.py"
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
        going = await runner.adopt("soldier-1", events.append)
        assert going is not None
        assert going.pid == barracks.document("identity.json")["pid"]
        assert await runner.adopt("soldier-1") is going
        await asyncio.to_thread(let_go, go)
        outcome = await going.wait()
    assert (outcome.status, outcome.session_id, outcome.tokens.input) == ("success", "s-1", 5)
    assert Text("before") not in events
    assert [event for event in events if isinstance(event, Began | Text)] == [Began("s-1"), Text("after")]
    assert len(barracks.ledger_lines()) == 1
    assert barracks.alive() == set()
    again = await barracks.runner().adopt("soldier-1")
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
        going = await barracks.runner().adopt("soldier-1")
    assert going is not None
    assert (await going.wait()).status == "needs_human"
    assert len(barracks.ledger_lines()) == 1


async def test_a_daemon_that_died_between_ledger_and_outcome_is_not_counted_twice(barracks: Barracks) -> None:
    await run(barracks, 'tell(finished={"ok": True})')
    (barracks.folder() / "outcome.json").unlink()
    going = await barracks.runner().adopt("soldier-1")
    assert going is not None
    assert (await going.wait()).status == "success"
    assert len(barracks.ledger_lines()) == 1


async def test_an_adopted_run_whose_shim_is_gone_was_killed(barracks: Barracks) -> None:
    with killed_daemon(barracks, "tell(began={})\n" + ESCAPES + "time.sleep(600)"):
        os.kill(barracks.document("identity.json")["shim_pid"], signal.SIGKILL)
        going = await barracks.runner().adopt("soldier-1")
    assert going is not None
    assert (await going.wait()).status == "killed"
    assert barracks.alive() == set()


async def test_what_was_stopped_before_the_daemon_died_keeps_its_reason(barracks: Barracks) -> None:
    with killed_daemon(barracks, "tell(began={})\ntime.sleep(600)"):
        stop = {"status": "timeout", "reason": "it was silent for 5 s", "timer": "silence"}
        (barracks.folder() / "stop.json").write_text(json.dumps(stop))
        going = await barracks.runner().adopt("soldier-1")
    assert going is not None
    outcome = await going.wait()
    assert (outcome.status, outcome.timer, outcome.error) == ("timeout", "silence", "it was silent for 5 s")


async def test_a_run_of_an_earlier_boot_is_over_and_nobody_is_signalled(barracks: Barracks) -> None:
    await run(barracks, 'tell(finished={"ok": True})')
    for name in ("outcome.json", "exit.json"):
        (barracks.folder() / name).unlink()
    (barracks.sessions / "soldier-1.json").write_text('{"text": "half way"}\n')
    bystander = subprocess.Popen(["sleep", "600"])
    identity = {**barracks.document("identity.json"), "boot_id": "earlier", "shim_pid": bystander.pid}
    (barracks.folder() / "identity.json").write_text(json.dumps(identity))
    try:
        going = await barracks.runner().adopt("soldier-1")
        assert going is not None
        assert (await going.wait()).status == "killed"
        identity["boot_id"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        (barracks.folder() / "identity.json").write_text(json.dumps(identity))
        (barracks.folder() / "outcome.json").unlink()
        going = await barracks.runner().adopt("soldier-1")
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
            start = look(bystander.pid)
            assert start is not None
            forged = {**true, "shim_pid": bystander.pid, "shim_start": start.start, "pid": bystander.pid}
            (barracks.folder() / "identity.json").write_text(json.dumps(forged))
            (barracks.folder() / "stop.json").write_text('{"status": "timeout", "reason": "x", "timer": null}')
            (barracks.folder() / "exit.json").write_text('{"code": [], "signal": {}}')
            (barracks.folder() / "outcome.json").write_text("[]")
            going = await barracks.runner().adopt("soldier-1")
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
    tell(text="ready")
    try:
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
    assert await runner.adopt("soldier-1") is None
    order = barracks.order('tell(finished={"ok": True})')
    for torn in ("", "{torn", "[]", '{"cwd": "/", "env": []}'):
        barracks.folder().mkdir(parents=True)
        (barracks.folder() / "order.json").write_text(torn)
        assert await runner.adopt("soldier-1") is None
        assert not barracks.folder().exists()
    going = await runner.start(order)
    await going.wait()
    spec = barracks.document("spec.json")
    late = barracks.root / "late.json"
    late.write_text(json.dumps(spec))
    for name in ("identity.json", "exit.json", "outcome.json"):
        (barracks.folder() / name).unlink()
    assert await runner.adopt("soldier-1") is None
    assert not barracks.folder().exists()
    shim = [sys.executable, "-m", "kingdom.agents.shim", str(late)]
    assert subprocess.run(shim, capture_output=True, check=False).returncode != 0
    assert not barracks.folder().exists()
    barracks.folder().mkdir()
    (barracks.folder() / "identity.json").write_text('{"given_up": true}')
    (barracks.sessions / "soldier-1.json").write_text("")
    assert subprocess.run(shim, check=False).returncode == 3
    assert (barracks.sessions / "soldier-1.json").read_text() == ""
    assert [path.name for path in barracks.folder().iterdir()] == ["identity.json"]


async def test_a_run_that_nobody_watches_any_more_has_an_end(barracks: Barracks) -> None:
    await run(barracks, 'tell(finished={"ok": True})')
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
    going = await barracks.runner().adopt("soldier-1")
    await asyncio.to_thread(let_go, go)
    assert going is not None
    assert (await going.wait()).status == "success"
