"""The judges of the campaign against a court: each must object to what it is there to find."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.court import checks
from tests.chaos.court.homes import ASK, HAND, PLAY, Effect

EVENTS = {"evt-a-1": HAND, "evt-a-2": ASK, "evt-a-3": PLAY}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What a court leaves that did everything right: three events, one of which asked."""
    for number, event_id in enumerate(EVENTS, 1):
        write(tmp_path, f"queue/events/completed/{event_id}.json", status="completed")
        finish(tmp_path, f"task-20260207-00{number}", event_id, "needs_human" if number == 2 else "success")
    finish(tmp_path, "task-20260207-004", "evt-console-response", "success", case="evt-a-2")
    (tmp_path / "state/soldiers").mkdir()
    number = 0
    for event_id, general in EVENTS.items():
        kinds = ["thread_start", "thread_update", *(["human_input_request"] if general == ASK else [])]
        for kind in kinds:
            number += 1
            say(tmp_path, f"msg-20260207-{number:03d}", kind, event_id)
    return tmp_path


def write(root: Path, name: str, **document: Any) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def finish(root: Path, task_id: str, event_id: str, status: str, **more: Any) -> None:
    word = status if status in ("failed", "needs_human") else "completed"
    write(root, f"queue/tasks/completed/{task_id}.json", event_id=event_id, type="x.work", status=word, **more)
    write(root, f"state/results/{task_id}.json", status=status, general=HAND, soldier_id=f"soldier-{task_id}")


def say(root: Path, message_id: str, kind: str, event_id: str) -> None:
    context = {"event_id": event_id}
    write(root, f"queue/messages/sent/{message_id}.json", status="sent", type=kind, context=context)
    log = root / "logs/console.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("a") as file:
        file.write(f"2026-02-07T12:00:00Z {kind}\n    words\n-- {message_id}\n")


def journal(root: Path) -> list[dict[str, Any]]:
    sent = sorted(path.stem for path in (root / "queue/messages/sent").iterdir())
    return [{"type": "message.sent", "data": {"msg_id": name}} for name in sent]


def everything(root: Path) -> list[str]:
    return [
        *checks.disagreements(root / "queue"),
        *checks.unfinished(root / "queue", set(EVENTS)),
        *checks.wrong_results(root, root / "queue", EVENTS, set()),
        *checks.repeated_messages(root, root / "queue", EVENTS, journal(root)),
        *checks.left_behind(root),
    ]


def test_what_is_right_is_accepted(root: Path) -> None:
    assert everything(root) == []


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (lambda root: (root / "queue/events/completed/evt-a-1.json").unlink(), "not completed: evt-a-1"),
        (lambda root: write(root, "queue/events/completed/evt-a-1.json", status="dispatched"), "says dispatched"),
        (lambda root: write(root, "queue/events/dispatched/evt-a-1.json", status="dispatched"), "is not empty"),
        (lambda root: write(root, "queue/events/invalid/evt-a-1.json"), "events/invalid is not empty"),
        (lambda root: finish(root, "task-20260207-009", "evt-a-1", "success"), "{'success': 2}"),
        (lambda root: finish(root, "task-20260207-001", "evt-a-1", "failed"), "{'failed': 1}"),
        (lambda root: (root / "state/results/task-20260207-001.json").unlink(), "has no result"),
        (lambda root: write(root, "state/results/task-20260207-009.json", status="success"), "not completed: task-"),
        (lambda root: say(root, "msg-20260207-009", "thread_update", "evt-a-1"), "2 messages thread_update"),
        (lambda root: say(root, "msg-20260207-001", "thread_start", "evt-a-1"), "said twice: msg-20260207-001"),
        (lambda root: (root / "logs/console.log").write_text(""), "sent and never said"),
        (lambda root: write(root, "state/king/.tmp-1-heartbeat"), "left behind: state/king/.tmp-1-heartbeat"),
        (lambda root: write(root, "state/gen-hand/campaigns/task-20260207-001.json"), "left behind"),
    ],
)
def test_what_is_wrong_is_named(root: Path, wrong: Callable[[Path], None], complaint: str) -> None:
    wrong(root)
    assert complaint in "\n".join(everything(root))


def effects(*told: tuple[str, str]) -> list[Effect]:
    return [Effect(what, run, "task-20260207-001", "evt-a-1") for what, run in told]


def test_work_may_be_begun_again_only_when_its_soldier_was_killed() -> None:
    twice = effects(("began", "s-1"), ("began", "s-2"), ("did", "s-2"))
    assert checks.repeated_effects(twice, EVENTS, {"s-1"}) == []
    assert "nobody killed these" in checks.repeated_effects(twice, EVENTS, set())[0]
    done_twice = effects(("began", "s-1"), ("did", "s-1"), ("did", "s-1"))
    assert "done 2 times" in checks.repeated_effects(done_twice, EVENTS, set())[0]


def test_a_success_that_nobody_did_is_named(root: Path) -> None:
    did = [Effect("did", f"soldier-task-20260207-00{number}", "", "") for number in (1, 3, 4)]
    assert checks.undone(did, root) == []
    assert "soldier-task-20260207-001, which did nothing" in checks.undone(did[1:], root)[0]


def test_a_run_without_an_outcome_or_with_two_lines_in_the_ledger_is_named(root: Path) -> None:
    write(root, "state/soldiers/s-1/identity.json")
    assert checks.wrong_runs(root) == ["s-1 began and has no outcome"]
    write(root, "state/soldiers/s-1/outcome.json")
    assert checks.wrong_runs(root) == ["s-1 is not in the ledger"]
    write(root, "state/ledger/2026-02.jsonl", run_id="s-1")
    assert checks.wrong_runs(root) == []
    ledger = root / "state/ledger/2026-02.jsonl"
    ledger.write_text(f"{ledger.read_text()}\n{ledger.read_text()}\n")
    assert checks.wrong_runs(root) == ["more than one line in the ledger: s-1"]


def test_a_line_told_twice_is_named() -> None:
    line = {"type": "task.created", "data": {"task_id": "task-20260207-001"}}
    assert checks.repeated_entries([line]) == []
    assert "task.created more than once" in checks.repeated_entries([line, line])[0]
