"""``kingdom init --database``, ``join``, ``machines``, ``leave``: as a person types them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.home import Home
from kingdom.court.machines.listing import Machine, save_machines
from kingdom.court.machines.registry import Registry
from tests.support.command import kingdom
from tests.support.courts import Court, until

ASKING = {
    "name": "scripted",
    "options": {"script": [{"result": {"status": "needs_human", "question": {"text": "Release it?"}}}]},
}
pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]


def _machines(home: Path) -> dict[str, dict[str, Any]]:
    done = kingdom("machines", "--json", KINGDOM_HOME=str(home))
    assert done.returncode == 0, done.stderr
    return {one["name"]: one for one in json.loads(done.stdout)["machines"]}


def test_a_machine_joins_works_for_the_court_and_leaves(tmp_path: Path, postgres_url: str) -> None:
    seat, builder = Court(tmp_path / "seat"), Court(tmp_path / "builder")
    done = kingdom("init", str(seat.root), "--database", postgres_url, "--machine", "seat", "--general", "gen-briefing")
    assert done.returncode == 0, done.stderr
    assert "kingdom join" in done.stdout
    settings = seat.root / "config" / "machine.yaml"
    settings.write_text(settings.read_text().replace("name: seat\n", "name: seat\ngenerals: []\n"))
    (seat.root / "worker.py").write_text("")
    scripted = {"name": "scripted", "options": {"script": [{"result": {"status": "success", "summary": "it is done"}}]}}
    seat.install("gen-test", engine=scripted)
    assert "engine claude" not in seat.run("doctor").stdout  # gen-briefing needs it, and runs elsewhere
    with seat.up():
        seat.wait_for_roles("king", "link")
        done = kingdom("join", postgres_url, "--name", "builder-2", "--dir", str(builder.root), "--soldiers", "2")
        assert done.returncode == 0, done.stderr
        assert "builder-2 is a machine of the court now" in done.stdout
        with builder.up():
            builder.wait_for_roles("link", "gen-test")
            assert set(builder.pids()) == {"link", "gen-test", "gen-briefing"}
            done = seat.run("emit", "test.work", "--wait")
            assert done.returncode == 0, done.stderr
            assert "success. it is done" in done.stdout
            task_id = done.stdout.split()[1].rstrip(":")
            assert "gen-test with scripted scripted on builder-2" in seat.run("task", "show", task_id).stdout
            known = until(lambda: (found := _machines(seat.root))["builder-2"].get("generals") and found, "a report")
            assert (known["seat"]["generals"], known["seat"]["state"]) == ([], "active")
            assert (known["builder-2"]["generals"], known["builder-2"]["slots"]) == (["gen-briefing", "gen-test"], 2)
            done = builder.run("down")
            assert done.stdout == "this machine is down; the court goes on at seat (kingdom machines)\n"
            assert _machines(seat.root)["builder-2"]["state"] == "stopped"
        with builder.up():
            builder.wait_for_roles("link", "gen-test")
            table = seat.run("machines").stdout
            assert "seat (here)" in table
            assert "0 of 2" in table
            shown = until(lambda: len((found := seat.ask("status"))["machines"]) == 2 and found, "both machines")
            assert [(one["name"], one["here"]) for one in shown["machines"]] == [("seat", True), ("builder-2", False)]
            assert "seat (here)" in (said := seat.run("status").stdout)
            assert "leads the court" not in said
            said = until(
                lambda: "leads the court: no" in (found := builder.run("status").stdout) and found, "the court"
            )
            assert "seat leads the court: no open questions, no alerts" in said
            assert "Nothing needs a person" not in said
            seat.install("gen-asks", engine=ASKING)
            seat.emit(kind="asks.work")
            question = "seat leads the court: 1 open question; its status shows it"
            until(lambda: question in builder.run("status").stdout, "the question, without its text")
            assert "Release it?" not in builder.run("status", "--json").stdout
            done = builder.run("leave")
            assert done.stdout.startswith("builder-2 has left the court")
            assert "builder-2" not in _machines(seat.root)
            assert builder.pids() == {}
        assert "it has left the court: kingdom join makes it" in builder.run("status").stdout
        done = builder.run("up")
        assert (
            done.stderr == "error: builder-2 has left the court: kingdom join makes it a machine of the court again\n"
        )
        done = kingdom("join", postgres_url, "--name", "builder-2", "--dir", str(builder.root))
        assert done.returncode == 0, done.stderr
        with builder.up():
            builder.wait_for_roles("link", "gen-test")
            assert builder.run("leave").returncode == 0
        done = kingdom("join", postgres_url, "--name", "builder-2", "--dir", str(tmp_path / "again"))
        assert done.returncode == 0, done.stderr  # the name is free
    assert _machines(seat.root)["seat"]["state"] == "stopped"
    assert "Usage: kingdom machines" in seat.run("machines", "-h").stdout
    assert "Did you mean 'remove'?" in seat.run("machines", "remov").stderr


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({}, "the court was not up"),
        (
            {"builder": True},
            "this machine was not up; new events wait until one leads again (kingdom up); still up: builder",
        ),
        (
            {"builder": True, "spare": False},
            "this machine was not up; the court goes on at builder, spare (kingdom machines)",
        ),
    ],
)
def test_who_stops_a_machine_learns_what_goes_on(
    others: dict[str, bool], said: str, tmp_path: Path, postgres_url: str
) -> None:
    seat = Court(tmp_path / "seat")
    assert kingdom("init", str(seat.root), "--database", postgres_url, "--machine", "seat").returncode == 0
    machines = [Machine(name, joined, None, 1.0, 0.0, "active") for name, joined in others.items()]
    save_machines(Home(seat.root), machines, time.time())
    assert seat.run("down").stdout == f"{said}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["join"], "give the URL of the database, or --database-env NAME for one with a password"),
        (
            ["join", "{url}", "--name", "Builder 2"],
            "--name 'Builder 2': small letters, digits and -, such as builder-2",
        ),
        (["join", "{url}", "--labels", "gpu,Big Disk"], "--labels 'Big Disk': small letters, digits and -"),
        (["join", "{url}", "--standby", "--generals", "gen-x"], "--standby runs no generals"),
        (["join", "sqlite:///x.db"], "is not a PostgreSQL: postgresql://host/database"),
        (["join", "postgresql://me:secret@db.example/court"], "put the URL into an environment variable"),
        (["join", "--database-env", "NO_SUCH_NAME"], "the environment variable NO_SUCH_NAME is not set"),
        (["join", "postgresql://127.0.0.1:1/court"], "cannot connect to postgresql://127.0.0.1:1/court"),
        (["join", "{url}"], "the database has no court yet: run kingdom init --database on its first machine"),
        (["init", "x", "--machine", "seat"], "--machine needs --database"),
    ],
)
def test_what_cannot_be_joined_is_said_and_nothing_is_created(
    tmp_path: Path, postgres_url: str, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = kingdom(*(one.replace("{url}", postgres_url) for one in arguments))
    assert done.returncode != 0
    assert said in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_court_on_one_machine_has_no_machines(tmp_path: Path) -> None:
    court = Court(tmp_path / "court")
    court.make()
    for command in (["machines", "ls"], ["leave"], ["machines", "remove", "x", "--yes"]):
        done = court.run(*command)
        assert done.returncode == 1
        assert "is on one machine: kingdom init --database creates one for several" in done.stderr


def test_a_machine_that_could_not_join_gets_no_role(tmp_path: Path, postgres_url: str) -> None:
    court, builder = Court(tmp_path / "court"), tmp_path / "builder"
    assert kingdom("init", str(court.root), "--database", postgres_url, "--machine", "seat").returncode == 0
    for name, duty in (("seat", "stands by to lead"), ("spare", "stands by to lead")):
        if name == "spare":
            done = kingdom("join", postgres_url, "--name", name, "--standby", "--dir", str(tmp_path / name))
            assert done.returncode == 0, done.stderr
        done = court.run("machines", "add", name)
        assert done.returncode == 1
        assert f"error: {name} {duty} the court with the court's own role: choose another name" in done.stderr
        assert done.stdout == ""
    first = court.run("machines", "add", "builder")
    assert "kingdom join --database-env KINGDOM_DATABASE --name builder" in first.stdout
    assert kingdom("join", postgres_url, "--name", "builder", "--dir", str(builder)).returncode == 0
    again = court.run("machines", "add", "builder")  # for other generals, or another password
    assert again.returncode == 0
    assert "kingdom join" not in again.stdout
    assert "kingdom down && kingdom up      it is in the court already" in again.stdout
    assert "its former password is not valid any more" in again.stdout
    assert court.run("machines", "remove", "builder", "--yes").returncode == 0
    done = court.run("machines", "add", "builder")
    assert "builder was removed from the court: kingdom machines remove builder --forget frees its name" in done.stderr
    assert court.run("machines", "remove", "builder", "--forget", "--yes").returncode == 0
    assert "kingdom join" in court.run("machines", "add", "builder").stdout
    assert court.run("machines", "remove", "builder", "--yes").returncode == 0  # its role of the server


def test_who_stops_a_machine_that_was_cut_off_learns_that_nothing_is_known_of_the_others(
    tmp_path: Path, postgres_url: str
) -> None:
    seat = Court(tmp_path / "seat")
    assert kingdom("init", str(seat.root), "--database", postgres_url, "--machine", "seat").returncode == 0
    others = [
        Machine("spare", False, None, 100.0, 0.0, "active"),
        Machine("builder", True, None, 100.0, 0.0, "active", {"stopped": True}),
    ]
    save_machines(Home(seat.root), others, time.time())
    assert seat.run("down").stdout == "this machine was not up; nothing was heard of spare lately\n"


def test_the_first_machine_cannot_leave_and_an_unknown_one_cannot_be_removed(tmp_path: Path, postgres_url: str) -> None:
    court = Court(tmp_path / "court")
    assert kingdom("init", str(court.root), "--database", postgres_url, "--machine", "seat").returncode == 0
    assert "seat leads the court, and no other machine stands by" in court.run("leave").stderr
    asyncio.run(Registry(postgres_url).sign("spare", joined=False, report={"stopped": True}))  # it is down
    assert "seat leads the court, and no other machine stands by" in court.run("leave").stderr
    assert court.run("machines", "remove", "spare", "--yes").returncode == 0
    assert "the court has no machine 'x'" in court.run("machines", "remove", "x", "--yes").stderr
    assert "seat is this machine: kingdom leave" in court.run("machines", "remove", "seat", "--yes").stderr
    done = kingdom("init", str(tmp_path / "other"), "--database", postgres_url)
    assert "the database has a court already, whose first machine is seat" in done.stderr


@pytest.mark.walk
def test_a_machine_joins_with_a_role_of_its_own_and_is_shut_out(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seat, builder = Court(tmp_path / "seat"), Court(tmp_path / "builder")
    done = kingdom("init", str(seat.root), "--database", postgres_url, "--machine", "seat")
    assert done.returncode == 0, done.stderr
    settings = seat.root / "config" / "machine.yaml"
    settings.write_text(settings.read_text().replace("name: seat\n", "name: seat\ngenerals: []\n"))
    scripted = {"name": "scripted", "options": {"script": [{"result": {"status": "success", "summary": "it is done"}}]}}
    seat.install("gen-test", engine=scripted)
    with seat.up():
        seat.wait_for_roles("king", "link")
        until(lambda: seat.run("machines", "add", "builder-2", "--generals", "gen-test").returncode == 0, "the package")
        done = seat.run("machines", "add", "builder-2", "--generals", "gen-test")
        assert "builder-2 may run gen-test. On that machine:" in done.stdout
        (line,) = [line for line in done.stdout.splitlines() if "export KINGDOM_DATABASE=" in line]
        url = line.partition("=")[2].strip("'")
        monkeypatch.setenv("KINGDOM_DATABASE", url)
        join = ("join", "--database-env", "KINGDOM_DATABASE", "--dir", str(builder.root))
        done = kingdom(*join, "--name", "builder-3")
        assert "is that of builder-2: join with --name builder-2" in done.stderr
        done = kingdom(*join, "--name", "builder-2")
        assert done.returncode == 0, done.stderr
        assert "generals: gen-test\n" in done.stdout
        with builder.up():
            builder.wait_for_roles("link", "gen-test")
            done = seat.run("emit", "test.work", "--wait")
            assert "success. it is done" in done.stdout, done.stderr
            assert "builder-2" in builder.run("machines", "ls").stdout
            for command in (["machines", "add", "x"], ["machines", "remove", "seat", "--yes"]):
                done = builder.run(*command)
                assert "builder-2 runs generals only: run this on the machine that leads" in done.stderr
            done = seat.run("machines", "remove", "builder-2", "--yes")
            assert done.returncode == 0, done.stderr
            assert "cannot connect to" in builder.run("status").stdout
        done = builder.run("machines", "ls")
        assert done.returncode == 1
        assert "if they are those of kingdom machines add, the machine was removed" in done.stderr
        assert url.partition("//")[2].partition("@")[0] not in done.stderr
