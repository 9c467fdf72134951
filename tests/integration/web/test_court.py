"""The court over HTTP, with its king and generals at work: what people see, and what they have done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kingdom.bus import Envelope
from kingdom.court.models import Message
from kingdom.court.queues import EVENTS, MESSAGES, put_documents
from kingdom.court.rollups.reading import RollupRecorder
from tests.support.web_court import WebCourt, web_court
from tests.support.web_work import error

MARKUP = "<script>alert(1)</script><b>&amp;</b>"


@pytest.fixture
async def court(tmp_path: Path) -> AsyncIterator[WebCourt]:
    async with web_court(tmp_path / "home") as court:
        yield court


# ── work ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/api/tasks", "/api/events", "/api/messages", "/api/workflows"])
async def test_an_unknown_status_is_refused(court: WebCourt, path: str) -> None:
    error(await court.client.get(f"{path}?status=nonsense"), 422, "SYS_INVALID")


async def test_an_event_becomes_a_task_whose_whole_story_can_be_read(court: WebCourt) -> None:
    async with court.working("gen-good"):
        event_id = await court.inject("test.good", title=MARKUP)
        task_id = await court.task_of(event_id, "completed")
        await court.until(f"/api/events/{event_id}", lambda event: event["status"] == "completed")
    task = await court.get(f"/api/tasks/{task_id}")
    assert task["task"]["payload"]["title"] == MARKUP
    assert (task["result"]["status"], task["result"]["summary"]) == ("success", f"All of {MARKUP} is well.")
    assert task["spent"] == {"costUsd": 0.25, "tokens": 15, "runs": 1}
    assert task["actions"] == ["retry"]
    (soldier,) = task["soldiers"]
    assert (soldier["engine"], soldier["alive"]) == ("scripted", False)

    told = [line["what"] for line in (await court.get(f"/api/tasks/{task_id}/trace"))["items"]]
    assert told == [line["what"] for line in (await court.get(f"/api/events/{event_id}/trace"))["items"]]
    for part in (f"{event_id} test.good from web arrived", "task.created", "soldier.spawned", "ended as success"):
        assert any(part in line for line in told), part

    said = await court.get(f"/api/tasks/{task_id}/transcript")
    assert [item["text"] for item in said["items"] if item["kind"] == "text"] == [f"Looking at {MARKUP}"]
    assert said["nextOffset"] == said["size"]
    later = await court.get(f"/api/tasks/{task_id}/transcript", offset=said["nextOffset"])
    assert (later["items"], later["nextOffset"]) == ([], said["size"])
    messages = await court.get("/api/messages", q="well")
    assert MARKUP in (await court.get(f"/api/messages/{messages['items'][0]['id']}"))["content"]


async def test_the_first_answer_to_a_question_counts_and_the_work_goes_on_with_it(court: WebCourt) -> None:
    async with court.working("gen-ask"):
        event_id = await court.inject("test.ask")
        (question,) = await court.until("/api/questions", lambda page: page["items"])
        assert (question["question"], question["choices"]) == ("Red or blue?", ["red", "blue"])
        task_id = question["taskId"]
        assert (await court.get(f"/api/tasks/{task_id}"))["actions"] == ["answer", "cancel"]
        path = f"/api/questions/{task_id}/answer"
        answers = [court.client.post(path, json={"text": colour, "user": "ann"}) for colour in ("blue", "red", "green")]
        statuses = [answer.status_code for answer in await asyncio.gather(*answers)]
        assert sorted(statuses) == [202, 409, 409]
        await court.until(f"/api/events/{event_id}", lambda event: event["status"] == "completed")
        assert await court.refused("POST", path, {"text": "late"}) == (409, "SYS_ANSWERED")
        (resumed,) = await court.until("/api/tasks", lambda page: page["items"], type="resume")
    state = await court.get(f"/api/tasks/{resumed['id']}")
    chosen = ("blue", "red", "green")[statuses.index(202)]
    assert state["result"]["summary"] == f"It is {chosen} now."
    assert state["task"]["event_id"].startswith(f"evt-web-response-{task_id}-")
    assert (await court.get("/api/questions"))["items"] == []
    asked = await court.get(f"/api/tasks/{task_id}")
    assert asked["question"] is None
    assert asked["shownStatus"] == "answered"
    assert asked["answer"].pop("at").startswith("20")
    assert asked["answer"] == {"text": chosen, "user": "ann", "resumed_as": resumed["id"]}
    (listed,) = (await court.get("/api/tasks", status="answered"))["items"]
    assert (listed["id"], listed["status"], listed["shown_status"]) == (task_id, "needs_human", "answered")
    assert listed["answer"]["resumed_as"] == resumed["id"]
    assert (await court.get("/api/tasks", status="needs_human"))["items"] == []


async def test_an_answer_is_shown_where_the_queues_are_in_a_database(tmp_path: Path) -> None:
    async with web_court(tmp_path / "home", f"sqlite://{tmp_path}/queues.db") as court:
        async with court.working("gen-ask"):
            await court.inject("test.ask")
            (question,) = await court.until("/api/questions", lambda page: page["items"])
            await court.post(f"/api/questions/{question['taskId']}/answer", {"text": "blue", "user": "ann"})
            (resumed,) = await court.until("/api/tasks", lambda page: page["items"], type="resume")

            def complete(page: dict[str, Any]) -> Any:
                return [one for one in page["items"] if one["answer"] and one["answer"]["resumed_as"]]

            (listed,) = await court.until("/api/tasks", complete, status="answered")
        assert (listed["id"], listed["answer"]["text"]) == (question["taskId"], "blue")
        assert listed["answer"]["resumed_as"] == resumed["id"]


async def test_a_payload_from_outside_that_names_a_task_does_not_answer_its_question(court: WebCourt) -> None:
    async with court.working("gen-ask"):
        await court.inject("test.ask")
        (open_one,) = await court.until("/api/questions", lambda page: page["items"])
        await court.inject("test.ask", task_id=open_one["taskId"], original_task_id=open_one["taskId"])
        both = await court.until("/api/questions", lambda page: page["items"][1:] and page["items"])
        (other,) = [one["taskId"] for one in both if one["taskId"] != open_one["taskId"]]
        await court.post(f"/api/questions/{other}/answer", {"text": "blue"})
        await court.until("/api/tasks", lambda page: page["items"], type="resume", status="completed")
    (asking,) = (await court.get("/api/tasks", status="needs_human"))["items"]
    assert (asking["id"], asking["answer"]) == (open_one["taskId"], None)
    assert asking["deadline"] == open_one["deadline"]
    state = await court.get(f"/api/tasks/{open_one['taskId']}")
    assert (state["shownStatus"], state["answer"]) == ("needs_human", None)
    assert state["question"]["deadline"] == open_one["deadline"] is not None


async def test_a_question_whose_task_is_cancelled_can_not_be_answered_any_more(court: WebCourt) -> None:
    async with court.working("gen-ask"):
        event_id = await court.inject("test.ask")
        (question,) = await court.until("/api/questions", lambda page: page["items"])
        task_id = question["taskId"]
        await court.post(f"/api/tasks/{task_id}/cancel")
        refused = await court.refused("POST", f"/api/questions/{task_id}/answer", {"text": "blue"})
        assert refused == (409, "SYS_CANCELLED")
        await court.until(f"/api/events/{event_id}", lambda event: event["status"] == "cancelled")
        assert (await court.get(f"/api/tasks/{task_id}"))["actions"] == ["retry"]
        await court.until("/api/questions", lambda page: not page["items"])
        assert (await court.get(f"/api/tasks/{task_id}"))["shownStatus"] == "cancelled"
        (listed,) = (await court.get("/api/tasks", status="cancelled"))["items"]
        assert (listed["id"], listed["shown_status"]) == (task_id, "cancelled")


async def test_a_task_is_cancelled_while_it_runs_and_can_be_done_again(court: WebCourt) -> None:
    async with court.working("gen-slow"):
        task_id = await court.task_of(await court.inject("test.slow"), "in_progress")
        said = await court.until(f"/api/tasks/{task_id}/transcript", lambda part: part["items"] and part)
        (soldier,) = await court.until("/api/court", lambda seen: seen["soldiers"])
        assert (said["alive"], soldier["id"], soldier["taskId"]) == (True, said["soldierId"], task_id)
        await court.until("/api/court", lambda seen: seen["soldiers"][0]["said"][-1:] == ["I take my time."])
        assert await court.refused("POST", f"/api/tasks/{task_id}/retry") == (409, "SYS_NOT_ENDED")
        asked = await court.post(f"/api/tasks/{task_id}/cancel", {"user": "ann", "reason": "Too dear."})
        assert asked["eventId"].startswith(f"evt-web-cancel-{task_id}-")
        state = await court.until(f"/api/tasks/{task_id}", lambda state: state["result"] and state)
        assert state["result"]["error"] == "cancelled by ann: Too dear."
        await court.until("/api/court", lambda seen: not seen["soldiers"])
        await court.until("/api/tasks", lambda page: page["total"] == 1, status="cancelled")
        assert await court.refused("POST", f"/api/tasks/{task_id}/cancel") == (409, "SYS_ALREADY_ENDED")
        await court.post(f"/api/tasks/{task_id}/retry")
        (again,) = await court.until("/api/tasks", lambda page: page["items"], status="in_progress")
        assert (again["type"], again["id"] != task_id) == ("test.slow", True)
    assert "I take my time." in [item["text"] for item in said["items"]]


async def test_the_court_at_a_glance_tells_who_works_what_waits_and_what_it_costs(court: WebCourt) -> None:
    async with court.working("gen-good", "gen-ask"):
        await court.task_of(await court.inject("test.good", title="Discounts"), "completed")
        await court.inject("test.ask")
        seen = await court.until("/api/court", lambda seen: seen["questions"] and seen)
    roles = {role["name"]: role["state"] for role in seen["roles"]}
    assert (roles["king"], roles["gen-good"], roles["gen-slow"]) == ("running", "running", "stopped")
    assert {queue["name"] for queue in seen["queues"]} == {"events", "tasks", "messages"}
    assert seen["health"]["level"] == "green"
    assert (seen["cost"]["dayUsd"], seen["cost"]["limits"][0]["shown"]) == (0.25, "$0.25 of $10.00")
    assert "task.created" in {line["type"] for line in seen["recent"]}
    assert (await court.get("/api/court/journal", limit=1))["items"][0]["ts"] >= seen["recent"][-1]["ts"]
    budget = await court.get("/api/budget")
    assert budget["dayByGeneral"]["gen-good"] == {"costUsd": 0.25, "tokens": 15, "runs": 1}
    assert (await court.get("/api/report", date="today"))["tasks"]["completed"] == 1
    (day,) = (await court.get("/api/stats"))["days"].values()
    assert day["generals"]["gen-good"]["completed"] == 1


async def test_statistics_over_time_come_in_steps_and_of_one_general(court: WebCourt) -> None:
    journal = court.context.court.journal
    journal.emit("task.failed", "gen-bad", {"task_id": "t", "error": "no", "retry_count": 0})
    done = {"task_id": "t", "status": "success", "duration_seconds": 40}
    journal.emit("task.completed", "gen-good", done)
    recorder = RollupRecorder(court.home, ZoneInfo("UTC"))
    recorder.record(court.context.clock())
    recorder.close()
    history = await court.get("/api/stats/history")
    assert (history["stepSeconds"], history["total"]["successRate"]) == (900, 0.5)
    assert history["points"][-1]["tasks"]["p50Seconds"] == pytest.approx(40, rel=0.02)
    old = (datetime.now(UTC) - timedelta(days=90)).isoformat()
    history = await court.get("/api/stats/history", since=old, general="gen-bad")
    assert (history["stepSeconds"], list(history["generals"])) == (86400, ["gen-bad"])
    assert len(history["points"]) in (90, 91)
    error(await court.client.get("/api/stats/history?since=yesterday"), 422, "SYS_INVALID")


# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_event_with_an_id_that_is_known_changes_nothing(court: WebCourt) -> None:
    body = {"type": "test.seen", "id": "evt-web-one", "payload": {"note": MARKUP}, "repo": "acme/shop"}
    answers = [await court.client.post("/api/events", json=body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert [answer.json()["data"]["accepted"] for answer in answers] == [True, False]
    event = await court.get("/api/events/evt-web-one")
    assert (event["payload"]["note"], event["repo"], event["source"]) == (MARKUP, "acme/shop", "web")
    assert (await court.get("/api/events", q="ALERT acme", source="web"))["total"] == 1
    assert (await court.get("/api/events", q="alert elsewhere"))["total"] == 0


async def test_what_is_wrong_with_an_event_is_told(court: WebCourt) -> None:
    for body, where in [
        ({"type": "nodots"}, "body.type"),
        ({"type": "a.b", "priority": "urgent"}, "body.priority"),
        ({"type": "a.b", "payload": []}, "body.payload"),
        ({"type": "a.b", "id": "../../etc/passwd"}, "body.id"),
        ({"type": "a.b", "more": 1}, "body.more"),
        ({}, "body.type"),
    ]:
        answer = await court.client.post("/api/events", json=body)
        assert answer.status_code == 422
        assert [detail["where"] for detail in answer.json()["error"]["details"]] == [where]


async def test_a_payload_that_no_store_can_keep_is_refused(court: WebCourt) -> None:
    deep = '{"a":' * 200 + "1" + "}" * 200
    for payload in ('{"a": NaN}', '{"a": [Infinity]}', '{"a": "\\u0000"}', '{"a": "\\ud800"}', deep):
        body = f'{{"type": "a.b", "payload": {payload}}}'
        answer = await court.client.post("/api/events", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["success"]) == (422, False), payload
    assert (await court.get("/api/events"))["total"] == 0


# ── ids ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_no_id_leads_out_of_its_folder(court: WebCourt) -> None:
    secret = court.home.root / "secret.json"
    secret.write_text('{"id": "secret", "status": "found"}')
    routes = [
        ("GET", "/api/events/{}", None),
        ("GET", "/api/events/{}/trace", None),
        ("GET", "/api/tasks/{}", None),
        ("GET", "/api/tasks/{}/trace", None),
        ("GET", "/api/tasks/{}/transcript", None),
        ("POST", "/api/tasks/{}/cancel", None),
        ("POST", "/api/tasks/{}/retry", None),
        ("GET", "/api/messages/{}", None),
        ("POST", "/api/messages/{}/resend", None),
        ("POST", "/api/questions/{}/answer", {"text": "yes"}),
        ("GET", "/api/generals/{}", None),
        ("GET", "/api/bus/{}/streams", None),
        ("GET", "/api/bus/court/streams/{}/dead", None),
        ("GET", "/api/bus/court/streams/{}/throughput", None),
        ("POST", "/api/bus/court/streams/{}/dead/requeue", {"ids": ["evt-a-1"]}),
        ("GET", "/api/bus/court/events/{}", None),
        ("POST", "/hooks/generic/{}", {}),
    ]
    ids = ["..%2F..%2Fsecret", "%2e%2e%2fsecret", "..", ".hidden", "a%00b", "a%5C..%5Cb", "x" * 201]
    for method, route, body in routes:
        for given in ids:
            answer = await court.client.request(method, route.format(given), json=body)
            assert 400 <= answer.status_code < 500, (method, route, given, answer.text)
            assert answer.json()["success"] is False
            assert "found" not in answer.text
    refused = await court.refused("POST", "/api/bus/court/streams/events/dead/requeue", {"ids": ["../secret"]})
    assert refused == (422, "SYS_INVALID_ID")


async def test_what_is_not_there_is_told_as_that(court: WebCourt) -> None:
    for method, path in [
        ("GET", "/api/tasks/task-20260207-001"),
        ("GET", "/api/tasks/task-20260207-001/trace"),
        ("GET", "/api/tasks/task-20260207-001/transcript"),
        ("POST", "/api/tasks/task-20260207-001/cancel"),
        ("GET", "/api/events/evt-web-none"),
        ("GET", "/api/messages/msg-20260207-001"),
        ("GET", "/api/generals/gen-none"),
        ("GET", "/api/bus/elsewhere/streams"),
        ("GET", "/api/bus/workflow/events/none"),
        ("GET", "/api/report?date=2020-01-01"),
    ]:
        status, code = await court.refused(method, path)
        assert (status, code) == (404, "SYS_NOT_FOUND"), path


# ── the bus ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_dead_letters_are_shown_with_their_error_and_requeued_and_finished_ones_are_not(court: WebCourt) -> None:
    bus = court.context.court.bus
    ids = [await court.inject("test.dead", note=MARKUP, number=number) for number in range(3)]
    ids.append(await court.inject("test.done"))
    held = await bus.claim(EVENTS, worker="king", ids=ids)
    by_id = {delivery.event_id: delivery for delivery in held}
    await bus.settle(done=[by_id[ids[3]]], dead=[(by_id[one], "INVALID", f"no good: {MARKUP}") for one in ids[:3]])
    path = "/api/bus/court/streams/events/dead"
    first = await court.get(path, limit=2)
    second = await court.get(path, limit=2, cursor=first["nextCursor"])
    letters = first["items"] + second["items"]
    assert ({letter["eventId"] for letter in letters}, second["nextCursor"]) == (set(ids[:3]), None)
    assert {(letter["errorCode"], letter["errorMessage"]) for letter in letters} == {("INVALID", f"no good: {MARKUP}")}
    assert letters[0]["payload"]["value"]["payload"]["note"] == MARKUP
    streams = {stream["stream"]: stream for stream in (await court.get("/api/bus/court/streams"))["items"]}
    assert streams["events"]["dead"] == 3

    done = await court.post(f"{path}/requeue", {"ids": [ids[0], ids[3]]})
    assert done == {"requeued": 1, "skipped": [ids[3]]}
    event = await court.get(f"/api/bus/court/events/{ids[0]}")
    assert (event["status"], event["attempts"]) == ("PENDING", 0)
    assert (await court.get(f"/api/bus/court/events/{ids[3]}"))["status"] == "DONE"


async def test_a_large_payload_of_a_dead_letter_is_cut(court: WebCourt) -> None:
    bus = court.context.court.bus
    event_id = await court.inject("test.large", text="x" * 100_000)
    await bus.settle(dead=[(one, "INVALID", "large") for one in await bus.claim(EVENTS, worker="king", ids=[event_id])])
    (letter,) = (await court.get("/api/bus/court/streams/events/dead"))["items"]
    assert letter["payload"]["value"] is None
    assert letter["payload"]["size"] > 100_000 > len(letter["payload"]["text"])


async def test_a_file_nobody_understands_is_among_the_dead_letters(court: WebCourt) -> None:
    folder = court.home.queue / "events" / "invalid"
    (folder / "evt-odd.json").write_text("{not json")
    (folder / "evt-odd.json.reason").write_text(f"not JSON {MARKUP}")
    (letter,) = (await court.get("/api/bus/court/streams/events/dead"))["items"]
    assert (letter["eventId"], letter["requeueable"]) == ("evt-odd", False)
    assert letter["errorMessage"] == f"not JSON {MARKUP}"
    assert (await court.get("/api/events"))["total"] == 0
    assert (await court.get("/api/events", status="invalid"))["total"] == 1


async def test_dead_letters_of_the_workflow_bus_are_requeued_too(court: WebCourt) -> None:
    bus = court.context.buses()["workflow"]
    await bus.publish("workflow", Envelope("Odd", {"note": MARKUP}, "workflow", "w-1", event_id="e-1"))
    await bus.settle(dead=[(one, "REJECTED", "no") for one in await bus.claim("workflow", worker="w")])
    (letter,) = (await court.get("/api/bus/workflow/streams/workflow/dead"))["items"]
    assert (letter["aggregateId"], letter["payload"]["value"]) == ("w-1", {"note": MARKUP})
    assert (await court.post("/api/bus/workflow/streams/workflow/dead/requeue", {"ids": ["e-1"]}))["requeued"] == 1


async def test_a_message_that_failed_is_sent_again_and_one_that_waits_is_not(court: WebCourt) -> None:
    bus = court.context.court.bus
    made = {"type": "notification", "content": MARKUP, "created_at": "2026-02-07T12:00:00Z"}
    ids = ["msg-20260207-001", "msg-20260207-002"]
    await put_documents(bus, [Message.model_validate({**made, "id": one}) for one in ids])
    await bus.settle(dead=[(one, "REFUSED", "no") for one in await bus.claim(MESSAGES, worker="envoy", ids=ids[:1])])
    listed = await court.get("/api/messages", status="failed")
    assert [(one["id"], one["title"]) for one in listed["items"]] == [(ids[0], MARKUP)]
    await court.post(f"/api/messages/{ids[0]}/resend")
    assert (await court.get(f"/api/messages/{ids[0]}"))["status"] == "pending"
    assert await court.refused("POST", f"/api/messages/{ids[1]}/resend") == (409, "SYS_NOT_FAILED")


# ── generals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_general_that_cannot_be_used_is_listed_with_what_is_wrong(court: WebCourt) -> None:
    broken = court.home.general("gen-broken")
    broken.mkdir()
    (broken / "manifest.yaml").write_text("name: gen-broken\ndescription: <b>x</b>\nconcurrency: many\n")
    generals = {one["name"]: one for one in (await court.get("/api/generals"))["items"]}
    assert generals["gen-good"]["hears"] == ["test.good"]
    assert generals["gen-good"]["problems"] == []
    assert any("concurrency" in problem for problem in generals["gen-broken"]["problems"])
    assert (await court.get("/api/generals/gen-broken"))["manifest"] is None


@pytest.mark.parametrize("moment", ["24", "1700000000.5", "2026-02-07", "soon"])
async def test_a_time_that_is_no_date_and_time_is_refused(court: WebCourt, moment: str) -> None:
    for name in ("since", "until"):
        answer = await court.client.get("/api/tasks", params={name: moment})
        assert answer.status_code == 422, answer.text
        assert "2026-02-07T12:00:00Z" in answer.text
