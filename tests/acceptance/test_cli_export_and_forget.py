"""``kingdom export`` and ``kingdom forget``: all that is known about a person or a repository comes out, and goes."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.home import MARKER, Home
from kingdom.court.rollups.reading import journal_position
from kingdom.journal import Cursor, Reader
from kingdom.web.security.roles import OWNER, Person
from kingdom.web.security.sessions import SessionStore
from kingdom.web.security.tokens import TokenStore
from tests.support import erasure_victim
from tests.support.command import environment, kingdom
from tests.support.courts import Court, until
from tests.support.forking import fate

ANN = "ann-lee"
NOTE = "Ann-Lee likes tabs, bob likes spaces, ann-leeward is a wind.\n"


def told(court: Court, event_id: str) -> dict[str, Any] | None:
    tasks = court.ask("task", "ls")["tasks"]
    found = [
        task for task in tasks if task["event_id"] == event_id and task["status"] not in ("pending", "in_progress")
    ]
    return found[0] if found else None


def unfinished(court: Court) -> bool:
    counts = [one["counts"] for one in court.ask("status")["queues"]]
    return any(one.get(state) for one in counts for state in ("pending", "dispatched", "in_progress"))


@contextlib.contextmanager
def lived(court: Court) -> Iterator[dict[str, str]]:
    """A court in which ann and bob had work done; ann was asked, and answered. It is up in the block."""
    court.install("gen-test", concurrency=3)
    (court.root / "config/generals/gen-test/prompt.md").write_text("Do this:\n{{ data }}\n")
    (court.root / "memory/generals/gen-test").mkdir(parents=True, exist_ok=True)
    (court.root / "memory/generals/gen-test/notes.md").write_text(NOTE)
    with court.up():
        done = {"status": "success", "summary": f"done for {ANN}"}
        ids = {"ann": court.emit({"author": {"login": ANN}, "result": done})}
        ids["bob"] = court.emit({"author": {"login": "bob"}, "title": "a bug in acme/till", "pr_number": 7})
        asks = {"status": "needs_human", "summary": "?", "question": {"text": f"may {ANN} do that?"}}
        ids["asked"] = court.emit({"result": asks})
        question = until(lambda: told(court, ids["asked"]), "the question")
        assert court.run("answer", question["id"], f"yes, says {ANN}").returncode == 0
        fails = {"status": "failed", "summary": "no", "error": "a secret of hers"}
        ids["failed"] = court.emit({"author": ANN, "result": fails})
        for event_id in ids.values():
            until(partial(told, court, event_id), f"the task of {event_id}")
        until(lambda: not unfinished(court), "everything finished")
        yield ids


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> tuple[Court, dict[str, str]]:
    """A court that is down, and the events there were."""
    court = Court(tmp_path_factory.mktemp("past") / "home")
    court.make()
    with lived(court) as ids:
        pass
    return court, ids


@pytest.fixture
def court(past: tuple[Court, dict[str, str]], tmp_path: Path) -> Court:
    shutil.copytree(past[0].root, tmp_path / "home", symlinks=True)
    return Court(tmp_path / "home")


@pytest.fixture
def ids(past: tuple[Court, dict[str, str]]) -> dict[str, str]:
    return past[1]


def naming(root: Path, word: str) -> list[str]:
    """The files in which a word is, also databases."""
    return sorted(
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and path.name != "up.txt" and word.lower().encode() in path.read_bytes().lower()
    )


def lines(court: Court) -> list[bytes]:
    with Reader(court.root / "logs/events.log", report=lambda problem: pytest.fail(str(problem))) as reader:
        return list(reader.read_lines())


def rest(court: Court) -> tuple[list[bytes], list[bytes]]:
    """The lines that the chamberlain, and the roll-ups, have not counted yet."""
    memory = json.loads((court.root / "state/chamberlain/memory.json").read_text())
    found = []
    for cursor in (Cursor.from_dict(memory["cursor"]), journal_position(Home(court.root))):
        with Reader(court.root / "logs/events.log", cursor=cursor) as reader:
            found.append(list(reader.read_lines()))
    return found[0], found[1]


def counts(court: Court) -> list[Any]:
    with contextlib.closing(sqlite3.connect(court.root / "state/chamberlain/rollups.db")) as database:
        return database.execute("SELECT * FROM counts ORDER BY 1, 2, 3").fetchall()


def forget(court: Court, *more: str) -> Any:
    return court.ask("forget", "--person", ANN, "--yes", *more)


def check_forgotten(court: Court, ids: dict[str, str]) -> None:
    assert naming(court.root, "ann-lee") == ["memory/generals/gen-test/notes.md"], "another word begins so"
    assert (court.root / "memory/generals/gen-test/notes.md").read_text() == NOTE.replace("Ann-Lee", "xxxxxxx")
    assert naming(court.root, "a secret of hers") == [], "what her task said is gone, though it does not name her"
    assert not (court.root / "state/removal.json").exists()
    assert court.document("events", "completed", ids["bob"])
    assert [task["event_id"] for task in court.ask("task", "ls")["tasks"]] == [ids["bob"]]


def test_an_export_has_everything_about_a_person_and_nothing_about_others(
    court: Court, ids: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "ann.zip"
    exported = court.ask("export", "--person", ANN, "--to", str(file))["counts"]
    assert (exported["events"], exported["tasks"]) == (4, 4), "her two, the one about her, and her answer"
    assert file.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
        text = b"".join(archive.read(name) for name in names)
        about = json.loads(archive.read("about.json"))
        mentions = archive.read("mentions.jsonl").decode()
    assert about["person"] == [ANN]
    assert any("GitHub" in one for one in about["not_included"])
    assert {f"events/{ids[who]}.json" for who in ("ann", "asked", "failed")} <= names
    assert f"events/{ids['bob']}.json" not in names
    for part in ("files/state/results/", "files/state/prompts/", "files/logs/sessions/", "files/state/soldiers/"):
        assert any(name.startswith(part) for name in names), part
    assert b"a secret of hers" in text
    assert b"yes, says ann-lee" in text
    assert "Ann-Lee likes tabs" in mentions
    assert ids["bob"].encode() not in text
    assert court.run("export", "--person", ANN, "--to", str(file)).stderr.endswith(
        "exists already: name another file\n"
    )


def test_a_person_is_forgotten_and_the_journal_and_its_figures_stay_right(court: Court, ids: dict[str, str]) -> None:
    before, figures, uncounted = lines(court), counts(court), rest(court)
    planned = court.ask("forget", "--person", ANN, "--dry-run")
    assert not planned["removed"]
    assert len(naming(court.root, ANN)) > 10, "nothing was changed"
    done = forget(court)
    assert done["events"] == planned["events"]
    check_forgotten(court, ids)
    after = lines(court)
    assert [len(line) for line in after] == [len(line) for line in before]
    kinds = [json.loads(line)["type"] for line in after]
    assert kinds == [json.loads(line)["type"] for line in before]
    assert counts(court) == figures
    assert [len(part) for part in rest(court)] == [len(part) for part in uncounted]
    with court.up():  # nothing comes back, and new work is done
        again = court.emit({"number": 1})
        court.wait_completed(again)
    check = [task["event_id"] for task in court.ask("task", "ls")["tasks"]]
    assert sorted(check) == sorted([ids["bob"], again])
    assert naming(court.root, "a secret of hers") == []


def test_a_repository_is_forgotten_with_its_tasks(court: Court, ids: dict[str, str], tmp_path: Path) -> None:
    clone = court.root / "workspace/.clones/till-0123"
    clone.mkdir(parents=True)
    (clone / "clone.json").write_text('{"url": "https://github.com/acme/till.git"}')
    file = tmp_path / "shop.zip"
    assert court.ask("export", "--repository", "acme/till", "--to", str(file))["counts"]["clones"] == 1
    court.ask("forget", "--repository", "acme/till", "--yes")
    assert naming(court.root, "acme/till") == []
    assert not clone.exists()
    assert court.document("events", "completed", ids["bob"]) is None
    assert court.document("events", "completed", ids["ann"])


def test_what_is_not_finished_is_not_forgotten(court: Court, ids: dict[str, str], tmp_path: Path) -> None:
    with court.up():
        court.wait_for_roles("king")
        assert court.run("forget", "--person", ANN, "--dry-run").returncode == 0
        refused = court.run("forget", "--person", ANN, "--yes")
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert "supervisor is already running" in refused.stderr
        assert "kingdom down stops it" in refused.stderr
    waiting = court.emit({"author": ANN})
    refused = court.run("forget", "--person", ANN, "--yes")
    assert f"not finished yet: {waiting}" in refused.stderr
    assert court.document("events", "completed", ids["ann"])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "name a person (--person NAME) or a repository (--repository OWNER/NAME)"),
        (["--person", "x"], "is too short to be searched for"),
        (["--person", "task_id"], "is a word of the court's own documents"),
        (["--repository", "shop"], "is not a repository: write OWNER/NAME"),
        (["--resume"], "there is nothing to complete"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(court: Court, words: list[str], reason: str) -> None:
    done = court.call("forget", "--yes", *words)
    assert done.returncode != 0
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.walk
def test_a_removal_that_is_killed_at_any_point_is_completed(
    past: tuple[Court, dict[str, str]], tmp_path: Path, stride: int
) -> None:
    court, ids = Court(tmp_path / "home"), past[1]
    words = ["forget", "--person", ANN, "--yes", "--home", str(court.root)]
    figures = [len(line) for line in lines(past[0])]

    def run(point: int) -> int:
        shutil.rmtree(court.root, ignore_errors=True)
        shutil.copytree(past[0].root, court.root, symlinks=True)
        folder = tmp_path / f"run-{point}"
        folder.mkdir()
        code = fate(erasure_victim.forget, folder, court.root, words, point, environment=environment())
        assert code == (-9 if point else 0), (folder / "err").read_text()
        return int((folder / "points").read_text()) if point == 0 else 0

    points = run(0)
    assert points > 30
    resumed = 0
    for point in range(1, points + 1, stride):
        run(point)
        if (court.root / "state/removal.json").exists():
            if not resumed:
                refused = kingdom("up", KINGDOM_HOME=str(court.root))
                assert "complete it with kingdom forget --resume" in refused.stderr
                assert court.call("forget", "--person", "bob", "--yes").returncode == 1
            resumed += 1
            court.ask("forget", "--resume", "--yes")
        elif naming(court.root, "a secret of hers"):
            forget(court)
        check_forgotten(court, ids)
        assert not list(court.root.rglob(".tmp-*"))
        assert [len(line) for line in lines(court)] == figures
        assert rest(court) is not None
    assert resumed > points / (2 * stride), "most points are in the removal itself"


@pytest.mark.walk
def test_a_court_with_its_queues_in_a_database_forgets(tmp_path: Path, postgres_url: str) -> None:
    court = Court(tmp_path / "home")
    court.make()
    (court.root / MARKER).write_text(f"queue: {{transport: '{postgres_url}'}}\n")
    with lived(court) as ids:
        pass
    file = tmp_path / "ann.zip"
    assert court.ask("export", "--person", ANN, "--to", str(file))["counts"]["tasks"] == 4
    forget(court)
    assert [task["event_id"] for task in court.ask("task", "ls")["tasks"]] == [ids["bob"]]
    assert [path for path in naming(court.root, ANN) if "notes.md" not in path] == []
    again = court.ask("export", "--person", ANN, "--to", str(tmp_path / "again.zip"))["counts"]
    assert {what: count for what, count in again.items() if count} == {}


def test_the_browsers_of_a_person_are_exported_and_logged_out(tmp_path: Path) -> None:
    court = Court(tmp_path / "home")
    court.make()
    sessions = SessionStore(court.root, TokenStore(court.root))
    account = Person("someone", "look", "oidc-1")
    sessions.add(account, 3600, agent="Firefox", claims={"sub": "1", "email": f"{ANN}@example.org"})
    sessions.add(OWNER, 3600)
    target = tmp_path / "ann.zip"
    assert court.run("export", "--person", ANN, "--to", str(target)).returncode == 0
    with zipfile.ZipFile(target) as archive:
        (one,) = json.loads(archive.read("sessions.json"))["sessions"]
    assert one["agent"] == "Firefox"
    assert court.run("forget", "--person", ANN, "--yes").returncode == 0
    assert [session.name for session in sessions.stored()] == ["owner"]
    assert naming(court.root, ANN) == []
