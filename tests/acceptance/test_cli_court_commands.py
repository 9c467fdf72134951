"""The commands that look at a court and tell it what to do."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from kingdom.court.home import Home
from tests.support.command import kingdom, kingdom_tty
from tests.support.courts import Court, until

ASK = {"status": "needs_human", "question": {"text": "Which branch?", "choices": ["main", "next"]}}


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("courts") / "founded"
    Court(root).make()
    return root


@pytest.fixture
def court(founded: Path, tmp_path: Path) -> Court:
    root = tmp_path / "home"
    shutil.copytree(founded, root)
    made = Court(root)
    made.install("gen-test")
    return made


def refused(court: Court, *arguments: str) -> str:
    """The one line of a command that must fail."""
    done = court.call(*arguments)
    assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_question_is_shown_answered_once_and_the_work_goes_on(court: Court) -> None:
    with court.up():
        event_id = court.emit({"result": ASK})
        task_id = court.task_of(event_id)["id"]
        until(lambda: court.document("tasks", "completed", task_id), "the question")
        until(lambda: f"kingdom answer {task_id}" in court.console, "the question on the console")
        (question,) = until(lambda: court.ask("status")["questions"], "the question in status")
        assert question["task_id"] == task_id
        assert (question["question"], question["choices"]) == ("Which branch?", ["main", "next"])
        shown = court.call("status").stdout
        assert "Which branch?" in shown
        assert re.search(r"^queue +waiting +processing +invalid or failed +oldest$", shown, re.MULTILINE)
        assert re.search(r"^events +0 +1 +0 +–$", shown, re.MULTILINE), "it is worked on, not held back"

        assert court.call("answer", task_id, "next").returncode == 0
        assert "already" in refused(court, "answer", task_id, "main")
        court.wait_completed(event_id)
        until(lambda: "the answer was next" in court.console, "the end on the console")
    assert court.ask("status")["questions"] == []
    story = " ".join(line["what"] for line in court.ask("trace", event_id)["story"])
    for step in ("task.needs_human", "message.human_response", "task.resumed", "the answer was next"):
        assert step in story


def test_a_running_task_is_cancelled_and_done_again(court: Court) -> None:
    release = court.root / "release"
    with court.up():
        event_id = court.emit({"until": str(release)})
        task_id = court.task_of(event_id)["id"]
        court.soldier_at_work()
        assert "cancel" in refused(court, "task", "retry", task_id)
        assert court.call("task", "cancel", task_id).returncode == 0
        cancelled = until(lambda: court.document("tasks", "completed", task_id), "the end of the task")
        assert cancelled["status"] == "cancelled"
        assert "cancelled" in court.ask("task", "show", task_id)["result"]["error"]
        assert "ended already" in refused(court, "task", "cancel", task_id)

        release.touch()
        court.wait_completed(event_id)
        assert court.call("task", "retry", task_id).returncode == 0
        again = until(
            lambda: [task for task in court.ask("task", "ls")["tasks"] if task["id"] != task_id], "a new task"
        )
        until(lambda: court.document("tasks", "completed", again[0]["id"]), "its end")
    problems = " ".join(problem["what"] for problem in court.ask("status")["problems"])
    assert task_id not in problems, "what a person cancelled is no problem"
    assert [task["id"] for task in court.ask("task", "ls", "--status", "cancelled")["tasks"]] == [task_id]


def test_a_task_that_is_held_back_says_why(court: Court) -> None:
    task = {"id": "task-20260207-001", "event_id": "evt-1", "target_general": "gen-test", "type": "test.happened"}
    task |= {"priority": "normal", "status": "pending", "created_at": "2026-02-07T10:00:00Z", "payload": {}}
    waiting = court.root / "queue/tasks/pending/task-20260207-001.json"
    waiting.write_text(json.dumps(task | {"payload": {"repo": "acme/shop", "pr_number": 7, "title": "Faster"}}))
    assert court.ask("task", "show", task["id"])["held_because"] is None
    assert "acme/shop#7 Faster" in court.call("task", "ls").stdout, "what it is about says more than its type"
    beat = {"held": {task["id"]: {"reason": "the engine is away"}}}
    heartbeat = Home(court.root).heartbeat("gen-test")
    heartbeat.parent.mkdir(parents=True, exist_ok=True)
    heartbeat.write_text(json.dumps(beat))
    assert court.ask("task", "show", task["id"])["held_because"] == "gen-test: the engine is away"
    assert "gen-test: the engine is away" in court.call("task", "show", task["id"]).stdout


def test_what_waits_and_what_cannot_be_read_is_told_with_its_reason(court: Court) -> None:
    release = court.root / "release"
    (court.root / "queue/events/pending/evt-test-torn.json").write_text("{ torn")
    with court.up():
        first, second = court.emit({"until": str(release)}), court.emit({"until": str(release)})
        court.soldier_at_work()
        holds = until(lambda: court.heartbeat("king").get("holds"), "a word of the king on what waits")
        until(lambda: list((court.root / "queue/events/invalid").glob("*.reason")), "the torn file put aside")
        (problem,) = court.ask("status")["problems"]
        assert problem["what"] == "queue/events/invalid/evt-test-torn.json"
        assert "JSON" in problem["why"]
        (reason,) = holds
        assert reason in court.call("status").stdout
        release.touch()
        court.wait_completed(first)
        court.wait_completed(second)


def test_an_event_is_taken_while_the_court_is_down_and_done_when_it_is_up(court: Court) -> None:
    payload = court.root / "payload.json"
    payload.write_text(json.dumps({"result": {"status": "failed", "error": "no luck", "summary": ""}}))
    arguments = ("emit", "test.work", "--id", "evt-test-1", "--payload", f"@{payload}", "--priority", "high")
    assert court.call(*arguments).stdout == "evt-test-1\n"
    assert court.ask(*arguments) == {"id": "evt-test-1", "accepted": False}
    stored = court.document("events", "pending", "evt-test-1")
    assert stored is not None
    assert (stored["priority"], stored["payload"]["result"]["error"]) == ("high", "no luck")
    with court.up():
        assert court.wait_completed("evt-test-1")["status"] == "failed"
    why = [problem["why"] for problem in court.ask("status")["problems"]]
    assert any("no luck" in reason for reason in why)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("trace", "evt-nobody-1"), "no file here mentions evt-nobody-1"),
        (("trace", "../../etc/passwd"), "no file here mentions"),
        (("task", "show", "task-20260101-001"), "kingdom task ls"),
        (("task", "show", "../../x"), "'../../x'"),
        (("task", "cancel", "task-20260101-001"), "kingdom task ls"),
        (("task", "transcript", "task-20260101-001"), "kingdom task ls"),
        (("answer", "task-20260101-001", "yes"), "kingdom task ls"),
        (("role", "gen-nobody"), "there are"),
        (("up", "--roles", "gen-nobody"), "no role 'gen-nobody' here"),
        (("emit", "NotAType"), "type"),
        (("emit", "test.work", "--priority", "urgent"), "priority"),
        (("emit", "test.work", "--id", "../../x"), "id"),
    ],
)
def test_what_is_not_there_or_not_allowed_is_one_line_that_helps(
    court: Court, arguments: tuple[str, ...], said: str
) -> None:
    assert said in refused(court, *arguments)


@pytest.mark.parametrize("payload", ["{", "[]", "@/nowhere/at/all.json"])
def test_a_payload_that_is_no_object_is_a_wrong_call(court: Court, payload: str) -> None:
    done = court.call("emit", "test.work", "--payload", payload)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")


@pytest.mark.parametrize("command", [("status",), ("up",), ("down",), ("emit", "test.work"), ("doctor",)])
def test_outside_a_home_every_command_says_how_to_get_one(tmp_path: Path, command: tuple[str, ...]) -> None:
    assert "kingdom init" in refused(Court(tmp_path), *command)
    if command != ("up",):
        document = json.loads(Court(tmp_path).call(*command, "--json").stdout)
        assert document["error"]["code"] == "NO_HOME"


def test_the_home_is_found_around_the_working_folder(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(court.root / "config/generals")
    monkeypatch.delenv("KINGDOM_HOME", raising=False)
    assert json.loads(kingdom("status", "--json").stdout)["home"] == str(court.root)


@pytest.mark.parametrize("command", [("status",), ("up",), ("emit", "test.work")])
def test_a_broken_configuration_is_told_with_file_and_line(court: Court, command: tuple[str, ...]) -> None:
    (court.root / "config/system.yaml").write_text("name: x\nlocale: fr\n")
    assert "config/system.yaml:2: locale" in refused(court, *command)


def test_the_doctor_finds_what_is_wrong_and_is_content_otherwise(court: Court) -> None:
    well = court.ask("doctor")
    assert well["ok"] is True
    assert {"config", "disk", "git", "general gen-test", "engine command"} <= {
        check["name"] for check in well["checks"]
    }

    court.install("gen-broken", subscribes=7)
    (court.root / "memory").chmod(0o777)
    (court.root / "config/system.yaml").write_text("locale: fr\n")
    done = court.call("doctor")
    assert done.returncode == 1
    assert "config/system.yaml:1: locale" in done.stdout
    assert "can be written by anybody" in done.stdout
    (court.root / "config/system.yaml").write_text("locale: en\n")
    assert "gen-broken/manifest.yaml" in court.call("doctor").stdout


def test_hostile_text_cannot_steer_the_terminal(court: Court) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202egnp"
    event_id = court.emit({"title": evil}, kind="nobody.cares")
    court.call("emit", "test.work", "--repo", f"a/{evil}", "--id", "evt-test-evil")
    for arguments in (("status",), ("trace", event_id), ("trace", "evt-test-evil")):
        code, screen = kingdom_tty(*arguments, KINGDOM_HOME=str(court.root))
        assert code == 0
        assert "\x1b[2J" not in screen
        assert "\x1b]0" not in screen


def test_watching_is_for_people(court: Court) -> None:
    done = court.call("status", "--watch", "--json")
    assert done.returncode == 2
    assert "--watch and --json cannot be combined" in done.stdout
