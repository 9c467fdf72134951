"""``kingdom up`` and ``down``: a court in real processes, from the first event to the last sign of life."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.command import COMMAND, environment
from tests.support.courts import PATIENCE, Court, gone, until

ROLES = ("king", "envoy", "gen-test")


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("courts") / "founded"
    Court(root).make()
    return root


@pytest.fixture
def court(founded: Path, tmp_path: Path) -> Court:
    root = tmp_path / "home"
    shutil.copytree(founded, root)
    court = Court(root)
    court.install("gen-test")
    return court


@pytest.mark.parametrize("options", [(), ("--inline",)], ids=["processes", "inline"])
def test_an_event_becomes_a_task_is_done_and_everybody_tells_the_same_story(
    court: Court, options: tuple[str, ...]
) -> None:
    with court.up(*options):
        event_id = court.emit({"number": 7})
        assert court.wait_completed(event_id)["status"] == "completed"
        task = court.task_of(event_id, "completed")
        until(lambda: "all is well" in court.console, "the report on the console")

        status = court.ask("status")
        assert status["running"] is True
        running = {role["name"] for role in status["roles"] if role["state"] == "running"}
        assert running >= set(ROLES)
        assert all(sum(queue["counts"].values()) == 0 for queue in status["queues"])

    story = court.ask("trace", event_id)["story"]
    assert story == sorted(story, key=lambda line: line["ts"][:19])  # the journal tells seconds only
    told = [line["what"] for line in story]
    steps = ("event.detected", "task.created", "task.started", "soldier.spawned", "task.completed")
    places = [next(number for number, line in enumerate(told) if line.startswith(step)) for step in steps]
    assert places == sorted(places)
    sent = [number for number, line in enumerate(told) if line.startswith("message.sent")]
    assert sent[0] > places[0], "that it begins"
    # The envoy may send the last message before the general writes task.completed: both follow the same transaction.
    assert sent[-1] > max(number for number, line in enumerate(told) if line.startswith("soldier.")), "how it ended"
    assert court.ask("trace", task["id"])["story"] == story

    shown = court.ask("task", "show", task["id"])
    assert shown["result"]["summary"] == "all is well"
    assert [soldier["alive"] for soldier in shown["soldiers"]] == [False]
    lines = court.run("task", "show", task["id"]).stdout.splitlines()
    assert lines[0] == f"{task['type']}: completed", "what it is about, and what came of it, come first"
    assert lines[2].split(maxsplit=1) == ["result", "all is well"]
    assert lines[-1].split("  ")[0] == f"kingdom task retry {task['id']}", "what can be done comes last"
    assert f"working on {task['id']}" in court.run("task", "transcript", task["id"]).stdout
    watched = court.run("task", "attach", task["id"]).stdout
    assert f"working on {task['id']}" in watched
    assert watched.endswith(f"# {task['id']}: success. all is well\n")
    journal = [json.loads(line)["type"] for line in (court.root / "logs/events.log").read_text().splitlines()]
    assert journal.count("system.startup") == 1
    assert journal[-1] == "system.shutdown"


def test_a_role_that_is_killed_comes_back_and_its_work_goes_on(court: Court) -> None:
    with court.up():
        before = court.wait_for_roles(*ROLES)
        release = court.root / "release"
        event_id = court.emit({"until": str(release)})
        court.soldier_at_work()
        for name in ROLES:
            os.kill(before[name], signal.SIGKILL)
        until(lambda: all(court.pids().get(name) not in (None, before[name]) for name in ROLES), "other processes")
        court.wait_for_roles(*ROLES)
        release.touch()
        court.wait_completed(event_id)
        court.task_of(event_id, "completed")
    assert "killed by SIGKILL" in court.said
    assert len(list((court.root / "logs/sessions").glob("*.json"))) == 1, "the soldier was adopted, not replaced"


def test_down_stops_everything_and_leaves_running_soldiers_to_be_adopted(court: Court) -> None:
    release = court.root / "release"
    with court.up() as supervisor:
        pids = court.wait_for_roles(*ROLES)
        event_id = court.emit({"until": str(release)})
        soldier = court.soldier_at_work()
        done = court.run("down")
        assert done.returncode == 0, done.stderr
        assert supervisor.wait(timeout=PATIENCE) == 0
        assert all(gone(pid) for pid in pids.values())
        assert soldier["run_id"] in done.stdout
        assert not gone(soldier["pid"])
    status = court.ask("status")
    assert status["running"] is False
    assert [one["id"] for one in status["soldiers"]] == [soldier["run_id"]]
    with court.up():
        release.touch()
        court.wait_completed(event_id)
    assert court.run("down").stdout == "the court was not up\n"


def test_down_can_end_the_soldiers_too(court: Court) -> None:
    with court.up():
        court.emit({"until": str(court.root / "never")})
        soldier = court.soldier_at_work()
        document = court.ask("down", "--soldiers")
        assert document == {"was_up": True, "soldiers": []}
        assert gone(soldier["pid"])


def test_generals_come_change_and_go_while_the_court_is_up(court: Court) -> None:
    with court.up():
        first = court.wait_for_roles(*ROLES)
        court.install("gen-other")
        court.wait_for_roles("gen-other")
        court.wait_completed(court.emit(kind="other.work"))

        court.install("gen-test", concurrency=2)
        until(lambda: court.pids().get("gen-test") not in (None, first["gen-test"]), "gen-test started anew")

        (court.root / "config/generals/gen-other/manifest.yaml").write_text("name: [")
        until(lambda: "manifest.yaml:1" in court.said, "a word about the broken manifest")
        assert "gen-other" in court.pids(), "a general that is being edited goes on"

        assert court.run("general", "remove", "gen-other", "--yes").returncode == 0
        until(lambda: "gen-other" not in court.pids(), "gen-other stopped")
        assert court.pids()["king"] == first["king"]


def test_up_a_second_time_is_refused_and_changes_nothing(court: Court) -> None:
    with court.up("--roles", "envoy") as supervisor:
        court.wait_for_roles("envoy")
        second = court.run("up")
        assert second.returncode == 1
        assert second.stderr.startswith("error: the court in")
        assert f"pid {supervisor.pid}" in second.stderr
        assert supervisor.poll() is None
        alone = court.run("role", "envoy")
        assert (alone.returncode, alone.stdout) == (1, "")
        assert "envoy is already running" in alone.stderr


def test_a_daemon_returns_when_it_is_up_and_goes_on_until_down(court: Court) -> None:
    started = court.run("up", "--daemon", "--roles", "envoy,king")
    assert started.returncode == 0, started.stderr
    pids = court.wait_for_roles("envoy", "king")
    assert set(pids) == {"envoy", "king"}
    assert court.run("up", "--daemon").returncode == 1
    assert court.run("down").stdout == "the court is down\n"
    assert all(gone(pid) for pid in pids.values())
    assert "started (pid" in (court.root / "logs/supervisor.log").read_text()
    logged = (court.root / "logs/system.log").read_text().splitlines()
    begun = sorted(line.split()[1:3] for line in logged if "started (pid" in line)
    assert begun == [["envoy", "INFO"], ["king", "INFO"]]


def test_a_daemon_that_cannot_start_says_why(court: Court) -> None:
    done = court.run("up", "--daemon", "--roles", "gen-nobody")
    assert done.returncode == 1
    assert "no role 'gen-nobody' here" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_when_the_supervisor_is_killed_its_roles_stop_and_the_next_one_starts(court: Court) -> None:
    with court.up() as supervisor:
        pids = court.wait_for_roles(*ROLES)
        supervisor.kill()
        until(lambda: all(gone(pid) for pid in pids.values()), "the end of the roles")
    with court.up():
        assert court.wait_for_roles(*ROLES).keys() >= pids.keys()


def test_ctrl_c_stops_the_court_in_order(court: Court) -> None:
    with court.up() as supervisor:
        court.wait_for_roles(*ROLES)
        os.killpg(supervisor.pid, signal.SIGINT)
        assert supervisor.wait(timeout=PATIENCE) == 0
    lines = [line.split()[1] for line in court.said.splitlines() if line.endswith("stopped")]
    assert [name for name in lines if name in ROLES] == ["king", "gen-test", "envoy"]


def test_a_role_runs_alone_until_it_is_asked_to_stop(court: Court) -> None:
    with subprocess.Popen(
        [*COMMAND, "role", "envoy"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(KINGDOM_HOME=str(court.root)),
    ) as process:
        until(lambda: court.heartbeat("envoy").get("pid") == process.pid, "a sign of life")
        roles = {role["name"]: role for role in court.ask("status")["roles"]}
        assert (roles["envoy"]["state"], roles["envoy"]["pid"]) == ("running", process.pid)
        process.terminate()
        assert process.communicate(timeout=PATIENCE) == ("", "")
    assert process.returncode == 0
