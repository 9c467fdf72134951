"""The client against a server that listens."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from kingdom.client import Client, NoServer, Refused, ServerAway, find_server
from tests.support.web import TOKEN, served
from tests.support.web_work import scripted


async def test_a_method_for_each_operation_lists_without_pages_and_news_as_they_come(tmp_path: Path) -> None:
    async with served(tmp_path, engine=True) as web:
        await asyncio.to_thread(_work, web.url)


def _work(url: str) -> None:
    with Client(url, TOKEN) as kingdom:
        template = kingdom.create_template({"name": "fix", "works": [scripted("first"), scripted("second")]})
        made = [
            kingdom.create_workflow({"templateId": template["id"], "name": f"number {n}", "issueKey": "WEB-42"})
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
            await asyncio.to_thread(kingdom.create_git, {"name": "", "url": "ext::sh"})
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
        assert kingdom.create_git({"name": "a", "url": "https://example.org/a"})["id"] == "git-1"
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_what_was_deleted_is_not_missed_when_its_answer_is_lost(tmp_path: Path) -> None:
    async with served(tmp_path) as web:
        lost = _LosingAnswers("DELETE")
        with Client(web.url, TOKEN, transport=lost) as kingdom:
            made = await asyncio.to_thread(
                kingdom.create_git, {"name": "a", "url": "https://example.org/a", "check": False}
            )
            assert await asyncio.to_thread(kingdom.delete_git, made["id"]) == {"id": made["id"]}
            assert (await asyncio.to_thread(kingdom.list_gits))["items"] == []
        assert lost.lost == 1


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
