"""The small parts of the supervisor: when a dead role comes back, which process a number means, what is said."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kingdom.base.files import write_atomic
from kingdom.court.bootstrap import stop_order
from kingdom.court.home import Home
from kingdom.court.supervisor.logs import ConsoleWriter
from kingdom.court.supervisor.policy import (
    FAILED_RETRY_SECONDS,
    MAX_DEATHS,
    MAX_DELAY_SECONDS,
    STEADY_SECONDS,
    RestartBackoff,
)
from kingdom.court.supervisor.record import (
    ProcessHandle,
    RoleRecord,
    SupervisorRecord,
    own_process,
    read_record,
    record_path,
    running_supervisor,
)


def test_a_role_that_dies_again_and_again_is_started_later_each_time_and_then_counts_as_failed() -> None:
    restarts = RestartBackoff()
    delays = [restarts.died(100.0, 1.0, "x") for _ in range(MAX_DEATHS - 1)]
    assert delays == sorted(delays)
    assert delays[0] < 1.0
    assert delays[-1] <= MAX_DELAY_SECONDS
    assert restarts.failed is False
    assert restarts.died(100.0, 1.0, "for good") == FAILED_RETRY_SECONDS
    assert (restarts.failed, restarts.why, restarts.due) == (True, "for good", 100.0 + FAILED_RETRY_SECONDS)


def test_a_role_that_lived_long_follow_up_ended() -> None:
    restarts = RestartBackoff(deaths=MAX_DEATHS)
    assert restarts.died(0.0, STEADY_SECONDS, "late") < 1.0
    assert restarts.failed is False


def test_a_process_is_itself_only_with_its_start_and_its_boot() -> None:
    own = own_process()
    assert own.alive
    assert ProcessHandle.read(own.document()) == own
    assert not replace(own, start_time=(own.start_time or 0) + 1).alive
    assert not replace(own, boot_id="another boot").alive
    assert replace(own, boot_id="another boot").send(signal.SIGKILL) is False, "and here we still are"


def test_the_end_of_a_process_is_waited_for_and_a_zombie_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = ProcessHandle.of(process.pid)
        assert identity.wait(0) is False
        assert identity.send(signal.SIGTERM) is True
        assert identity.wait(30) is True
        assert process.returncode is None, "nobody has waited for it yet"
    assert identity.send(signal.SIGTERM) is False


@pytest.mark.parametrize("document", [None, [], {}, {"pid": "1"}, {"pid": 1, "start_time": 1, "boot_id": "x"}])
def test_what_is_no_identity_is_none(document: object) -> None:
    assert ProcessHandle.read(document) is None


def test_the_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.role("supervisor").mkdir(parents=True)
    assert read_record(home) is None
    roles = {
        "king": RoleRecord("running", own_process(), "2026-02-07T10:00:00.000Z"),
        "envoy": RoleRecord("failed", deaths=8),
    }
    record = SupervisorRecord(own_process(), "2026-02-07T10:00:00.000Z", "processes", roles)
    record.write(home)
    assert read_record(home) == record
    assert running_supervisor(home) == record
    SupervisorRecord(replace(own_process(), boot_id="another"), "", "inline").write(home)
    assert running_supervisor(home) is None
    write_atomic(record_path(home), "{ torn")
    assert read_record(home) is None


def test_who_brings_work_in_is_stopped_first_and_who_tells_people_last() -> None:
    names = ["chamberlain", "envoy", "gen-b", "gen-a", "king", "sentinel"]
    assert sorted(names, key=lambda name: (stop_order(name), name)) == [
        "sentinel",
        "king",
        "gen-a",
        "gen-b",
        "envoy",
        "chamberlain",
    ]


def test_what_is_said_is_one_plain_line_of_bounded_length() -> None:
    stream = io.StringIO()
    ConsoleWriter(stream)("king", "a\nb\x1b[2J\u202e" + "x" * 1000)
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    assert "\u202e" not in stream.getvalue()
    assert len(stream.getvalue()) < 500


def test_nobody_listening_is_no_reason_to_fail() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    ConsoleWriter(stream)("king", "hello")
    with pytest.raises(BrokenPipeError):
        stream.close()
