"""A court whose queues are in a database: everything is told of it that is told of one whose queues are files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import EventBus
from kingdom.court import document_index
from kingdom.court.chamberlain.cleanup import Cleanup
from kingdom.court.chamberlain.config import RetentionSection
from kingdom.court.chamberlain.retention import DAY_SECONDS
from kingdom.court.chamberlain.sessions import LocalSoldierProcesses
from kingdom.court.commands import (
    InvalidTaskState,
    allowed_actions,
    answer_question,
    cancel_task,
    find_task,
    inject_event,
)
from kingdom.court.document_index import DocumentIndex
from kingdom.court.history import read_history
from kingdom.court.home import MARKER, Home
from kingdom.court.loop import Services
from kingdom.court.models import Task
from kingdom.court.overview import read_overview
from kingdom.court.packages.installer import unfinished_tasks
from kingdom.court.queues import (
    EVENTS,
    MESSAGES,
    TASKS,
    IdSequences,
    all_documents,
    declare_queues,
    open_queues,
    put_documents,
)
from kingdom.journal import Journal
from tests.support.courts import Court
from tests.support.living_court import SLOW, LivingCourt, living


@pytest.fixture
async def court(tmp_path: Path, database_url: str) -> AsyncIterator[LivingCourt]:
    async with living(tmp_path / "home", database_url) as court:
        yield court


@pytest.fixture
async def services(tmp_path: Path, database_url: str) -> AsyncIterator[Services]:
    """What a court has, with nobody at work in it."""
    home = Home(tmp_path / "home")
    home.logs.mkdir(parents=True)
    async with open_queues(database_url) as bus:
        await declare_queues(bus)
        yield Services(home, bus, Journal(home.journal))


async def until(look: Callable[[], Awaitable[Any]], patience: float = 60) -> Any:
    async with asyncio.timeout(patience):
        while not (found := await look()):
            await asyncio.sleep(0.02)
    return found


async def states(services: Services, *streams: str) -> dict[str, str]:
    return {stored.id: stored.state for stored in await all_documents(services, streams)}


def task(number: int, general: str = "gen-release") -> Task:
    document = {
        "id": f"task-20260207-{number:03d}",
        "event_id": f"evt-test-{number}",
        "target_general": general,
        "type": "release.work",
        "created_at": "2026-02-07T12:00:00Z",
    }
    return Task.model_validate(document)


async def test_a_question_is_asked_listed_answered_once_and_the_work_goes_on(court: LivingCourt) -> None:
    services = court.services
    event_id = await court.emit("gen-release", version="1.2")

    async def asked() -> Any:
        return (await read_overview(services)).questions

    (question,) = await until(asked)
    assert "1.2 changes the price table" in question.question

    async def settled() -> Any:  # the question is known from the result, just before its task is settled
        found = await find_task(services, question.task_id)
        return found if found.state == "needs_human" else None

    first = await until(settled)
    assert first.document["status"] == "needs_human"
    assert await allowed_actions(services, first) == ["answer", "cancel"]
    await answer_question(services, question.task_id, "release", "ann")
    assert await allowed_actions(services, first) == ["retry"]
    with pytest.raises(InvalidTaskState, match="is answered already"):
        await answer_question(services, question.task_id, "wait", "bob")
    assert (await read_overview(services)).questions == []

    async def completed() -> bool:
        return (await states(services, EVENTS)).get(event_id) == "completed"

    async def both_settled() -> Any:
        found = {stored.id: stored for stored in await all_documents(services, (TASKS,))}
        return found if sorted(stored.state for stored in found.values()) == ["completed", "needs_human"] else None

    await until(completed)
    tasks = await until(both_settled)
    assert all(stored.document["status"] == stored.state for stored in tasks.values())
    lines = [line.what for line in await read_history(services, event_id)]
    assert any("1.2 is prepared: release" in line for line in lines)
    for one in tasks:
        assert any(one in line for line in lines), f"{one} is part of the story"
    index = DocumentIndex(services, TASKS)
    assert {entry.id: entry.status for entry in await index.newest()} == {
        one: stored.state for one, stored in tasks.items()
    }


async def test_what_failed_and_what_was_cancelled_is_known_as_that(court: LivingCourt) -> None:
    services = court.services
    broken, slow = await court.emit("gen-broken"), await court.emit(SLOW)

    async def at_work() -> Any:
        found = await all_documents(services, (TASKS,))
        return [one.id for one in found if one.document["event_id"] == slow and one.state == "in_progress"]

    (task_id,) = await until(at_work)
    assert (await unfinished_tasks(services.home, SLOW)) == [task_id]
    await cancel_task(services, task_id, "ann")

    async def ended() -> bool:
        found = await states(services, EVENTS)
        return (found.get(slow), found.get(broken)) == ("cancelled", "failed")

    async def settled() -> bool:
        return not await unfinished_tasks(services.home, SLOW)

    await until(ended)
    await until(settled)  # a task is settled after its result is known
    with pytest.raises(InvalidTaskState, match="has ended already"):
        await cancel_task(services, task_id, "ann")


async def test_an_index_asks_for_what_changed_and_from_time_to_time_for_everything(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_index, "_DATABASE_FRESH_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(document_index, "_OVERLAP_SECONDS", 0.5)
    asked: list[float | None] = []
    records = EventBus.records

    def spied(bus: EventBus, stream: str, **narrowed: Any) -> Any:
        asked.append(narrowed["within"])
        return records(bus, stream, **narrowed)

    monkeypatch.setattr(EventBus, "records", spied)
    index = DocumentIndex(services, TASKS)

    async def listed() -> list[tuple[str, str]]:
        return sorted((entry.id[-3:], entry.state) for entry in await index.newest())

    assert await listed() == []
    await put_documents(services.bus, [task(1), task(2)])
    assert await listed() == [("001", "pending"), ("002", "pending")]
    first, _ = await services.bus.claim(TASKS, worker="gen-release", limit=2)
    assert await listed() == [("001", "in_progress"), ("002", "in_progress")]
    await services.bus.settle(done=[(first, "failed")])
    assert await listed() == [("001", "failed"), ("002", "in_progress")]
    await services.bus.purge(0)
    assert await listed() == [("001", "failed"), ("002", "in_progress")], "nothing tells of what is gone"
    assert [within is None for within in asked] == [True, False, False, False, False]
    index._reload_at = 0.0
    assert await listed() == [("002", "in_progress")]
    assert asked[-1] is None


async def test_numbers_that_were_given_are_not_given_again_when_their_file_is_lost(services: Services) -> None:
    await put_documents(services.bus, [task(7), task(12)])
    home, now = services.home, 1_770_465_600.0  # 2026-02-07
    for lost in (False, True):
        sequences = IdSequences(home, lambda: now)
        if lost:
            (home.role("king") / "task-seq").unlink()
        await sequences.recover(services.bus)
        assert sequences.tasks() == ["task-20260207-013"]
    (home.role("king") / "task-seq").unlink()
    home.results.mkdir(parents=True)
    (home.results / "task-20260207-100.json").touch()
    await IdSequences(home, lambda: now).recover(services.bus)
    assert IdSequences(home, lambda: now).tasks(2) == ["task-20260207-101", "task-20260207-102"]
    assert IdSequences(home, lambda: now).messages() == ["msg-20260207-001"]


async def test_what_was_given_up_is_a_problem_under_its_id(services: Services) -> None:
    await inject_event(services, {"id": "evt-test-1", "type": "no.such", "source": "test", "payload": {}})
    await services.bus.settle(dead=[(await services.bus.claim(EVENTS, worker="king"))[0]])
    problems = {problem.what: problem.why for problem in (await read_overview(services)).problems}
    assert problems["evt-test-1"] == "REJECTED"
    assert await states(services, EVENTS, TASKS, MESSAGES) == {"evt-test-1": "invalid"}


async def test_what_a_cleaning_would_remove_is_told_and_that_is_what_goes(services: Services) -> None:
    await put_documents(services.bus, [task(number) for number in range(1, 5)])
    first, second, third = await services.bus.claim(TASKS, worker="gen-release", limit=3)
    await services.bus.settle(done=[(first, "failed"), (second, "needs_human")], dead=[(third, "BROKEN", "it broke")])
    services.home.results.mkdir(parents=True)
    (services.home.results / f"{second.event_id}.json").write_text('{"status": "needs_human"}')
    await inject_event(
        services, {"id": "evt-test-2", "type": "release.work", "source": "test", "payload": {}}
    )  # is open
    now = services.clock()
    os.utime(services.home.results / f"{second.event_id}.json", (now - DAY_SECONDS,) * 2)
    section = RetentionSection(queue_days=1e-9, results_days=1000, invalid_days=1e-9)
    processes = LocalSoldierProcesses(services.home)
    cleaning = Cleanup(services.home, services.bus, processes, section, now + 1, lambda *_: None)
    planned = {item.path: item.why.partition(":")[0] async for item in cleaning.plan()}
    assert planned == {f"tasks/{first.event_id}": "tasks/completed", f"tasks/{third.event_id}": "tasks/invalid"}
    assert sum([gone async for gone in cleaning.run()]) == 2
    assert await states(services, TASKS) == {second.event_id: "needs_human", "task-20260207-004": "pending"}


def test_of_a_court_whose_database_is_away_the_rest_is_told(tmp_path: Path, postgres_server: str) -> None:
    court = Court(tmp_path / "home")
    court.make()
    away = postgres_server.replace("/postgres?", "/missing?")
    (court.root / MARKER).write_text(f"queue: {{transport: '{away}'}}\n")
    status = court.ask("status")
    assert {role["name"] for role in status["roles"]} >= {"king", "gen-test", "envoy"}
    (problem,) = [one for one in status["problems"] if one["what"] == "queues"]
    assert 'database "missing" does not exist' in problem["why"]
