"""A task that asks a person, and what comes of the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.king.king import King
from kingdom.court.models import Task
from kingdom.court.queues import TASKS
from tests.support.kings import NOON, Realm, looks

HOUR = 3600.0


@pytest.fixture(params=["files", "sqlite"])
async def realm(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Realm]:
    async with Realm(tmp_path, queues=request.param).open() as realm:
        realm.install(concurrency=1)
        yield realm


async def asking(realm: Realm, **question: Any) -> tuple[King, Task]:
    await realm.event(1, repo="acme/web", payload={"pr_number": 7, "title": "faster"})
    king = await reigning(realm)
    (task,) = await realm.work(status="needs_human", question={"text": "red or blue?", **question})
    await looks(king)
    return king, task


async def reigning(realm: Realm) -> King:
    king = realm.king()
    await king.start()
    await looks(king)
    return king


async def heard(king: King, realm: Realm) -> None:
    realm.clock.now += 10  # he is not subscribed here: he looks around after his interval
    await looks(king)


async def test_a_question_goes_to_people_with_its_choices_and_deadline(realm: Realm) -> None:
    king, task = await asking(realm, choices=["red", "blue"])
    question = realm.messages()[-1]
    assert (question.type, question.urgency) == ("human_input_request", "high")
    assert "red or blue?" in question.content
    assert question.context == {
        "task_id": task.id,
        "event_id": "evt-github-1",
        "general": "gen-pr",
        "type": "github.pr.opened",
        "topic": "acme/web#7",
        "question": "red or blue?",
        "choices": ["red", "blue"],
        "default": None,
        "deadline": "2026-02-08T12:00:00.000Z",
    }
    assert realm.where("evt-github-1") == ("dispatched", "dispatched")
    assert king.report()["asking"] == [task.id]
    assert king.report()["active"] == 0


async def test_while_a_person_thinks_others_are_served(realm: Realm) -> None:
    king, _ = await asking(realm)
    await realm.event(2)
    await heard(king, realm)
    assert [task.event_id for task in realm.tasks()] == ["evt-github-2"]


async def test_an_answer_goes_on_as_a_task_that_knows_the_question(realm: Realm) -> None:
    king, task = await asking(realm)
    answer_id = await realm.answer(task.id, "blue")
    await heard(king, realm)
    (resumed,) = realm.tasks()
    assert (resumed.type, resumed.event_id, resumed.target_general) == ("resume", answer_id, "gen-pr")
    assert resumed.payload == {
        "pr_number": 7,
        "title": "faster",
        "original_task_id": task.id,
        "question": "red or blue?",
        "answer": "blue",
        "user": "ann",
    }
    assert resumed.document()["repo"] == "acme/web"
    assert realm.where(answer_id)[0] == realm.where("evt-github-1")[0] == "dispatched"
    assert ("task.resumed", {"task_id": resumed.id, "original_task_id": task.id}) in realm.journal()
    await realm.work()
    await looks(king)
    assert realm.where(answer_id)[0] == realm.where("evt-github-1")[0] == "completed"
    assert realm.said() == ["thread_start", "human_input_request", "thread_update"]
    assert realm.messages()[-1].context["original_task_id"] == task.id


async def test_the_first_answer_counts_also_when_two_come_together(realm: Realm) -> None:
    king, task = await asking(realm)
    first, second = await realm.answer(task.id, "blue", 1), await realm.answer(task.id, "red", 2)
    await heard(king, realm)
    third = await realm.answer(task.id, "green", 3)
    await heard(king, realm)
    assert [resumed.payload["answer"] for resumed in realm.tasks()] == ["blue"]
    assert realm.where(first)[0] == "dispatched"
    assert realm.where(second)[0] == realm.where(third)[0] == "completed"
    reasons = [fields["reason"] for kind, fields in realm.journal() if kind == "event.discarded"]
    assert reasons == ["already answered", "already answered"]


async def test_a_second_question_follows_the_first_and_all_events_end_together(realm: Realm) -> None:
    king, task = await asking(realm)
    answers = [await realm.answer(task.id, "blue")]
    await heard(king, realm)
    (again,) = await realm.work(status="needs_human", question={"text": "light or dark?"})
    await looks(king)
    answers.append(await realm.answer(again.id, "dark"))
    await heard(king, realm)
    (last,) = await realm.work()
    assert last.payload["original_task_id"] == again.id
    assert (last.payload["question"], last.payload["answer"]) == ("light or dark?", "dark")
    await looks(king)
    assert {realm.where(event)[0] for event in (*answers, "evt-github-1")} == {"completed"}


async def test_a_resume_waits_for_its_turn_like_everything_else(realm: Realm) -> None:
    king, task = await asking(realm)
    await realm.event(2)
    await heard(king, realm)
    answer_id = await realm.answer(task.id, "blue")
    await heard(king, realm)
    assert realm.where(answer_id)[0] == "pending"
    assert list(king.report()["holds"]) == ["gen-pr is at its limit of 1 at once"]
    await realm.work()
    await looks(king)
    assert [resumed.type for resumed in realm.tasks()] == ["resume"]


@pytest.mark.parametrize("named", ["task-20990101-001", "../../etc/passwd", "-x", "", None, 7])
async def test_an_answer_to_nothing_is_discarded_with_the_reason(realm: Realm, named: Any) -> None:
    king, _ = await asking(realm)
    event_id = await realm.event("response-1", "console.human_response", payload={"task_id": named, "text": "x"})
    await heard(king, realm)
    assert realm.where(event_id) == ("completed", "completed")
    (reason,) = [fields["reason"] for kind, fields in realm.journal() if kind == "event.discarded"]
    assert "is not known" in reason or "names no task_id" in reason
    assert king.report()["asking"]


async def test_when_nobody_answers_in_time_the_default_is_taken(realm: Realm) -> None:
    king, task = await asking(realm, default="blue", deadline="2026-02-07T13:00:00Z")
    realm.clock.now = NOON + HOUR - 1
    assert await king.tick() == 1.0
    assert realm.tasks() == []
    realm.clock.now = NOON + HOUR
    await looks(king)
    await heard(king, realm)
    (resumed,) = realm.tasks()
    assert resumed.payload["answer"] == "blue"
    assert resumed.event_id == f"evt-king-response-{task.id}-{int(NOON + HOUR)}"
    late = await realm.answer(task.id, "red")
    await heard(king, realm)
    assert realm.where(late)[0] == "completed"
    assert len(realm.tasks()) == 1


async def test_without_a_default_people_are_reminded_once_and_may_answer_later(realm: Realm) -> None:
    king, task = await asking(realm)
    realm.clock.now = NOON + 25 * HOUR
    await looks(king)
    king = await reigning(realm)
    realm.clock.now += 100 * HOUR
    await heard(king, realm)
    assert realm.said() == ["thread_start", "human_input_request", "notification"]
    await realm.answer(task.id, "blue")
    await heard(king, realm)
    assert [resumed.payload["answer"] for resumed in realm.tasks()] == ["blue"]


async def test_a_task_that_needs_a_person_but_asks_nothing_shows_what_it_said(realm: Realm) -> None:
    await realm.event(1)
    king = await reigning(realm)
    await realm.work(status="needs_human", summary="I am lost")
    await looks(king)
    assert realm.messages()[-1].context["question"] == "I am lost"


async def test_an_open_question_outlives_the_king_and_even_his_book(realm: Realm) -> None:
    king, task = await asking(realm)
    await king.stop()
    (realm.home.role("king") / ".book").unlink()
    successor = await reigning(realm)
    assert successor.report()["asking"] == [task.id]
    assert realm.said() == ["thread_start", "human_input_request"]
    answer_id = await realm.answer(task.id, "blue")
    await heard(successor, realm)
    await successor.stop()
    (realm.home.role("king") / ".book").unlink()
    last = await reigning(realm)
    await realm.work()
    await looks(last)
    assert realm.where(answer_id)[0] == realm.where("evt-github-1")[0] == "completed"


async def test_an_answer_after_weeks_still_finds_the_work_when_the_task_was_cleaned_away(realm: Realm) -> None:
    king, task = await asking(realm)
    realm.lose(TASKS, task.id)
    await realm.answer(task.id, "blue")
    await heard(king, realm)
    (resumed,) = realm.tasks()
    assert resumed.payload["pr_number"] == 7
    assert resumed.payload["original_task_id"] == task.id
    assert (resumed.target_general, resumed.document()["repo"]) == ("gen-pr", "acme/web")
