"""The inbox: what needs a person, from the court, its workflows and the buses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kingdom.base.files import write_json
from kingdom.court.models import timestamp
from kingdom.court.queues import EVENTS, open_queues
from tests.support.seen_court import ASKING, FAILED, WAITING, SeenCourt
from tests.support.web import Web, web_app
from tests.support.web_work import Desk, data, error, scripted

ALERT = "gen-pr has failed 3 tasks in a row"


class Place(NamedTuple):
    court: SeenCourt
    web: Web


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A court with a question, a failure, an alert and a dead letter."""
    court = SeenCourt(tmp_path / "home")
    await court.fill()
    court.home.role("chamberlain").mkdir(parents=True)
    beat = {"ts": timestamp(time.time()), "alert_texts": {"failures:gen-pr": ALERT}}
    write_json(court.home.heartbeat("chamberlain"), beat)
    async with open_queues(court.home.queue_url) as bus:
        (held,) = await bus.claim(EVENTS, worker="king", ids=[f"evt-github-{WAITING}"], lease=60)
        await bus.settle(dead=[(held, "NO_GENERAL", "nobody subscribes to it")])
    async with web_app(tmp_path / "home", court=False, engine=True) as web:
        yield Place(court, web)


async def _inbox(web: Web) -> dict[str, dict[str, object]]:
    return {item["id"]: item for item in data(await web.client.get("/api/inbox"))["items"]}


async def test_it_has_what_needs_a_person_with_what_can_be_done(place: Place) -> None:
    found = await _inbox(place.web)
    letter = f"letter:court/events/evt-github-{WAITING}"
    assert set(found) == {
        f"question:{ASKING}",
        f"task:{FAILED}",
        "alert:failures:gen-pr",
        letter,
        "court:down",
    }
    assert (
        found[f"question:{ASKING}"] | {"choices": ["a", "b"], "actions": ["answer", "mute"]}
        == found[f"question:{ASKING}"]
    )
    assert found[f"task:{FAILED}"]["text"] == "failed: no such file"
    assert found[f"task:{FAILED}"]["actions"] == ["retry", "acknowledge", "mute"]
    assert found[letter]["actions"] == ["requeue", "acknowledge", "mute"]
    times = [str(item["at"]) for item in found.values() if item["at"] is not None]
    assert times == sorted(times, reverse=True)
    assert len(times) == 3


async def test_a_failed_task_is_called_by_what_it_is_about(place: Place) -> None:
    named, gone = "task-20260207-090", "task-20260207-091"
    async with open_queues(place.court.home.queue_url) as bus:
        await place.court.put(bus, named, repo="acme/shop", payload={"pr_number": 7, "title": "Discounts"})
    for task_id in (named, gone):
        place.court.emit("task.failed", "gen-pr", task_id=task_id, error="no such file", retry_count=2)
    found = await _inbox(place.web)
    assert found[f"task:{named}"]["title"] == "acme/shop#7 Discounts"
    assert found[f"task:{gone}"]["title"] == gone  # its document is gone


async def test_what_is_acknowledged_is_gone_from_inbox_and_status_until_it_changes(place: Place) -> None:
    ids = [f"task:{FAILED}", "alert:failures:gen-pr", f"question:{ASKING}", "task:unknown"]
    done = data(await place.web.client.post("/api/inbox/acknowledge", json={"ids": ids, "user": "ann"}))
    assert done == {"acknowledged": 2, "skipped": [f"question:{ASKING}", "task:unknown"]}  # a question is answered
    left = await _inbox(place.web)
    assert not {f"task:{FAILED}", "alert:failures:gen-pr"} & set(left)
    assert f"question:{ASKING}" in left
    beat = {"ts": timestamp(time.time()), "alert_texts": {"failures:gen-pr": f"{ALERT}: now 4"}}
    write_json(place.court.home.heartbeat("chamberlain"), beat)
    async with web_app(place.court.home.root, court=False) as restarted:
        assert "alert:failures:gen-pr" in await _inbox(restarted)
        court = data(await restarted.client.get("/api/court"))
    assert FAILED not in [problem["what"] for problem in court["problems"]]


