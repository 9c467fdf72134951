"""``kingdom join --standby``: another machine takes over when the one that leads is gone, as a person sees it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.home import Home
from kingdom.court.machines.own_lead import read_lead
from tests.support.command import kingdom
from tests.support.courts import WORKER, Court, until

pytestmark = [pytest.mark.postgres, pytest.mark.walk, pytest.mark.timeout(300)]
QUESTION = {"status": "needs_human", "question": {"text": "Release it?", "choices": ["yes", "no"]}}


class _ThreeMachines:
    """One leads, one stands by, one runs the generals."""

    def __init__(self, folder: Path, url: str) -> None:
        self.seat, self.spare, self.builder = (Court(folder / name) for name in ("seat", "spare", "builder"))
        done = kingdom("init", str(self.seat.root), "--database", url, "--machine", "seat", "--general", "gen-briefing")
        assert done.returncode == 0, done.stderr
        settings = self.seat.root / "config" / "machine.yaml"
        settings.write_text(settings.read_text() + "generals: []\n")
        worker = folder / "worker.py"
        worker.write_text(WORKER)
        argv = [os.environ.get("PYTHON", "python3"), str(worker)]
        self.seat.install("gen-test", engine={"name": "command", "options": {"argv": argv}})
        self._url = url

    def join(self) -> None:
        """Add the other two, while the first one is up."""
        for court, options in ((self.spare, ["--standby"]), (self.builder, ["--generals", "gen-test"])):
            joined = ["join", self._url, "--name", court.root.name, "--dir", str(court.root), *options]
            done = until(lambda joined=joined: (done := kingdom(*joined)).returncode == 0 and done, "the packages")
            assert f"{court.root.name} is a machine of the court now" in done.stdout

    @staticmethod
    def duties(court: Court) -> dict[str, tuple[str, bool]]:
        """What each machine does: whether it leads, and whether it is seen."""
        found = court.ask("machines", "ls")["machines"]
        return {one["name"]: (one["state"], one["leads"]) for one in found}


@pytest.fixture
def machines(tmp_path: Path, postgres_url: str) -> _ThreeMachines:
    made = _ThreeMachines(tmp_path, postgres_url)
    with made.seat.up():
        made.seat.wait_for_roles("king", "link")
        made.join()
    return made


def _die(court: Court) -> None:
    """End all processes of a machine at once, as a power cut does."""
    record = json.loads((court.root / "state/supervisor/pid.json").read_text())
    for pid in (record["pid"], *court.pids().values()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _leads(court: Court) -> bool:
    lead = read_lead(Home(court.root))
    return lead is not None and lead.leading and "king" in court.pids()


def _stands_by(court: Court) -> bool:
    """It has all files: the home has the settings of the machine that leads."""
    lead = read_lead(Home(court.root))
    return lead is not None and not lead.leading and (court.root / "state/king/.book").exists()


def _done(court: Court, event_id: str) -> Any:
    story = court.call("trace", event_id, "--json")
    return story.returncode == 0 and "task.completed" in story.stdout and json.loads(story.stdout)


def test_a_machine_that_stands_by_takes_over_and_the_court_goes_on(machines: _ThreeMachines) -> None:
    seat, spare, builder = machines.seat, machines.spare, machines.builder
    with contextlib.ExitStack() as up:
        up.enter_context(seat.up())
        until(lambda: _leads(seat), "seat leads")
        up.enter_context(spare.up())  # not before: it may lead as well as the other
        up.enter_context(builder.up())
        until(lambda: _stands_by(spare), "spare has the files")
        assert set(spare.pids()) == {"link"}
        assert [one["name"] for one in spare.ask("status")["roles"]] == ["link"]
        until(lambda: "seat leads the court; this machine stands by" in spare.said, "a word about it")
        assert "error" not in {one["level"] for one in spare.ask("doctor")["checks"] if one["name"] != "engine claude"}
        refused = spare.run("backup", str(spare.root.parent / "court.tar.gz"))
        assert "seat leads the court, and this machine has a copy of its files: do it there" in refused.stderr
        first = seat.emit()
        until(lambda: _done(seat, first), "the first task")
        asking = seat.emit({"result": QUESTION})
        question = until(lambda: seat.ask("status")["questions"], "the question")
        assert until(lambda: spare.ask("status")["questions"], "it is shown where it stands by, too") == question
        _die(seat)
        until(lambda: _leads(spare), "spare takes over")
        until(lambda: machines.duties(spare).get("spare") == ("active", True), "it says so")
        assert _done(spare, first)  # what was done before is known here
        open_questions = until(lambda: spare.ask("status")["questions"], "the question is still open")
        assert [one["task_id"] for one in open_questions] == [one["task_id"] for one in question]
        assert spare.run("answer", open_questions[0]["task_id"], "yes").returncode == 0
        until(lambda: _done(spare, asking), "the answer")
        second = spare.emit()
        until(lambda: _done(spare, second), "a task of the new king")
    created = Counter(
        line["data"]["task_id"]
        for line in map(json.loads, (spare.root / "logs/events.log").read_text().splitlines())
        if line["type"] == "task.created"
    )
    assert set(created.values()) == {1}
    assert len(created) == 4  # with the task that continues after the answer


def test_a_former_leader_stands_by_when_it_comes_back_and_takes_over_again(machines: _ThreeMachines) -> None:
    seat, spare, builder = machines.seat, machines.spare, machines.builder
    with contextlib.ExitStack() as up:
        up.enter_context(builder.up())
        with seat.up():
            until(lambda: _leads(seat), "seat leads")
            up.enter_context(spare.up())
            until(lambda: _stands_by(spare), "spare has the files")
            _die(seat)
            until(lambda: _leads(spare), "spare takes over")
        first = spare.emit()
        until(lambda: _done(spare, first), "a task while seat is away")
        with seat.up():
            until(lambda: _stands_by(seat), "seat stands by")
            until(lambda: _done(seat, first), "it has what was done meanwhile")
            assert set(seat.pids()) == {"link"}
            done = spare.run("down")  # hands the lead over at once
            assert done.stdout == "this machine is down; the court goes on at seat, builder (kingdom machines)\n"
            until(lambda: _leads(seat), "seat leads again")
            second = seat.emit()
            until(lambda: _done(seat, second), "a task after that")
            assert (seat.root / "config/machine.yaml").read_text().count("name: seat") == 1
