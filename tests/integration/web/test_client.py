"""The client against a server that listens."""

from __future__ import annotations

import asyncio
import json
import queue
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from kingdom.client import Client, NoServer, Refused, ServerAway, find_server
from tests.support.live import PATIENCE, Ear, finish, happen
from tests.support.web import SETTINGS, TOKEN, opened, served
from tests.support.web_work import scripted


async def test_a_method_for_each_operation_lists_without_pages_and_news_as_they_come(tmp_path: Path) -> None:
    async with served(tmp_path, engine=True) as web:
        await asyncio.to_thread(_work, web.url)


def _work(url: str) -> None:
    with Client(url, TOKEN) as kingdom:
        template = kingdom.create_template(name="fix", works=[scripted("first"), scripted("second")])
        made = [
            kingdom.create_workflow(template_id=template["id"], name=f"number {n}", issue_key="WEB-42")
            for n in range(5)
        ]
        listed = list(kingdom.every(kingdom.list_workflows, limit=2))
        assert [one["name"] for one in listed] == [f"number {n}" for n in (4, 3, 2, 1, 0)]
        kingdom.start_workflow(made[0]["id"])
        types = []
        for event in kingdom.follow(workflow_id=made[0]["id"], last=0):
            types.append(event["event"]["type"])
            if types[-1] == "WorkflowCompleted":
                break
        assert types[0] == "WorkflowCreated"
        assert types.count("WorkCompleted") == 2
        assert kingdom.get_workflow(made[0]["id"])["status"] == "COMPLETED"
        assert kingdom.get_court()["running"] is False


async def test_a_refusal_has_the_code_the_status_and_the_details_of_the_server(tmp_path: Path) -> None:
    async with served(tmp_path) as web:
        with Client(web.url, TOKEN) as kingdom, pytest.raises(Refused, match="no workflow") as refused:
            await asyncio.to_thread(kingdom.get_workflow, "wf-none")
        assert (refused.value.status, refused.value.code) == (404, "WFL_NOT_FOUND")
        with Client(web.url, TOKEN) as kingdom, pytest.raises(Refused) as refused:
            await asyncio.to_thread(kingdom.create_git, name="", url="ext::sh")
        assert refused.value.status == 422
        assert {one["where"] for one in refused.value.details} == {"body.name"}
        with Client(web.url, TOKEN) as kingdom, pytest.raises(Refused, match=r"see details; query\.limit: .*100"):
            await asyncio.to_thread(kingdom.list_workflows, limit=1000)
        with Client(web.url, "wrong") as kingdom, pytest.raises(Refused) as refused:
            await asyncio.to_thread(kingdom.list_gits)
        assert refused.value.status == 401


def test_nobody_there_and_somebody_else_there_are_told_apart() -> None:
    with Client("http://127.0.0.1:1", TOKEN) as kingdom, pytest.raises(ServerAway, match="kingdom web"):
        kingdom.list_gits()
    other = httpx.MockTransport(lambda request: httpx.Response(200, json={"hello": "world"}))
    refused = pytest.raises(ServerAway, match="without an envelope")
    with Client("http://127.0.0.1", TOKEN, transport=other) as kingdom, refused:
        kingdom.list_gits()


def test_a_post_is_sent_again_with_the_same_key_and_a_busy_server_is_given_time() -> None:
    keys = []

    def answer(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) == 1:
            raise httpx.ReadError("broken", request=request)
        if len(keys) == 2:
            return httpx.Response(429, headers={"Retry-After": "0"}, json={"success": False, "error": {}})
        return httpx.Response(201, json={"success": True, "data": {"id": "git-1"}})

    with Client("http://127.0.0.1", TOKEN, transport=httpx.MockTransport(answer)) as kingdom:
        assert kingdom.create_git(name="a", url="https://example.org/a")["id"] == "git-1"
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_what_was_deleted_is_not_missed_when_its_answer_is_lost(tmp_path: Path) -> None:
    async with served(tmp_path) as web:
        lost = _LosingAnswers("DELETE")
        with Client(web.url, TOKEN, transport=lost) as kingdom:
            made = await asyncio.to_thread(kingdom.create_git, name="a", url="https://example.org/a", check=False)
            assert await asyncio.to_thread(kingdom.delete_git, made["id"]) == {"id": made["id"]}
            assert (await asyncio.to_thread(kingdom.list_gits))["items"] == []
        assert lost.lost == 1


