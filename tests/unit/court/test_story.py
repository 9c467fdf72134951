"""The story of an id: everything that belongs to it, nothing else, in the order in which it happened."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.files import write_json
from kingdom.court.bootstrap import open_services
from kingdom.court.history import HistoryLine, read_history
from kingdom.court.home import MARKER, Home
from kingdom.court.loop import Services
from kingdom.court.models import Event, Message, Task
from kingdom.court.queues import put_documents
from kingdom.journal import rotate_to_old
from kingdom.journal.catalog import EventDispatched, MessageSent, TaskCompleted, TaskCreated, TaskResumed, TaskStarted

NOON = 1770465600.0  # 2026-02-07T12:00:00Z


class Clock:
    """Time as the test says."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def services(tmp_path: Path, clock: Clock) -> AsyncIterator[Services]:
    home = Home(tmp_path)
    (home.root / MARKER).parent.mkdir()
    (home.root / MARKER).write_text("name: test\n")
    for folder in (home.results, home.prompts, home.ledger):
        folder.mkdir(parents=True)
    async with open_services(home, clock) as opened:
        yield opened


def event(number: int, kind: str = "github.pr.opened", **payload: Any) -> Event:
    return Event(id=f"evt-test-{number}", type=kind, source="test", payload=payload, created_at=at(0.1))  # type: ignore[arg-type]


def task(number: int, event_id: str, seconds: float = 0.2, **payload: Any) -> Task:
    return Task(
        id=f"task-20260207-{number:03d}",
        event_id=event_id,
        target_general="gen-test",
        type="x",
        payload=payload,
        created_at=at(seconds),  # type: ignore[arg-type]
    )


def message(number: int, task_id: str) -> Message:
    return Message(
        id=f"msg-20260207-{number:03d}",
        type="report",
        content="done",
        context={"task_id": task_id},
        created_at=at(0.9),  # type: ignore[arg-type]
    )


def at(seconds: float) -> str:
    return f"2026-02-07T12:00:{seconds:06.3f}Z"


def mentions(lines: list[HistoryLine], word: str) -> list[int]:
    return [number for number, line in enumerate(lines) if word in line.what]


async def test_nobody_knows_an_unknown_id(services: Services) -> None:
    await put_documents(services.bus, [event(1)])
    assert await read_history(services, "evt-test-2") == []
    assert await read_history(services, "task-20260207-001") == []


async def test_from_any_of_its_ids_the_same_story_is_told_and_nothing_of_others(services: Services) -> None:
    await put_documents(
        services.bus,
        [event(1), event(2), task(1, "evt-test-1"), task(11, "evt-test-2"), message(1, "task-20260207-001")],
    )
    stories = [await read_history(services, one) for one in ("evt-test-1", "task-20260207-001", "msg-20260207-001")]
    assert stories[0] == stories[1] == stories[2]
    text = " ".join(line.what for line in stories[0])
    assert "evt-test-2" not in text
    assert "task-20260207-011" not in text


async def test_an_answer_and_what_came_of_it_belong_to_the_story(services: Services) -> None:
    await put_documents(services.bus, [event(1), task(1, "evt-test-1")])
    await put_documents(services.bus, [event(2, "console.human_response", task_id="task-20260207-001", text="yes")])
    await put_documents(services.bus, [task(2, "evt-test-2", original_task_id="task-20260207-001")])
    lines = await read_history(services, "evt-test-1")
    assert mentions(lines, "evt-test-2 console.human_response")
    assert mentions(lines, "task-20260207-002 x for gen-test")


async def test_a_payload_from_outside_cannot_join_stories(services: Services) -> None:
    await put_documents(services.bus, [event(1), task(1, "evt-test-1"), event(2, task_id="task-20260207-001")])
    assert not mentions(await read_history(services, "task-20260207-001"), "evt-test-2")


