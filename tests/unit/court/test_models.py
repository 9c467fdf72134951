"""The documents of the court: ids that are safe as file names, fixed words, and nothing lost on a round trip."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kingdom.court.errors import InvalidDocument, InvalidId
from kingdom.court.home import Home, check_name
from kingdom.court.models import Event, Message, Result, Task, timestamp
from kingdom.court.queues import envelope_of, parse_document, queue_of

NOW = "2026-02-07T10:00:00.000Z"
EVENT: dict[str, Any] = {
    "id": "evt-github-12345678-20260207100000",
    "type": "github.pr.review_requested",
    "source": "github",
    "repo": "acme/shop",
    "payload": {"number": 7, "title": "'; $(touch x) {{ 7*7 }}"},
    "priority": "high",
    "created_at": NOW,
    "status": "pending",
}
TASK: dict[str, Any] = {
    "id": "task-20260207-001",
    "event_id": "evt-jira-QP-123-20260207100000",
    "target_general": "gen-pr",
    "type": "github.pr.review_requested",
    "payload": {},
    "priority": "normal",
    "created_at": NOW,
    "status": "pending",
}
MESSAGE: dict[str, Any] = {
    "id": "msg-20260207-001",
    "type": "thread_start",
    "channel": "dev",
    "urgency": "normal",
    "content": "hello",
    "context": {"task_id": "task-20260207-001"},
    "created_at": NOW,
    "status": "pending",
}
RESULT: dict[str, Any] = {
    "task_id": "task-20260207-001",
    "general": "gen-pr",
    "status": "needs_human",
    "question": {"text": "Which one?", "choices": ["a", "b"]},
    "started_at": NOW,
    "ended_at": NOW,
}
HOSTILE = ["../../x", "-x", "a/b", "a\0b", "a\nb", "a b", "..", ".hidden", "", "x" * 300, "a\u202eb", "%2e%2e", "a\\b"]


@pytest.mark.parametrize(
    ("model", "document"), [(Event, EVENT), (Task, TASK), (Message, MESSAGE)], ids=["event", "task", "message"]
)
def test_a_document_survives_a_round_trip_with_fields_nobody_here_knows(model: type[Any], document: Any) -> None:
    original = {**document, "x_trace": {"deep": [1, None, "two"]}, "note": "kept"}
    assert model.model_validate(original).document() == {**original, "created_at": "2026-02-07T10:00:00Z"}


def test_a_result_keeps_the_question_and_its_unknown_fields() -> None:
    document = Result.model_validate({**RESULT, "subject": "acme/shop#7"}).document()
    assert document["question"]["choices"] == ["a", "b"]
    assert document["subject"] == "acme/shop#7"
    assert Result.model_validate(document).document() == document


@pytest.mark.parametrize(
    "event_id",
    [
        "evt-github-12345678",
        "evt-jira-QP-123-20260207100000",
        "evt-slack-response-task-20260207-001-1707300000",
        "evt-console-cancel-task-20260207-001-1707300000",
    ],
)
def test_the_ids_of_every_source_are_accepted(event_id: str) -> None:
    assert Event.model_validate({**EVENT, "id": event_id}).id == event_id


@pytest.mark.parametrize("tail", HOSTILE)
def test_an_id_that_could_leave_its_folder_is_refused(tail: str) -> None:
    for model, document, key, value in (
        (Event, EVENT, "id", tail),
        (Event, EVENT, "id", f"evt-github-{tail}\n"),
        (Event, EVENT, "id", f"evt-github-/{tail}"),
        (Task, TASK, "id", f"task-20260207-{tail}"),
        (Task, TASK, "event_id", f"evt-github-{tail}/"),
        (Task, TASK, "target_general", tail),
        (Message, MESSAGE, "id", f"msg-20260207-{tail}"),
        (Result, RESULT, "task_id", f"task-20260207-{tail}"),
    ):
        with pytest.raises(ValidationError):
            model.model_validate({**document, key: value})


@pytest.mark.parametrize("number", ["001", "999", "1000", "123456"])
def test_there_is_no_upper_limit_on_the_tasks_of_a_day(number: str) -> None:
    assert Task.model_validate({**TASK, "id": f"task-20260207-{number}"}).id.endswith(number)


def test_a_schedule_can_be_the_cause_of_a_task() -> None:
    assert Task.model_validate({**TASK, "event_id": "schedule-daily"}).event_id == "schedule-daily"


@pytest.mark.parametrize(
    ("document", "model", "key", "wrong"),
    [
        (EVENT, Event, "priority", "urgent"),
        (EVENT, Event, "status", "done"),
        (EVENT, Event, "type", "github"),
        (EVENT, Event, "type", "GitHub.PR"),
        (EVENT, Event, "payload", [1]),
        (EVENT, Event, "created_at", "yesterday"),
        (EVENT, Event, "repo", 7),
        (TASK, Task, "status", "dispatched"),
        (TASK, Task, "target_general", "Gen PR"),
        (TASK, Task, "type", ""),
        (MESSAGE, Message, "type", "shout"),
        (MESSAGE, Message, "urgency", "low"),
        (MESSAGE, Message, "content", None),
        (RESULT, Result, "status", "rate_limited"),
        (RESULT, Result, "question", {"text": ""}),
    ],
)
def test_a_wrong_word_or_type_is_refused(document: Any, model: type[Any], key: str, wrong: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate({**document, key: wrong})
    assert {error["loc"][0] for error in caught.value.errors()} == {key}


def test_a_claimed_document_that_is_not_valid_says_where_and_what() -> None:
    with pytest.raises(InvalidDocument, match=r"^events/evt-x\.json: type: .*; created_at: Field required$"):
        parse_document(Event, {"id": "evt-a-b", "type": "x", "source": "s"}, "events/evt-x.json")


def test_a_document_knows_its_queue_and_the_envelope_it_travels_in() -> None:
    task = Task.model_validate(TASK)
    envelope = envelope_of(queue_of(task), task)
    assert (queue_of(task), envelope.event_id, envelope.type) == ("tasks", task.id, "gen-pr")
    assert envelope.payload == task.document()


def test_times_are_utc_with_milliseconds() -> None:
    assert timestamp(1_770_458_400.1239) == "2026-02-07T10:00:00.123Z"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_could_leave_its_folder_never_becomes_a_path(name: str) -> None:
    home = Home("/somewhere")
    makers = (home.role, home.result, home.raw_result, home.handover, home.soldier_id, home.session_id, home.prompt)
    for make in (*makers, home.work, home.general_memory, home.general, lambda name: check_name("task", name)):
        with pytest.raises(InvalidId):
            make(name)  # type: ignore[operator]