def test_only_what_is_given_is_sent_and_nothing_where_nothing_is_given() -> None:
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content) if request.content else None)
        return httpx.Response(200, json={"success": True, "data": {}})

    with Client("http://127.0.0.1", TOKEN, transport=httpx.MockTransport(answer)) as kingdom:
        kingdom.inject_event(type="demo.hello", payload={"title": None})
        kingdom.land_workflow("wf-1")  # as its template says
        kingdom.land_workflow("wf-1", how="push", draft=False)
    assert sent == [{"type": "demo.hello", "payload": {"title": None}}, None, {"how": "push", "draft": False}]


async def test_who_follows_misses_nothing_when_the_server_is_started_again(tmp_path: Path) -> None:
    heard: queue.SimpleQueue[int] = queue.SimpleQueue()

    def follow(url: str) -> None:
        with Client(url, TOKEN) as kingdom:
            for event in kingdom.follow(types=["TaskStarted"], last=0):
                heard.put(event["sequenceNumber"])
                if event["sequenceNumber"] == 9:
                    return

    async with served(tmp_path) as web:
        await happen(web.context.parts.store, "wf-a", 3)
        following = asyncio.create_task(asyncio.to_thread(follow, web.url))
        assert [await asyncio.to_thread(heard.get, timeout=PATIENCE) for _ in range(3)] == [1, 2, 3]
        port = int(web.url.rpartition(":")[2])
    async with opened(tmp_path) as context:  # something happens while no server listens
        ear = Ear(context.live)
        await happen(context.parts.store, "wf-a", 2, start=3)
        await finish(context.parts.store, "wf-a")
        await ear.until(3)
    async with served(tmp_path, settings=replace(SETTINGS, port=port)) as web:
        await happen(web.context.parts.store, "wf-a", 3, start=5)
        await following
    assert [heard.get_nowait() for _ in range(heard.qsize())] == [4, 5, 7, 8, 9]


def test_who_follows_is_told_when_the_server_stays_away_and_at_once_when_it_never_was_there() -> None:
    asked: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("Last-Event-ID"))
        if len(asked) > 1:
            raise httpx.ConnectError("nobody", request=request)
        event = {"type": "event", "sequenceNumber": 5, "event": {"type": "task.started"}}
        return httpx.Response(200, text=f"id: 5\ndata: {json.dumps(event)}\n\n: still here\nid: 7\n\nid: 8\ndata: half")

    with Client("http://127.0.0.1", TOKEN, transport=httpx.MockTransport(answer)) as kingdom:
        news = kingdom.follow(types="task.*", patience=0)
        assert next(news)["sequenceNumber"] == 5
        with pytest.raises(ServerAway):
            next(news)
    assert asked == [None, "7"]  # of what came whole
    with Client("http://127.0.0.1:1", TOKEN) as kingdom, pytest.raises(ServerAway):
        next(kingdom.follow())


class _LosingAnswers(httpx.HTTPTransport):
    """Sends what it is given, and loses the first answer to a method."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.lost = 0
        self._method = method

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        if request.method == self._method and not self.lost:
            answer.close()
            self.lost += 1
            raise httpx.ReadError("broken", request=request)
        return answer


async def test_the_server_of_a_folder_is_found_while_it_runs(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="kingdom up"):
        find_server(tmp_path)
    (tmp_path / "state/web").mkdir(parents=True)
    (tmp_path / "state/web/token").write_text(f"{TOKEN}\n")
    async with served(tmp_path) as web:
        assert find_server(tmp_path) == find_server(str(tmp_path)) == (web.url, TOKEN)


def test_what_is_generated_is_what_the_document_says() -> None:
    root = Path(__file__).resolve().parents[3]
    script: dict[str, object] = {"__file__": str(root / "scripts/client"), "__name__": "client"}
    exec(compile((root / "scripts/client").read_text(), "scripts/client", "exec"), script)
    for path, text in script["written"]().items():  # type: ignore[operator]
        assert path.read_text() == text, f"{path.name} is stale: scripts/client"
