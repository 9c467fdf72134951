"""Live events as server-sent events: the same as over a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kingdom.web.live import hub as clients
from kingdom.web.live.protocol import CLOSE_CODES
from tests.support.live import PATIENCE, Ear, finish, happen, numbers, socket, stream, write
from tests.support.web import SETTINGS, Served, served


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        yield made


async def test_both_ways_tell_the_same_in_the_same_words(web: Served) -> None:
    store = web.context.parts.store
    async with socket(web) as client, stream(web.client, last=0) as listening:
        await client.subscribe(lastSequenceNumber=0)
        first = await anext(listening)
        assert first == (0, {"type": "subscribed", "workflowId": None, "sequenceNumber": 0})
        for number in range(10):
            await happen(store, "wf-a", 2)
            write(web.context, number)
        by_socket = await client.events(30)
        by_stream = [await anext(listening) for _ in range(30)]
    assert [message for _, message in by_stream] == by_socket
    assert [number for number, _ in by_stream] == numbers(by_socket) == list(range(1, 31))


async def test_a_browser_that_comes_back_with_its_last_number_misses_nothing(web: Served) -> None:
    store, heard = web.context.parts.store, [0]
    for life in range(6):
        await happen(store, "wf-a", 3)
        async with stream(web.client, last=heard[-1]) as listening:
            assert (await anext(listening))[0] == heard[-1]
            await happen(store, "wf-a", 2)
            heard += [(await anext(listening))[0] for _ in range(life % 3 + 1)]
    assert heard == list(range(len(heard)))


async def test_a_workflow_and_types_are_chosen_in_the_query(web: Served) -> None:
    store = web.context.parts.store
    await happen(store, "wf-a", 3)
    await happen(store, "wf-b")
    query = {"workflowId": "wf-a", "types": "TaskCompleted, task.*", "lastEventId": "1"}
    async with stream(web.client, **query) as listening:
        assert await anext(listening) == (1, {"type": "subscribed", "workflowId": "wf-a", "sequenceNumber": 1})
        await finish(store, "wf-b")
        await finish(store, "wf-a")
        number, message = await anext(listening)
    assert (number, message["event"]["type"], message["workflowId"]) == (4, "TaskCompleted", "wf-a")


async def test_a_number_that_was_never_given_is_answered_with_a_reset_and_events_go_on(web: Served) -> None:
    async with stream(web.client, last=77) as listening:
        assert (await anext(listening))[1]["type"] == "subscribed"
        number, message = await anext(listening)
        assert (number, message["type"], message["sequenceNumber"]) == (0, "reset", 0)
        await happen(web.context.parts.store, "wf-a")
        assert (await anext(listening))[0] == 1


async def test_what_cannot_be_followed_is_refused_in_the_envelope(web: Served) -> None:
    for query, status, code in (
        ("lastEventId=seven", 422, "SYS_INVALID"),
        ("lastEventId=-1", 422, "SYS_INVALID"),
        ("lastEventId=%C2%B2", 422, "SYS_INVALID"),
        ("lastEventId=" + "9" * 30, 422, "SYS_INVALID"),
        ("workflowId=wf-nowhere", 404, "WFL_NOT_FOUND"),
        ("workflowId=", 422, "SYS_INVALID"),
    ):
        answer = await web.client.get(f"/api/stream?{query}")
        told = answer.json()
        assert (answer.status_code, told["success"], told["error"]["code"]) == (status, False, code), query


async def test_signs_of_life_carry_the_number_that_was_reached(tmp_path: Path) -> None:
    async with (
        served(tmp_path, settings=replace(SETTINGS, idle_seconds=1.0)) as web,
        web.client.stream("GET", "/api/stream?types=nothing.of.this", timeout=PATIENCE) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "no-store" in response.headers["cache-control"]
        lines = response.aiter_lines()
        assert await anext(lines) == "retry: 1000"
        await happen(web.context.parts.store, "wf-a", 4)
        async with asyncio.timeout(PATIENCE):
            while await anext(lines) != "id: 4":
                pass


async def test_who_leaves_is_forgotten(web: Served) -> None:
    hub = web.context.live
    async with stream(web.client) as listening:
        await anext(listening)
        assert len(hub.clients) == 1
    async with asyncio.timeout(PATIENCE):
        while hub.clients:
            await asyncio.sleep(0.01)


async def test_a_stream_that_is_not_read_is_dropped_and_what_it_missed_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MAX_BEHIND_EVENTS", 20)
    async with served(tmp_path) as web:
        hub, store, ear, sent = web.context.live, web.context.parts.store, Ear(web.context.live), 0
        async with stream(web.client) as listening:
            await anext(listening)
            async with asyncio.timeout(PATIENCE):
                while hub.clients:
                    for task in range(10):
                        await finish(store, "wf-a", f"task-{task}-" + "x" * 100_000)
                    sent += 10
                    await ear.until(sent)
        async with stream(web.client, last=sent - 3) as listening:
            assert [(await anext(listening))[0] for _ in range(4)] == [sent - 3, sent - 2, sent - 1, sent]


async def test_a_server_that_stops_ends_its_streams_properly(tmp_path: Path) -> None:
    async with served(tmp_path) as web, stream(web.client) as listening:
        await anext(listening)
        web.context.live.disconnect()
        rest = [message async for message in listening]
    assert rest == []


async def test_the_protocol_is_described_with_everything_that_is_said(web: Served) -> None:
    told = (await web.client.get("/api/stream/protocol")).json()["data"]
    actions = set(told["client"]["discriminator"]["mapping"])
    types = set(told["server"]["discriminator"]["mapping"])
    assert actions == {"subscribe", "unsubscribe", "ping", "pong"}
    assert types == {"event", "events", "subscribed", "unsubscribed", "reset", "ping", "pong", "error"}
    assert set(told["closeCodes"]) == {str(code) for code in CLOSE_CODES}
    paths = (await web.client.get("/api/openapi.json")).json()["paths"]
    answer = paths["/api/stream"]["get"]["responses"]["200"]["content"]
    assert set(answer) == {"text/event-stream"}
