"""``kingdom move-to``: a court that has grown goes on in a database, with all that it has; and comes back from it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from kingdom.court.home import Home
from kingdom.court.machines import migration
from kingdom.court.queues import STREAMS, document_from_record, documents_in_files, open_queues
from tests.support.command import kingdom
from tests.support.courts import Court, until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]
QUESTION = {"status": "needs_human", "question": {"text": "Which branch?", "choices": ["main", "next"]}}


@pytest.fixture
def court(tmp_path: Path) -> Court:
    court = Court(tmp_path / "court")
    court.make()
    return court


def _documents(court: Court) -> dict[str, Counter[str]]:
    return {stream: Counter(one.state for one in documents_in_files(Home(court.root), stream)) for stream in STREAMS}


def _moved(url: str) -> dict[str, dict[str, str]]:
    """The documents in the database: their states, by queue and id."""

    async def read() -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        async with open_queues(url) as bus:
            for stream in STREAMS:
                stored = [document_from_record(record) async for record in bus.records(stream)]
                found[stream] = {one.id: one.state for one in stored}
        return found

    return asyncio.run(read())


def test_a_court_moves_with_its_history_its_questions_and_what_waits(court: Court, postgres_url: str) -> None:
    with court.up():
        finished, failed = court.emit(), court.emit({"result": {"status": "failed", "error": "no"}})
        asking = court.emit({"result": QUESTION})
        court.wait_completed(finished)
        court.wait_completed(failed)
        (question,) = until(lambda: court.ask("status")["questions"], "the question")
    waiting = court.emit()
    task_id = court.task_of(finished)["id"]
    documents = {
        stream: {one.id: one.document["status"] for one in documents_in_files(Home(court.root), stream)}
        for stream in STREAMS
    }

    done = court.run("move-to", postgres_url, "--machine", "seat", "--yes")
    assert done.returncode == 0, done.stderr
    assert "the queues are in the database now: 4 events, 3 tasks" in done.stdout
    assert (court.root / "queue.moved/events/completed").is_dir()
    assert not (court.root / "queue").exists()
    assert court.ask("task", "show", task_id)["result"]["status"] == "success"
    assert _moved(postgres_url) == documents
    assert (documents["events"][waiting], documents["events"][asking]) == ("pending", "dispatched")

    with court.up():
        court.wait_for_roles("king", "gen-test")
        until(lambda: _moved(postgres_url)["events"][waiting] == "completed", "what waited")
        assert [one["task_id"] for one in court.ask("status")["questions"]] == [question["task_id"]]
        assert court.run("answer", question["task_id"], "next").returncode == 0
        until(lambda: _moved(postgres_url)["events"][asking] == "completed", "the answer")
        assert "the answer was next" in json.dumps(court.ask("trace", asking))
        assert [one["name"] for one in court.ask("machines", "ls")["machines"]] == ["seat"]
    lines = [json.loads(line) for line in court.journal.splitlines()]
    created = Counter(line["data"]["task_id"] for line in lines if line["type"] == "task.created")
    assert set(created.values()) == {1}


def test_a_move_that_is_interrupted_is_repeated(
    court: Court, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with court.up():
        events = [court.emit() for _ in range(7)]
        for event_id in events:
            court.wait_completed(event_id)
    documents = _documents(court)
    monkeypatch.setattr(migration, "_BATCH", 3)
    copied = 0
    real = migration._copy

    async def copy_some(*given: Any) -> tuple[int, int]:
        nonlocal copied
        copied += 1
        if copied == 3:
            raise OSError("the machine went down")
        return await real(*given)

    monkeypatch.setattr(migration, "_copy", copy_some)
    assert court.call("move-to", postgres_url, "--machine", "seat", "--yes").returncode != 0
    assert _documents(court) == documents
    assert not (court.root / "config/machine.yaml").exists()
    assert court.call("move-to", postgres_url, "--machine", "seat", "--yes").returncode == 0
    assert _moved(postgres_url)["events"] == dict.fromkeys(events, "completed")


def test_what_cannot_be_moved_is_said_and_stays(court: Court, postgres_url: str) -> None:
    other = Court(court.root.parent / "other")
    other.make()
    with court.up():
        court.wait_for_roles("king")
        done = court.run("move-to", postgres_url, "--yes")
        assert (done.returncode, "the court is up: kingdom down --soldiers" in done.stderr) == (1, True)
    assert court.run("move-to", postgres_url, "--machine", "seat", "--yes").returncode == 0
    assert "are in a database already" in court.run("move-to", postgres_url, "--yes").stderr
    done = other.run("move-to", postgres_url, "--machine", "b", "--yes")
    assert "the database has a court already, with the machine seat" in done.stderr
    assert (other.root / "queue/events").is_dir()
    assert "Traceback" not in done.stderr


# ── and back ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.walk
def test_a_court_comes_back_with_all_that_it_has_done_there(court: Court, postgres_url: str) -> None:
    with court.up():
        before = court.emit()
        court.wait_completed(before)
    assert court.run("move-to", postgres_url, "--machine", "seat", "--yes").returncode == 0
    with court.up():
        court.wait_for_roles("king", "gen-test")
        there, asking = court.emit(), court.emit({"result": QUESTION})
        until(lambda: _moved(postgres_url)["events"].get(there) == "completed", "what was done there")
        (question,) = until(lambda: court.ask("status")["questions"], "the question")
        assert court.run("machines", "add", "builder").returncode == 0  # it never joins
    waiting = court.emit()
    states = _moved(postgres_url)

    done = court.run("move-to", "files", "--yes")
    assert done.returncode == 0, done.stderr
    assert "the queues are files of the home again: 4 events, 3 tasks" in done.stdout
    assert not (court.root / "config/machine.yaml").exists()
    documents = {
        stream: {one.id: one.document["status"] for one in documents_in_files(Home(court.root), stream)}
        for stream in STREAMS
    }
    assert documents == states
    assert (states["events"][waiting], states["events"][asking]) == ("pending", "dispatched")
    assert _moved(postgres_url) == {stream: {} for stream in STREAMS}
    with court.up():
        court.wait_completed(waiting)
        assert court.run("answer", question["task_id"], "next").returncode == 0
        court.wait_completed(asking)
    lines = [json.loads(line) for line in court.journal.splitlines()]
    created = Counter(line["data"]["task_id"] for line in lines if line["type"] == "task.created")
    assert set(created.values()) == {1}

    assert court.run("move-to", postgres_url, "--machine", "seat", "--yes").returncode == 0  # and there again
    assert set(_moved(postgres_url)["events"].values()) == {"completed"}


@pytest.mark.walk
def test_a_move_back_that_is_interrupted_is_repeated(
    court: Court, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with court.up():
        events = [court.emit() for _ in range(4)]
        for event_id in events:
            court.wait_completed(event_id)
    assert court.call("move-to", postgres_url, "--machine", "seat", "--yes").returncode == 0
    states = _moved(postgres_url)
    monkeypatch.setattr(migration, "_BATCH", 3)
    real, calls = migration._copy, iter(range(100))

    async def copy_some(*given: Any) -> tuple[int, int]:
        if next(calls) == 2:
            raise OSError("the machine went down")
        return await real(*given)

    monkeypatch.setattr(migration, "_copy", copy_some)
    assert court.call("move-to", "files", "--yes").returncode != 0
    assert (court.root / "config/machine.yaml").exists()
    assert _moved(postgres_url) == states
    assert court.call("move-to", "files", "--yes").returncode == 0
    assert _documents(court) == {stream: Counter(states[stream].values()) for stream in STREAMS}


def test_a_court_that_began_in_a_database_can_leave_it(tmp_path: Path, postgres_url: str) -> None:
    court = Court(tmp_path / "court")
    assert kingdom("init", str(court.root), "--database", postgres_url, "--machine", "seat").returncode == 0
    done = court.run("move-to", "files", "--yes")
    assert done.returncode == 0, done.stderr
    assert "transport" not in yaml.safe_load((court.root / "config/system.yaml").read_text()).get("queue", {})
    assert court.run("status").returncode == 0
    assert "are files of the home already" in court.run("move-to", "files", "--yes").stderr


def test_what_cannot_come_back_is_said_and_stays(court: Court, postgres_url: str, tmp_path: Path) -> None:
    assert court.run("move-to", postgres_url, "--machine", "seat", "--yes").returncode == 0
    with court.up():
        court.wait_for_roles("king", "link")
        assert "the court is up: kingdom down --soldiers" in court.run("move-to", "files", "--yes").stderr
    done = kingdom("join", postgres_url, "--name", "builder-2", "--dir", str(tmp_path / "builder"))
    assert done.returncode == 0, done.stderr
    done = court.run("move-to", "files", "--yes")
    assert "builder-2 is a machine of the court: kingdom leave there, or kingdom machines remove" in done.stderr
    assert (court.root / "config/machine.yaml").exists()
    assert court.run("machines", "remove", "builder-2", "--yes").returncode == 0
    assert court.run("move-to", "files", "--yes").returncode == 0


def test_a_database_with_documents_of_another_court_is_refused(court: Court, postgres_url: str) -> None:
    other = Court(court.root.parent / "other")
    assert kingdom("init", str(other.root), "--database", postgres_url, "--machine", "seat").returncode == 0
    stray = other.emit()
    done = court.run("move-to", postgres_url, "--machine", "seat", "--yes")
    assert f"{stray} waits in the database, and is not of this court" in done.stderr
