"""The inbox: what needs a person, from the court, its workflows and the buses."""

from __future__ import annotations

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
    assert found[f"question:{ASKING}"] | {"choices": ["a", "b"], "actions": ["answer"]} == found[f"question:{ASKING}"]
    assert found[f"task:{FAILED}"]["text"] == "failed: no such file"
    assert found[f"task:{FAILED}"]["actions"] == ["retry", "acknowledge"]
    assert found[letter]["actions"] == ["requeue", "acknowledge"]
    times = [str(item["at"]) for item in found.values() if item["at"] is not None]
    assert times == sorted(times, reverse=True)
    assert len(times) == 3


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
    assert item["actions"] == ["resume", "acknowledge"]
    assert item["at"] is not None


async def test_ids_are_demanded(place: Place) -> None:
    error(await place.web.client.post("/api/inbox/acknowledge", json={"ids": []}), 422, "SYS_INVALID")
