"""The supervisor with real processes: roles that hang, that cannot start, that do not stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kingdom.court.home import MARKER
from tests.support.command import environment
from tests.support.courts import PATIENCE, Court, gone, until

# Roles are forked, so what is changed here is changed in them.
PROGRAM = """
import sys
from kingdom.court.envoy.role import Envoy
from kingdom.court.home import Home
from kingdom.court.supervisor import policy
from kingdom.court.supervisor.supervisor import Supervisor
from kingdom.court.supervisor.policy import SupervisorTiming
from kingdom.court.supervisor.logs import ConsoleWriter
Envoy.interval = 0.1
policy.FIRST_DELAY_SECONDS, policy.MAX_DELAY_SECONDS = 0.01, 0.02
timing = SupervisorTiming(look=0.1, stop=1.0, hang=1.0, hang_intervals=3.0)
{change}
Supervisor(Home(sys.argv[1]), ConsoleWriter(), only=["envoy"], timing=timing).run()
"""


@pytest.fixture
def court(tmp_path: Path) -> Court:
    (tmp_path / MARKER).parent.mkdir()
    (tmp_path / MARKER).write_text("name: test\n")
    return Court(tmp_path)


@contextmanager
def supervised(court: Court, change: str = "") -> Iterator[subprocess.Popen[str]]:
    with (court.root / "up.txt").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(change=textwrap.dedent(change)), str(court.root)],
            stdout=log,
            stderr=log,
            text=True,
            env=environment(),
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_a_role_that_hangs_is_killed_and_started_again(court: Court) -> None:
    with supervised(court) as process:
        pid = court.wait_for_roles("envoy")["envoy"]
        os.kill(pid, signal.SIGSTOP)
        until(lambda: court.pids().get("envoy") not in (None, pid), "another envoy")
        court.wait_for_roles("envoy")
        assert gone(pid)
        assert process.poll() is None
    assert "hangs: no heartbeat" in court.said


def test_a_role_that_cannot_start_is_reported_as_failed_with_its_reason_and_the_rest_goes_on(court: Court) -> None:
    change = """
    async def start(self):
        raise RuntimeError("no voice today")
    Envoy.start = start
    """
    with supervised(court, change) as process:
        until(lambda: "failed too often" in court.said, "the limit")

        def failed() -> bool:
            (envoy,) = [role for role in court.ask("status")["roles"] if role["name"] == "envoy"]
            return bool(envoy["state"] == "failed" and "no voice today" in envoy["reason"])

        until(failed, "a word in status")
        assert process.poll() is None
        assert court.call("doctor").returncode == 1
    assert process.returncode == 0
    assert court.said.count("started (pid") == 8


def test_a_role_that_does_not_stop_is_killed_after_a_while(court: Court) -> None:
    change = """
    import asyncio
    async def stop(self):
        await asyncio.sleep(3600)
    Envoy.stop = stop
    """
    with supervised(court, change) as process:
        pid = court.wait_for_roles("envoy")["envoy"]
        process.terminate()
        assert process.wait(PATIENCE) == 0
        assert gone(pid)
    assert "does not stop: killing it" in court.said


def test_a_role_that_a_killed_supervisor_left_hanging_is_ended_by_the_next_one(court: Court) -> None:
    with supervised(court) as first:
        pid = court.wait_for_roles("envoy")["envoy"]
        os.kill(pid, signal.SIGSTOP)
        first.kill()
        first.wait(PATIENCE)
    with supervised(court):
        until(lambda: court.pids().get("envoy") not in (None, pid), "another envoy")
        court.wait_for_roles("envoy")
    assert gone(pid)
    assert "ending the process of a previous supervisor" in court.said
