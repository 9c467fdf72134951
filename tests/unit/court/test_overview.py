"""What can be told of a court without opening its queues."""

from __future__ import annotations

from pathlib import Path

from kingdom.base.files import write_json
from kingdom.court.home import MARKER, Home
from kingdom.court.machines.capacity import note_machine_state
from kingdom.court.machines.listing import Machine, own_problem, save_machines
from kingdom.court.overview import read_overview_without_queues


def test_a_question_that_a_file_answers_is_not_asked_any_more(tmp_path: Path) -> None:
    home, first, second = Home(tmp_path), "task-20260207-001", "task-20260207-002"
    for place in (tmp_path / MARKER, home.heartbeat("king"), home.result(first), home.queue / "events/pending/x"):
        place.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / MARKER).write_text("name: x\n")
    write_json(home.heartbeat("king"), {"asking": [first, second]})
    for task_id in (first, second):
        write_json(home.result(task_id), {"general": "gen-x", "question": {"text": f"Which, {task_id}?"}})
    (home.queue / f"events/pending/evt-console-response-{first}-1.json").write_text("{}")
    assert [one.question for one in read_overview_without_queues(home, 0.0).questions] == [f"Which, {second}?"]


def test_a_machine_that_is_down_does_not_speak_for_the_court(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config.mkdir()
    (tmp_path / MARKER).write_text("queue: {transport: 'postgresql://db/court'}\n")
    assert read_overview_without_queues(home, 0.0).attention()[-1] == "the court is not up: kingdom up starts it"
    (home.config / "machine.yaml").write_text("{name: seat}\n")
    machines = [Machine(name, False, None, 1.0, 0.0, "active", leads=name == "spare") for name in ("seat", "spare")]
    save_machines(home, machines, 0.0)
    assert read_overview_without_queues(home, 0.0).attention()[-1] == "this machine is not up: kingdom up starts it"


def test_a_machine_that_is_none_of_the_court_any_more_says_so(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config.mkdir()
    (tmp_path / MARKER).write_text("queue: {transport: 'postgresql://db/court'}\n")
    note_machine_state(home, "left")
    assert not list(own_problem(home))  # a court on one machine has none to leave
    (home.config / "machine.yaml").write_text("{name: builder, joined: true}\n")
    (left,) = own_problem(home)
    assert (left.what, left.why) == (
        "machine builder",
        "it has left the court: kingdom join makes it a machine of the court again",
    )
    note_machine_state(home, "removed")
    (removed,) = own_problem(home)
    assert "it was removed from the court, and claims nothing: after kingdom machines remove builder --forget" in (
        removed.why
    )
    note_machine_state(home, "active")
    assert not list(own_problem(home))
