"""An envoy in a Slack of our own, with a clock that is moved by hand."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kingdom.bus import RetryPolicy
from kingdom.court.config import SystemConfig
from kingdom.court.envoy.config import SlackSection, SlackTokens
from kingdom.court.envoy.role import Envoy
from kingdom.court.envoy.slack.context import SlackContext
from kingdom.court.envoy.slack.listener import SlackInbox, SlackListener
from kingdom.court.envoy.slack.sender import SlackSender
from kingdom.court.home import Home
from kingdom.court.loop import Services
from kingdom.court.models import Event, Message, timestamp
from kingdom.court.queues import EVENTS, declare_queues, open_queues, put_documents
from kingdom.journal import Journal
from tests.support.fake_slack import ANN, APP_TOKEN, BEN, BOT_TOKEN, FakeSlack
from tests.support.kings import Clock

TASK = "task-20260207-001"
EVENT = "evt-github-1"


class Embassy:
    """A home, its queues, a Slack, and envoys that come and go."""

    def __init__(self, root: Path, **config: Any) -> None:
        self.home = Home(root)
        self.clock = Clock()
        self.slack = FakeSlack(self.clock)
        self.system = SystemConfig.model_validate({"channel": "#kingdom", "locale": config.pop("locale", "en")})
        self._config = {"users": [ANN, BEN], "posts_per_second": 20.0, **config}
        self.services: Services
        self.home.logs.mkdir(parents=True, exist_ok=True)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Embassy]:
        """The same, with everything running."""
        async with open_queues(self.home.queue_url) as bus, self.slack.serve():
            await declare_queues(bus)
            journal = Journal(self.home.journal, self.clock)
            self.services = Services(self.home, bus, journal, self.clock)
            try:
                yield self
            finally:
                journal.close()

    def envoy(self, services: Services | None = None, *, seconds: float = 10.0, attempts: int = 12) -> Envoy:
        """An envoy who has just been sent; :meth:`Envoy.start` is still to be called."""
        config = SlackSection.model_validate({**self._config, "api_url": self.slack.url})
        context = SlackContext(
            services or self.services, config, self.system, SlackTokens(BOT_TOKEN, APP_TOKEN), api_seconds=seconds
        )
        retries = RetryPolicy(base=1.0, jitter=0, max_attempts=attempts)
        listener = SlackListener(context, back_off=(0.01, 0.05))
        return Envoy(services or self.services, SlackSender(context), listener, retries=retries)

    @contextlib.asynccontextmanager
    async def sent(self, **options: Any) -> AsyncIterator[Envoy]:
        """An envoy who listens; he is not yet told to look."""
        role = self.envoy(**options)
        undo = role.subscribe(lambda: None)
        try:
            await role.start()
            yield role
        finally:
            undo()
            await role.stop()

    async def tell(self, number: int, kind: str = "notification", content: str = "hello", **context: Any) -> None:
        """Put a message into the queue."""
        message = Message(
            id=f"msg-20260207-{number:03d}",
            type=kind,  # type: ignore[arg-type]
            content=content,
            context={"task_id": TASK, "event_id": EVENT, **context},
            created_at=timestamp(self.clock()),  # type: ignore[arg-type]
        )
        await put_documents(self.services.bus, [message])

    async def event(self, event_id: str = EVENT, *, done: bool = False) -> None:
        """Put an event into the queue, and end it."""
        now = timestamp(self.clock())
        event = Event(id=event_id, type="github.pr.opened", source="github", created_at=now)  # type: ignore[arg-type]
        await put_documents(self.services.bus, [event])
        if done:
            claimed = await self.services.bus.claim(EVENTS, worker="king", ids=[event_id])
            await self.services.bus.settle(done=claimed)

    async def answer(self, text: str, user: str) -> None:
        """Answer the question of the task on the console."""
        event = Event(
            id=f"evt-console-response-{TASK}-1",
            type="console.human_response",
            source="console",
            payload={"task_id": TASK, "text": text, "user": user},
            created_at=timestamp(self.clock()),  # type: ignore[arg-type]
        )
        await put_documents(self.services.bus, [event])

    def hear(self, envelope: dict[str, Any]) -> None:
        """An envelope that was received and acknowledged, whoever did it."""
        self.clock.now += 0.001
        SlackInbox(self.home, self.clock).store(envelope)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────

    def state(self, name: str) -> dict[str, Any]:
        """One of the envoy's state files."""
        path = self.home.role("envoy") / f"{name}.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def messages(self, state: str) -> list[str]:
        """The messages in a state."""
        return sorted(path.stem for path in (self.home.queue / "messages" / state).glob("*.json"))

    def events(self) -> list[dict[str, Any]]:
        """The events that wait, by id."""
        folder = self.home.queue / "events" / "pending"
        return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]

    def journal(self, kind: str) -> list[dict[str, Any]]:
        """The data of the lines of one type."""
        path = self.home.journal
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line["data"] for line in lines if line["type"] == kind]

    def inbox(self) -> list[str]:
        """What waits in the inbox."""
        return sorted(path.name for path in (self.home.role("envoy") / "inbox").iterdir())
