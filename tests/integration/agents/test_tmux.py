"""The same runs in tmux: attachable, and just as dead afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.agents.hosts import TmuxHost
from kingdom.agents.port import AgentEvent, Text
from kingdom.agents.sandbox.sandbox import Sandbox
from tests.support.agents import RUN, Barracks, let_go

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed (scripts/system-packages)")
SOCKET = f"kingdom-test-{os.getpid()}"


@pytest.fixture
def barracks(tmp_path: Path) -> Barracks:
    return Barracks(tmp_path)


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """A session of ours keeps the server up, so that panes can be looked at; it ends with the tests."""
    subprocess.run(["tmux", "-L", SOCKET, "-f", os.devnull, "new-session", "-d", "-s", "keep"], check=True)
    yield
    subprocess.run(["tmux", "-L", SOCKET, "kill-server"], check=False)


def tmux(*arguments: str) -> str:
    done = subprocess.run(["tmux", "-L", SOCKET, *arguments], capture_output=True, text=True, check=False)
    return done.stdout


async def test_a_run_in_tmux_shows_its_transcript_and_can_be_taken_over(barracks: Barracks) -> None:
    go = barracks.fifo()
    runner = barracks.runner(host=TmuxHost(SOCKET))
    events: list[AgentEvent] = []
    source = f"""
    assert "TMUX" not in os.environ
    tell(text="hello \\\\u001b[31m")
    print("\\x1b]0;evil\\x07plain", flush=True)
    wait_at({str(go)!r})
    tell(text=os.environ["GH_TOKEN"])
    tell(finished={{"ok": True}})
    """
    order = barracks.order(source, run_id="soldier.1", env={"GH_TOKEN": "hush"})
    going = await runner.start(order, events.append)
    assert not (barracks.folder("soldier.1") / "env.json").exists()
    assert "hush" not in (barracks.folder("soldier.1") / "spec.json").read_text()
    while "plain" not in (pane := tmux("capture-pane", "-p", "-t", "=soldier_1:")):
        await asyncio.sleep(0.05)
    assert '{"text": "hello' in pane
    assert "?]0;evil?plain" in pane
    await runner.close()
    adopted = await barracks.runner(host=TmuxHost(SOCKET)).adopt("soldier.1", events.append)
    assert adopted is not None
    assert adopted.pid == going.pid
    await asyncio.to_thread(let_go, go)
    assert (await adopted.wait()).status == "success"
    assert Text("hush") in events
    assert "soldier_1" not in tmux("list-sessions")
    assert barracks.alive("soldier.1") == set()


async def test_a_run_in_tmux_is_stopped_with_all_its_children(barracks: Barracks) -> None:
    began = asyncio.Event()
    source = """
    subprocess.Popen(["setsid", "sleep", "600"])
    subprocess.Popen(["nohup", "sleep", "600"], stderr=subprocess.DEVNULL)
    tell(text="ran")
    time.sleep(600)
    """
    going = await barracks.runner(host=TmuxHost(SOCKET)).start(barracks.order(source), lambda _: began.set())
    await began.wait()
    await going.stop("cancelled")
    assert (await going.wait()).status == "killed"
    assert barracks.alive() == set()


async def test_a_tmux_session_killed_by_a_person_ends_the_run(barracks: Barracks) -> None:
    began = asyncio.Event()
    source = 'subprocess.Popen(["setsid", "sleep", "600"])\ntell(text="ran")\ntime.sleep(600)'
    going = await barracks.runner(host=TmuxHost(SOCKET)).start(barracks.order(source), lambda _: began.set())
    await began.wait()
    tmux("kill-session", "-t", f"={RUN}")
    outcome = await going.wait()
    assert (outcome.status, "SIGHUP" in str(outcome.error)) == ("killed", True)
    assert barracks.alive() == set()


async def test_a_hanging_run_in_tmux_times_out(barracks: Barracks) -> None:
    from kingdom.agents.port import Timers

    order = barracks.order("time.sleep(600)", timers=Timers(first_output=0.3, stop=0.2))
    outcome = await (await barracks.runner(host=TmuxHost(SOCKET)).start(order)).wait()
    assert (outcome.status, outcome.timer) == ("timeout", "first_output")
    assert barracks.alive() == set()


def test_a_person_can_attach() -> None:
    assert TmuxHost("k").attach_command("a:b") == ["tmux", "-L", "k", "attach-session", "-r", "-t", "=a_b"]


async def test_a_run_in_tmux_is_confined_and_cannot_type_into_its_terminal(barracks: Barracks) -> None:
    runner = barracks.runner(host=TmuxHost(SOCKET), sandbox=Sandbox("required", read=[barracks.root / "agent.py"]))
    source = """
    import fcntl, termios
    found = []
    for name in ["/dev/tty", "/dev/pts/0", "/dev/pts/1", "/proc/1/fd/0"]:
        try:
            fcntl.ioctl(os.open(name, os.O_RDWR | os.O_NOCTTY), termios.TIOCSTI, b"x")
            found.append(name)
        except OSError:
            pass
    tell(text=f"typed into {found}, sees {sorted(os.listdir('/tmp'))[:1]}")
    tell(finished={"ok": True})
    """
    events: list[AgentEvent] = []
    order = barracks.order(source, run_id="soldier.2")
    outcome = await (await runner.start(order, events.append)).wait()
    await runner.close()
    assert outcome.status == "success"
    assert any(isinstance(event, Text) and event.text.startswith("typed into []") for event in events), events
    assert barracks.alive("soldier.2") == set()
