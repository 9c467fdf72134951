"""What people are told of a court: its condition first, questions that are answered, times in the court's zone."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.files import write_json
from kingdom.bus import connect
from kingdom.court.commands import allowed_actions, answer_question, find_task
from kingdom.court.history import read_history
from kingdom.court.loop import Services
from kingdom.court.models import timestamp
from kingdom.court.overview import read_overview
from kingdom.court.questions import shown_status, with_answers
from kingdom.court.queues import TASKS, IdSequences, all_documents
from kingdom.journal import Journal
from tests.support.chamberlains import Watched
from tests.support.kings import NOON, Realm, looks


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[Realm]:
    async with Realm(tmp_path, timezone="Asia/Seoul").open() as realm:
        (realm.home.config / "system.yaml").write_text("timezone: Asia/Seoul\nbudget: {daily_usd: 10}\n")
        realm.install()
        yield realm


def services_of(realm: Realm) -> Services:
    return Services(realm.home, realm.bus, Journal(realm.home.journal, realm.clock), realm.clock)


async def test_an_answered_question_is_shown_as_that_with_who_when_what_and_the_task_that_goes_on(realm: Realm) -> None:
    await realm.event()
    king = realm.king()
    await king.start()
    await looks(king)
    (asked,) = await realm.work(status="needs_human", question={"text": "Which one?"})
    await looks(king)
    services = services_of(realm)
    tasks = await all_documents(services, (TASKS,))
    assert await shown_status(services, tasks[0], await with_answers(services, tasks)) == "needs_human"
    realm.clock.now += 60
    await realm.answer(asked.id, "the left one")
    tasks = await all_documents(services, (TASKS,))
    (pending,) = (await with_answers(services, tasks)).values()
    assert (pending.text, pending.user, pending.resumed_as) == ("the left one", "ann", None)
    await looks(king)
    tasks = await all_documents(services, (TASKS,))
    answers = await with_answers(services, tasks)
    (resumed,) = realm.tasks()
    assert answers[asked.id].resumed_as == resumed.id
    (first,) = [task for task in tasks if task.id == asked.id]
    assert await shown_status(services, first, answers) == "answered"
    told = [line.what for line in await read_history(services, asked.id) if line.what.startswith(asked.id)]
    assert any(f"now answered: ann answered: the left one (goes on as {resumed.id})" in line for line in told)


async def test_a_task_that_was_cancelled_while_it_was_held_back_is_shown_as_that(realm: Realm) -> None:
    await realm.event()
    king = realm.king()
    await king.start()
    await looks(king)
    services = services_of(realm)
    (task,) = await all_documents(services, (TASKS,))
    assert await shown_status(services, task, {}) == "pending"
    realm.result(task.id, status="cancelled", error="cancelled by ann")
    assert await shown_status(services, task, {}) == "cancelled"


async def test_an_open_question_shows_the_deadline_that_applies(realm: Realm) -> None:
    await realm.event()
    king = realm.king()
    await king.start()
    await looks(king)
    await realm.work(status="needs_human", question={"text": "Which one?"})
    await looks(king)
    realm.home.role("king").mkdir(parents=True, exist_ok=True)
    write_json(realm.home.heartbeat("king"), {"ts": timestamp(realm.clock()), **king.report()})
    (question,) = (await read_overview(services_of(realm))).questions
    assert question.deadline == timestamp(NOON + realm.config.question.deadline_hours * 3600)


async def test_a_question_may_be_answered_before_its_task_is_settled(realm: Realm) -> None:
    await realm.event()
    king = realm.king()
    await king.start()
    await looks(king)
    (delivery,) = await realm.bus.claim(TASKS, worker="gen-pr", types=["gen-pr"])
    realm.result(delivery.event_id, status="needs_human", question={"text": "Which one?"})
    services = services_of(realm)
    task = await find_task(services, delivery.event_id)
    assert task.document["status"] == "in_progress"
    assert await allowed_actions(services, task) == ["answer", "cancel"]
    await answer_question(services, delivery.event_id, "left", "ann")
    realm.clock.now += 10
    await looks(king)
    assert [one.payload["answer"] for one in realm.tasks()] == ["left"]


async def test_the_state_of_a_court_begins_with_what_needs_a_person(realm: Realm) -> None:
    for role, document in (
        ("chamberlain", {"alert_texts": {"failures:gen-pr": "gen-pr has failed 3 tasks in a row"}}),
        ("king", {"asking": ["task-20260207-001"]}),
    ):
        realm.home.role(role).mkdir(parents=True, exist_ok=True)
        write_json(realm.home.heartbeat(role), {"ts": timestamp(realm.clock()), **document})
    realm.result("task-20260207-001", status="needs_human", question={"text": "Which one?"})
    health = {"level": "orange", "reason": "disk_percent: 96", "ts": timestamp(realm.clock())}
    write_json(realm.home.role("chamberlain") / "health.json", health)
    overview = await read_overview(services_of(realm))
    document = overview.document()
    assert list(document)[:5] == ["condition", "health", "budget", "alerts", "attention"]
    assert document["condition"]["level"] == "down"
    assert "health is orange (disk_percent: 96)" in document["condition"]["reasons"]
    assert document["health"] == {"level": "orange", "reason": "disk_percent: 96"}
    assert document["budget"] == {"status": "ok", "spent": ["daily budget: $0.00 of $10.00"]}
    wanted = " / ".join(overview.attention())
    assert "gen-pr has failed 3 tasks in a row" in wanted
    assert '1 question open (task-20260207-001): kingdom answer TASK "…"' in wanted
    assert "kingdom up" in wanted


def test_ids_are_of_the_courts_day(tmp_path: Path) -> None:
    from zoneinfo import ZoneInfo

    from kingdom.court.home import Home

    evening = datetime(2026, 2, 7, 16, tzinfo=UTC).timestamp()  # 01:00 of the next day in Seoul
    assert IdSequences(Home(tmp_path), lambda: evening, ZoneInfo("Asia/Seoul")).tasks() == ["task-20260208-001"]


async def test_the_king_takes_the_courts_day_for_ids(realm: Realm) -> None:
    realm.clock.now = datetime(2026, 2, 7, 16, tzinfo=UTC).timestamp()
    await realm.event()
    king = realm.king()
    await king.start()
    await looks(king)
    assert [task.id for task in realm.tasks()] == ["task-20260208-001"]
    assert [message.id for message in realm.messages()] == ["msg-20260208-001"]


async def test_the_oldest_event_counts_from_its_arrival(realm: Realm) -> None:
    folder = realm.home.queue / "events/pending"
    document = {"id": "evt-ci-1", "type": "ci.broken", "source": "ci", "created_at": "2020-01-01T00:00:00Z"}
    (folder / ".new").write_text(json.dumps({**document, "payload": {}, "status": "pending"}))
    os.utime(folder / ".new")
    (folder / ".new").rename(folder / "evt-ci-1.json")
    async with connect(realm.queue_url) as bus:
        assert (await bus.depth())["events"].oldest_pending_seconds < 3600


async def test_held_tasks_are_told_with_their_reason_and_alerted_once(tmp_path: Path) -> None:
    court = Watched(tmp_path)
    (court.home.generals / "gen-pr").mkdir(parents=True)
    (court.home.generals / "gen-pr/manifest.yaml").write_text("name: gen-pr\ndescription: x\nsubscribes: [a.b]\n")
    (court.home.generals / "gen-pr/prompt.md").write_text("x")
    held = {"task-20260207-001": {"reason": "claude is not installed", "until": timestamp(court.now + 60)}}

    def beat(now_held: dict[str, Any]) -> None:
        court.home.role("gen-pr").mkdir(parents=True, exist_ok=True)
        document = {"ts": timestamp(court.now), "pid": 100, "interval": 10, "held": now_held}
        write_json(court.home.heartbeat("gen-pr"), document)

    async with court.open():
        for _ in range(3):
            beat(held)
            await court.tick(30)
        overview = await read_overview(court.services)
        assert overview.holds["gen-pr: claude is not installed"] == {"count": 1, "tasks": ["task-20260207-001"]}
        await court.restart()
        beat({})
        await court.tick(30)
        assert court.alerts() == [("held:gen-pr", "held"), ("held:gen-pr", "over")]
        assert "gen-pr holds 1 task(s) back: claude is not installed" in court.messages()[0]["content"]