async def test_a_workflow_that_waits_for_review_is_in_it(place: Place) -> None:
    web, work = place.web, Desk(place.web)
    made = await work.post("workflows", {"templateId": await work.template(scripted("fix", pauseAfter=True))})
    await work.post(f"workflows/{made['id']}/start", {}, 202)
    await work.until(made["id"], "PAUSED")
    item = (await _inbox(web))[f"workflow:{made['id']}"]
    assert item["kind"] == "review"
    assert item["actions"] == ["resume", "goBack", "acknowledge", "mute"]
    assert (item["checkpointId"], item["work"]) == ("start", "fix")
    assert item["at"] is not None


async def test_going_back_leads_before_the_work_at_which_a_workflow_stopped(place: Place) -> None:
    work = Desk(place.web)
    plan = [scripted("first"), scripted("second", pauseAfter=True), scripted("third")]
    made = await work.post("workflows", {"templateId": await work.template(*plan)})
    await work.post(f"workflows/{made['id']}/start", {}, 202)
    await work.until(made["id"], "PAUSED")
    again = ["COMPLETED", "PENDING", "PENDING"]
    item = (await _inbox(place.web))[f"workflow:{made['id']}"]
    assert item["work"] == "second"
    (first, _) = (await work.get(f"workflows/{made['id']}"))["checkpoints"]
    assert item["checkpointId"] == first["id"]
    await work.post(f"workflows/{made['id']}/resume", {"checkpointId": item["checkpointId"], "hold": True}, 202)
    async with asyncio.timeout(30):
        while [one["status"] for one in (await work.get(f"workflows/{made['id']}"))["works"]] != again:
            await asyncio.sleep(0.02)
    await work.until(made["id"], "PAUSED")


async def test_what_is_muted_is_gone_until_its_end_or_until_it_is_shown_again(place: Place) -> None:
    client, alert = place.web.client, "alert:failures:gen-pr"
    until = timestamp(time.time() + 3600)
    body = {"ids": [f"task:{FAILED}", f"question:{ASKING}", "task:unknown"], "until": until, "user": "ann"}
    assert data(await client.post("/api/inbox/mute", json=body)) == {"changed": 2, "skipped": ["task:unknown"]}
    assert data(await client.post("/api/inbox/mute", json={"ids": [alert]})) == {"changed": 1, "skipped": []}
    assert not {alert, f"task:{FAILED}", f"question:{ASKING}"} & set(await _inbox(place.web))
    beat = {"ts": timestamp(time.time() + 3601), "alert_texts": {"failures:gen-pr": f"{ALERT}: now 4"}}
    write_json(place.court.home.heartbeat("chamberlain"), beat)
    async with web_app(place.court.home.root, court=False, clock=lambda: time.time() + 3601) as restarted:
        left = await _inbox(restarted)
        assert {f"task:{FAILED}", f"question:{ASKING}"} <= set(left)  # their hour is over
        assert alert not in left  # for ever, also with another text
        (muted,) = data(await restarted.client.get("/api/inbox/muted"))["items"]
        assert muted | {"id": alert, "text": ALERT, "until": None, "user": "owner"} == muted
        done = data(await restarted.client.post("/api/inbox/unmute", json={"ids": [alert, f"task:{FAILED}"]}))
        assert done == {"changed": 1, "skipped": [f"task:{FAILED}"]}
        async with asyncio.timeout(30):
            while alert not in await _inbox(restarted):  # the state of the court is kept for a moment
                await asyncio.sleep(0.05)
        assert data(await restarted.client.get("/api/inbox/muted"))["items"] == []


async def test_an_end_in_the_past_is_refused(place: Place) -> None:
    for until in (timestamp(time.time() - 60), "1770465600", "2026-02-07"):
        body = {"ids": [f"task:{FAILED}"], "until": until}
        error(await place.web.client.post("/api/inbox/mute", json=body), 422, "SYS_INVALID")


async def test_ids_are_demanded(place: Place) -> None:
    error(await place.web.client.post("/api/inbox/acknowledge", json={"ids": []}), 422, "SYS_INVALID")
