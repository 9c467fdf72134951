"""A court behind its web: king and generals at work in the same event loop, their soldiers played from scripts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from kingdom.court.bootstrap import make_role
from kingdom.court.home import MARKER, Home
from kingdom.court.loop import run_role
from tests.support.web import Web, web_app

PATIENCE = 30.0  # seconds; what is waited for comes far sooner, unless the machine is busy
SCRIPTS: dict[str, Any] = {
    "gen-good": [
        {"say": "Looking at {title}"},
        {"tool": {"name": "Read", "detail": "README.md"}},
        {"usage": {"input": 10, "output": 5, "cost_usd": 0.25}},
        {"result": {"status": "success", "summary": "All of {title} is well."}},
    ],
    "gen-ask": {
        "steps": [{"ask": {"question": "Red or blue?", "choices": ["red", "blue"]}}],
        "on_resume": [{"result": {"status": "success", "summary": "It is {answer} now."}}],
    },
    "gen-slow": [{"say": "I take my time."}, {"wait": 600}],
}


class WebCourt:
    """The home, its web, and waiting for what must come."""

    def __init__(self, home: Home, web: Web) -> None:
        self.home = home
        self.web = web
        self.context, self.app, self.client = web
        self._news = asyncio.Event()

    async def get(self, path: str, **query: Any) -> Any:
        """The data of a request that must succeed."""
        answer = await self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    async def post(self, path: str, body: Any = None) -> Any:
        """The data of a request that must be carried out."""
        answer = await self.client.post(path, json=body)
        assert answer.status_code in (200, 201, 202), answer.text
        return answer.json()["data"]

    async def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """The status and the code of a request that must be refused, in the envelope."""
        answer = await self.client.request(method, path, json=body)
        document = answer.json()
        assert document["success"] is False
        return answer.status_code, document["error"]["code"]

    async def inject(self, kind: str, **payload: Any) -> str:
        """Put an event in; returns its id."""
        made = await self.post("/api/events", {"type": kind, "payload": payload})
        return str(made["id"])

    async def until(self, path: str, condition: Callable[[Any], Any], **query: Any) -> Any:
        """Ask until the data fulfils a condition, whenever the live events tell of something; returns what it gave."""
        undo = self.context.live.listen(lambda events: self._news.set())
        end = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < end:
                self._news.clear()
                data = await self.get(path, **query)
                if found := condition(data):
                    return found
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.25)
        finally:
            undo()
        raise AssertionError(f"{path} never told what was waited for: {data}")

    async def task_of(self, event_id: str, status: str) -> str:
        """The id of the task of an event, once it has that status."""

        def found(page: Any) -> Any:
            return [one["id"] for one in page["items"] if (one["event_id"], one["status"]) == (event_id, status)]

        return str((await self.until("/api/tasks", found, limit=100))[0])

    @contextlib.asynccontextmanager
    async def working(self, *roles: str) -> AsyncIterator[None]:
        """King and these generals at work."""
        stop = asyncio.Event()
        services = self.context.court
        running = [
            asyncio.create_task(run_role(make_role(name, services), services, stop)) for name in ("king", *roles)
        ]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*running)


@contextlib.asynccontextmanager
async def web_court(root: Path, queues: str | None = None) -> AsyncIterator[WebCourt]:
    """A home with the generals of :data:`SCRIPTS`, and its web. Nobody works until :meth:`WebCourt.working`.

    ``queues`` is the URL of a database for them.
    """
    home = Home(root)
    home.config.mkdir(parents=True, exist_ok=True)
    transport = "" if queues is None else f"queue: {{transport: '{queues}'}}\n"
    (home.root / MARKER).write_text(f"budget: {{daily_usd: 10}}\n{transport}")
    for name, script in SCRIPTS.items():
        folder = home.general(name)
        folder.mkdir(parents=True)
        (folder / "prompt.md").write_text("Do it.\n")
        manifest = {
            "name": name,
            "description": "Plays a script.",
            "engine": {"name": "scripted", "options": {"script": script}},
            "subscribes": [f"test.{name.removeprefix('gen-')}"],
            "fetch_repo": False,
            "retries": 0,
        }
        (folder / "manifest.yaml").write_text(json.dumps(manifest))
    async with web_app(root, court=False) as web:
        yield WebCourt(home, web)