async def test_documents_files_and_journal_stand_in_the_order_in_which_things_happened(
    services: Services, clock: Clock
) -> None:
    home = services.home
    await put_documents(services.bus, [event(1), task(1, "evt-test-1"), message(1, "task-20260207-001")])
    for entry, actor in (
        (TaskCreated("task-20260207-001", "x", "gen-test", "normal"), "king"),
        (EventDispatched("evt-test-1", "task-20260207-001", "gen-test"), "king"),
        (TaskStarted("task-20260207-001"), "gen-test"),
        (TaskCompleted("task-20260207-001", "success", 0.5), "gen-test"),
        (MessageSent("msg-20260207-001", "task-20260207-001", ""), "envoy"),
    ):
        services.journal.emit(entry, actor)
    result = {"task_id": "task-20260207-001", "general": "gen-test", "status": "success", "summary": "fine"}
    write_json(home.result("task-20260207-001"), {**result, "ended_at": at(0.8)})
    ledger = {
        "ts": at(0.7),
        "run_id": "soldier-1",
        "task_id": "task-20260207-001",
        "tokens": {"total": 12},
        "cost_usd": 0.5,
    }
    (home.ledger / "2026-02.jsonl").write_text(json.dumps(ledger) + "\n{ torn\n")

    lines = await read_history(services, "evt-test-1")
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    steps = [
        "evt-test-1 github.pr.opened",
        "task-20260207-001 x for gen-test",
        "task.created",
        "event.dispatched",
        "task.started",
        "soldier-1 used 12 tokens, $0.5000",
        "task-20260207-001 ended as success: fine",
        "task.completed",
        "msg-20260207-001 report: done",
        "message.sent",
    ]
    assert [place for step in steps for place in mentions(lines, step)] == list(range(len(steps)))


async def test_lines_of_a_closed_journal_are_found_too(services: Services, clock: Clock) -> None:
    services.journal.emit(EventDispatched("evt-test-1", "task-20260207-001", "gen-test"), "king")
    rotate_to_old(services.home.journal)
    clock.now += 86400
    services.journal.emit(TaskResumed("task-20260207-002", "task-20260207-001"), "king")
    lines = await read_history(services, "task-20260207-002")
    assert [line.what.split(":")[0] for line in lines] == ["event.dispatched", "task.resumed"]


async def test_what_was_put_aside_is_told_with_its_reason(services: Services) -> None:
    await put_documents(services.bus, [event(1)])
    (delivery,) = await services.bus.claim("events", worker="king")
    await services.bus.settle(dead=[(delivery, "INVALID", "its priority is nonsense")])
    lines = await read_history(services, "evt-test-1")
    assert mentions(lines, "its priority is nonsense")
    assert lines[0].where.startswith("queue/events/invalid/")


async def test_the_story_of_a_ticket_is_that_of_all_tasks_about_it_and_its_pull_request(services: Services) -> None:
    events = [
        event(1, "jira.ticket.assigned", key="SHOP-7"),
        event(2, "jira.ticket.mentioned", key="SHOP-7"),
        event(3, "jira.ticket.assigned", key="SHOP-70"),
        event(4, "github.pr.commented", repo="acme/shop", pr_number=12),
    ]
    opened = {"url": "https://x.example/acme/shop/pull/12", "branch": "b", "general": "gen-test"}
    tasks = [
        task(1, "evt-test-1", key="SHOP-7"),
        task(2, "evt-test-2", key="SHOP-7"),
        task(3, "evt-test-3", key="SHOP-70"),
        task(4, "evt-test-4", repo="acme/shop", pr_number=12),
    ]
    for number in (1, 3):
        follow_up = {**opened, "task_id": tasks[0].id, "work_id": tasks[0].id}
        tasks[number] = Task.model_validate({**tasks[number].document(), "follow_up": follow_up})
    await put_documents(services.bus, [*events, *tasks, message(1, tasks[3].id)])
    wanted = ["evt-test-1", "evt-test-2", "evt-test-4", tasks[0].id, tasks[1].id, tasks[3].id, "msg-20260207-001"]
    addresses = ("https://x.example/browse/SHOP-7?focused=1", "https://github.com/acme/shop/pull/12/files")
    for subject in ("SHOP-7", "shop-7", "acme/shop#12", "Acme/Shop#12", *addresses):
        lines = await read_history(services, subject)
        assert [name for name in wanted if not mentions(lines, name)] == [], subject
        assert mentions(lines, "evt-test-3") == [], subject
    assert await read_history(services, "SHOP-8") == []
