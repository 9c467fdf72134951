"""Events and messages over HTTP: discarded and invalid ones with their reason, and what belongs to each."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kingdom.court.models import Message, timestamp
from kingdom.court.queues import EVENTS, MESSAGES, open_queues, put_documents
from tests.support.seen_court import FAILED, RUNNING, WAITING, SeenCourt
from tests.support.web import Web, web_app
from tests.support.web_work import data, error

MESSAGE = "msg-20260207-001"
UNWANTED, DONE = f"evt-github-{FAILED}", f"evt-github-{WAITING}"


class Place(NamedTuple):
    court: SeenCourt
    web: Web


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A court with a discarded event, a completed one, an invalid one, and a message that could not be sent."""
    court = SeenCourt(tmp_path / "home")
    await court.fill()
    message = {"id": MESSAGE, "type": "notification", "content": "Look.", "context": {"task_id": RUNNING}}
    async with open_queues(court.home.queue_url) as bus:
        held = await bus.claim(EVENTS, worker="king", ids=[UNWANTED, DONE], limit=2, lease=60)
        await bus.settle(done=held)
        await put_documents(bus, [Message.model_validate({**message, "created_at": timestamp(time.time())})])
        (sending,) = await bus.claim(MESSAGES, worker="envoy", ids=[MESSAGE], lease=60)
        await bus.settle(dead=[(sending, "SLACK", "no such channel")])
    court.emit("event.discarded", "king", event_id=UNWANTED, event_type="github.pr.opened", reason="not trusted")
    folder = court.home.queue / "events" / "invalid"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "broken.json").write_text("{")
    (folder / "broken.json.reason").write_text("not JSON")
    async with web_app(tmp_path / "home", court=False) as web:
        yield Place(court, web)


async def test_a_discarded_event_is_told_from_a_completed_one_with_its_reason(place: Place) -> None:
    client = place.web.client
    (found,) = data(await client.get("/api/events?status=discarded"))["items"]
    assert (found["id"], found["status"], found["shown_status"]) == (UNWANTED, "completed", "discarded")
    assert found["reason"] == "not trusted"
    (found,) = data(await client.get("/api/events?status=completed"))["items"]
    assert (found["id"], found["shown_status"], found["reason"]) == (DONE, "completed", None)
    assert found["tasks"] == [WAITING]
    place.court.emit("event.discarded", "king", event_id=DONE, event_type="github.pr.opened", reason="too late")
    listed = data(await client.get("/api/events?status=discarded"))
    assert {one["id"]: one["reason"] for one in listed["items"]} == {UNWANTED: "not trusted", DONE: "too late"}
    assert listed["total"] == 2


async def test_an_invalid_event_has_its_reason(place: Place) -> None:
    (found,) = data(await place.web.client.get("/api/events?status=invalid"))["items"]
    assert (found["id"], found["shown_status"], found["reason"]) == ("broken", "invalid", "not JSON")


async def test_event_task_and_message_name_each_other(place: Place) -> None:
    client, event_id = place.web.client, f"evt-github-{RUNNING}"

    async def linked(path: str) -> list[tuple[str, str]]:
        return [(one["stream"], one["id"]) for one in data(await client.get(path))["linked"]]

    assert await linked(f"/api/events/{event_id}/state") == [("tasks", RUNNING), ("messages", MESSAGE)]
    assert await linked(f"/api/tasks/{RUNNING}") == [("events", event_id), ("messages", MESSAGE)]
    assert await linked(f"/api/messages/{MESSAGE}/state") == [("events", event_id), ("tasks", RUNNING)]
    error(await client.get("/api/events/evt-none-1/state"), 404, "SYS_NOT_FOUND")
    error(await client.get(f"/api/messages/{RUNNING}/state"), 404, "SYS_NOT_FOUND")


async def test_a_failed_message_says_why_and_names_its_task(place: Place) -> None:
    (found,) = data(await place.web.client.get("/api/messages?status=failed"))["items"]
    assert (found["id"], found["reason"], found["task_id"]) == (MESSAGE, "no such channel", RUNNING)
    state = data(await place.web.client.get(f"/api/messages/{MESSAGE}/state"))
    assert (state["status"], state["reason"], state["message"]["content"]) == ("failed", "no such channel", "Look.")


async def test_the_journal_is_searched_by_type_actor_id_and_time(place: Place) -> None:
    client = place.web.client

    async def found(**query: str) -> list[str]:
        return [line["type"] for line in data(await client.get("/api/court/journal", params=query))["items"]]

    assert await found(type="task.failed") == ["task.failed"]
    assert await found(type="event.*", actor="king") == ["event.discarded"]
    assert set(await found(q=RUNNING)) == {"task.created", "task.started"}
    assert await found(until="2020-01-01T00:00:00Z") == []
    first = data(await client.get("/api/court/journal", params={"limit": 1}))
    assert [line["type"] for line in first["items"]] == ["event.discarded"]
    rest = data(await client.get("/api/court/journal", params={"cursor": first["nextCursor"]}))
    assert rest["nextCursor"] is None
    assert len(rest["items"]) == len(await found()) - 1
    error(await client.get("/api/court/journal", params={"cursor": "W3siYSI6MX1d"}), 422, "SYS_CURSOR")
