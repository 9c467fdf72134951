"""Runs of real processes: whatever a program does, the outcome is right and nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.errors import AlreadyStarted, InvalidOrder
from kingdom.agents.folder import ProcessIdentity, RunFolder
from kingdom.agents.port import AgentEvent, Began, Caps, Heartbeat, Text, Timers, Usage
from kingdom.base.uptime import uptime
from tests.support.agents import ESCAPES, PATIENT, QUICK, RUN, Barracks, run_to_end


@pytest.fixture
def barracks(tmp_path: Path) -> Barracks:
    return Barracks(tmp_path)


HERE = Text("I am here")


async def test_a_program_that_does_its_work(barracks: Barracks) -> None:
    outcome, events = await run_to_end(
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
    assert (line["run_id"], line["general"], line["status"]) == (RUN, "gen-test", "success")
    assert (barracks.sessions / f"{RUN}.json").read_text().count("\n") == 3


async def test_a_program_that_prints_nothing(barracks: Barracks) -> None:
    timers = Timers(first_output=0.3, silence=30, total=60, stop=0.2)
    outcome, _ = await run_to_end(barracks, "time.sleep(600)", timers=timers)
    assert (outcome.status, outcome.timer) == ("timeout", "first_output")
    assert "printed nothing for 0.3 s" in str(outcome.error)
    assert len(barracks.ledger_lines()) == 1


async def test_a_program_that_stalls_midway_still_costs_what_it_used(barracks: Barracks) -> None:
    timers = Timers(first_output=30, silence=0.3, total=60, stop=0.2)
    source = 'tell(usage={"tokens": {"output": 10}, "cost_usd": 0.5})\ntime.sleep(600)'
    outcome, _ = await run_to_end(barracks, source, timers=timers)
    assert (outcome.status, outcome.timer) == ("timeout", "silence")
    assert (outcome.cost_usd, outcome.cost_source) == (0.5, "stream")
    assert barracks.ledger_lines()[0]["cost_usd"] == 0.5


async def test_a_program_that_talks_for_ever_ends_at_twice_its_total(barracks: Barracks) -> None:
    timers = Timers(first_output=30, silence=30, total=0.4, stop=0.2)
    outcome, _ = await run_to_end(
        barracks, 'while True:\n    tell(text="still here")\n    time.sleep(0.005)', timers=timers
    )
    assert (outcome.status, outcome.timer) == ("timeout", "total")


async def test_a_program_that_says_it_is_done_and_hangs_is_done(barracks: Barracks) -> None:
    source = """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    result(status="success", summary="done")
    tell(finished={"ok": True})
    time.sleep(600)
    """
    outcome, _ = await run_to_end(barracks, source, timers=QUICK)
    assert (outcome.status, outcome.exit_code) == ("success", -9)


async def test_a_line_of_5_mib_is_read(barracks: Barracks) -> None:
    outcome, events = await run_to_end(barracks, 'tell(text="x" * 5 * 1024 * 1024)\ntell(finished={"ok": True})')
    assert outcome.status == "success"
    assert [len(event.text) for event in events if isinstance(event, Text)] == [5 * 1024 * 1024]


async def test_a_line_too_long_to_keep_is_a_sign_of_life(barracks: Barracks) -> None:
    source = 'sys.stdout.write("x" * 17 * 1024 * 1024 + "\\n")\ntell(finished={"ok": True})'
    outcome, events = await run_to_end(barracks, source)
    assert outcome.status == "success"
    assert events[0] == Heartbeat()


async def test_a_program_that_floods_us_is_ended(barracks: Barracks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.agents.process_run.MAX_TRANSCRIPT_BYTES", 1_000_000)
    outcome, _ = await run_to_end(barracks, 'while True:\n    print("x" * 100_000)', timers=QUICK)
    assert (outcome.status, outcome.error) == ("failed", "it printed more than 1000000 bytes")


async def test_a_torn_last_line_is_no_result(barracks: Barracks) -> None:
    source = 'tell(text="a")\nsys.stdout.write(\'{"finished": {"ok": tr\')'
    outcome, _ = await run_to_end(barracks, source)
    assert outcome.status == "failed"
    assert "without saying that it was done" in str(outcome.error)


async def test_a_last_line_without_an_end_counts(barracks: Barracks) -> None:
    outcome, _ = await run_to_end(barracks, 'sys.stdout.write(\'{"finished": {"ok": true}}\')')
    assert outcome.status == "success"


async def test_success_with_an_error_flag_is_a_failure(barracks: Barracks) -> None:
    source = 'result(status="success")\ntell(finished={"ok": False, "error": "API Error: 500"})\nsys.exit(1)'
    outcome, _ = await run_to_end(barracks, source)
    assert (outcome.status, outcome.error, outcome.exit_code) == ("failed", "API Error: 500", 1)


async def test_what_it_says_on_standard_error_is_in_the_reason(barracks: Barracks) -> None:
    outcome, _ = await run_to_end(barracks, 'sys.exit("no credentials")')
    assert outcome.status == "failed"
    assert "(exit code 1)" in str(outcome.error)
    assert str(outcome.error).endswith(": no credentials")


async def test_children_that_run_away_do_not_get_far(barracks: Barracks) -> None:
    source = ESCAPES + 'tell(text="ran")\ntell(finished={"ok": True})'
    outcome, _ = await run_to_end(barracks, source, timers=QUICK)
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
    monkeypatch.setattr("kingdom.base.inotify._open_instance", lambda: None)
    outcome, events = await run_to_end(
        barracks, 'tell(text="a")\ntell(finished={"ok": True})\ntime.sleep(600)', timers=QUICK
    )
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


async def test_an_agent_that_will_not_stop_is_gone_before_its_lease_ends(barracks: Barracks) -> None:
    lease = barracks.root / "lease"
    lease.write_text(f"{uptime() + 3600} {uptime() + 3600}")
    order = barracks.order(
        """
        import signal, time
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tell(text="I am here")
        time.sleep(600)
        """,
        timers=replace(PATIENT, stop=300),  # longer than the lease
    )
    heard = asyncio.Event()
    running = await barracks.runner(lease=lease).start(order, lambda event: heard.set() if event == HERE else None)
    await heard.wait()
    lease.write_text(f"{uptime()} {uptime() + 3}")
    outcome = await running.wait()
    assert (outcome.status, outcome.error) == ("killed", "its engine did not renew its lease in time")
    assert not barracks.alive()


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
    outcome, _ = await run_to_end(barracks, source)
    assert outcome.error is None


async def test_nothing_of_our_environment_leaks_to_the_agent_or_the_disk(
    barracks: Barracks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush-1")
    monkeypatch.setenv("CLAUDECODE", "1")
    source = "tell(text=json.dumps(dict(os.environ)))\ntell(finished={'ok': True, 'text': 'seen'})"
    outcome, events = await run_to_end(barracks, source, env={"GH_TOKEN": "hush-2"})
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
    outcome, events = await run_to_end(barracks, source, caps=caps, timers=QUICK)
    assert outcome.status == "failed"
    assert error in str(outcome.error)
    assert isinstance(events[0], Usage)


async def test_a_rate_limit_parks_the_run(barracks: Barracks) -> None:
    source = """
    tell(rate={"status": "rejected", "resets_at": 2000000000.0, "window": "five_hour"})
    tell(finished={"ok": False, "error": "limit reached"})
    """
    outcome, _ = await run_to_end(barracks, source)
    assert (outcome.status, outcome.resets_at) == ("rate_limited", 2000000000.0)


async def test_a_result_of_an_earlier_attempt_does_not_count(barracks: Barracks) -> None:
    barracks.result.parent.mkdir()
    barracks.result.write_text('{"status": "success", "summary": "old"}')
    outcome, _ = await run_to_end(barracks, 'tell(finished={"ok": True, "text": "new"})')
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


async def test_a_program_that_is_over_before_we_look_has_started(
    barracks: Barracks, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, late = RunFolder.read_identity, []

    def read_too_early(folder: RunFolder) -> ProcessIdentity | None:
        if late or not folder.prompt.exists():
            return read(folder)
        while (identity := read(folder)) is None:
            time.sleep(0.01)
        late.append(identity)
        shim = os.pidfd_open(identity.shim_pid)
        select.select([shim], [], [], 60)
        os.close(shim)
        return None  # what we would have read before all this

    monkeypatch.setattr(RunFolder, "read_identity", read_too_early)
    order = barracks.order(engine="command", options={"argv": ["true"]})
    outcome = await (await barracks.runner().start(order)).wait()
    assert late
    assert outcome.exit_code == 0


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
    await run_to_end(barracks, 'tell(finished={"ok": True})')
    with pytest.raises(AlreadyStarted, match=RUN):
        await barracks.runner().start(barracks.order('tell(finished={"ok": True})'))


async def test_a_listener_that_raises_does_not_harm_the_run(barracks: Barracks) -> None:
    def listen(event: AgentEvent) -> None:
        raise RuntimeError(str(event))

    order = barracks.order('tell(text="a")\ntell(finished={"ok": True})')
    assert (await (await barracks.runner().start(order, listen)).wait()).status == "success"
