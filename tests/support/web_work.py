"""Workflows over the web in a test: what a client asks for, and waiting until something came of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.repositories import Remote
from tests.support.web import Web

REPORT = "## Findings\n\nAll is well.\n"
Body = dict[str, Any]


def scripted(name: str, *steps: Body, **more: Any) -> Body:
    """A work that plays a script."""
    script = {"steps": list(steps) or [{"say": "done"}], "on_resume": [{"say": REPORT}]}
    task = {"name": "one", "query": "Do {{ issue.key | default('it') }}.", "retries": 0}
    return {"name": name, "engine": "scripted", "engineOptions": {"script": script}, "tasks": [task], **more}


def write(path: str, text: str) -> Body:
    """A step that writes a file."""
    return {"write": {"path": path, "text": text}}


def remote(folder: Path) -> Remote:
    """A repository to work on."""
    made = Remote(folder / "remote")
    made.commit({"README": "hello\n"})
    return made


def wait_for_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have routes that start long commands wait until these are refused, however slow the machine is."""
    monkeypatch.setattr("kingdom.web.api.workflows._REFUSAL_SECONDS", 30.0)


class Desk:
    """A client that expects what it asks for to be done."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.client = web.client

    async def get(self, path: str, **query: Any) -> Any:
        """What is there."""
        return data(await self.client.get(f"/api/{path}", params=query))

    async def post(self, path: str, body: Body | None = None, status: int = 201) -> Any:
        """What was made, or done."""
        return data(await self.client.post(f"/api/{path}", json=body), status)

    async def template(self, *works: Body, git: str | None = None, name: str = "fix", **more: Any) -> str:
        """A template of these works; returns its id."""
        refs = [] if git is None else [{"gitId": git}]
        made = await self.post("workflow-templates", {"name": name, "works": list(works), "gitRefs": refs, **more})
        return str(made["id"])

    async def until(self, workflow_id: str, *statuses: str, works: int = 1) -> Body:
        """The workflow, once it is in one of these states and has so many works."""
        happened = asyncio.Event()
        undo = self.web.context.live.listen(lambda _: happened.set())
        try:
            async with asyncio.timeout(30):
                while True:
                    found = await self.get(f"workflows/{workflow_id}")
                    if found["status"] in statuses and len(found["works"]) >= works:
                        break
                    await happened.wait()
                    happened.clear()
        finally:
            undo()
        whole: Body = found
        return whole


def data(answer: httpx.Response, status: int = 200) -> Any:
    """The data of an answer that has to be a good one."""
    assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
    body = answer.json()
    assert body["success"] is True
    return body["data"]


def error(answer: httpx.Response, status: int, code: str) -> Body:
    """The error of an answer that has to be this one."""
    assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
    body = answer.json()
    assert body["success"] is False
    assert body["error"]["code"] == code, body["error"]
    told: Body = body["error"]
    return told
