"""A king in a temporary home, with a clock that is moved by hand and generals that end at once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from kingdom.base.files import write_atomic
from kingdom.bus import EventBus
from kingdom.court.config import SystemConfig
from kingdom.court.home import Home
from kingdom.court.king.admission import Gate
from kingdom.court.king.king import King
from kingdom.court.loop import Services
from kingdom.court.models import DETECTED_BY, Event, Message, Task, timestamp
from kingdom.court.packages.installed import GeneralsCache
from kingdom.court.queues import EVENTS, TASKS, declare_queues, open_queues, put_documents
from kingdom.journal import Journal, Reader
from tests.support.queued import database, forget, lying

NOON = datetime(2026, 2, 7, 12, tzinfo=UTC).timestamp()


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Realm:
    """A home with queues, and everything a test does to it.

    ``queues``: what they are in, ``files`` or an ``sqlite`` database.
    """

    def __init__(self, root: Path, queues: str = "files", **config: Any) -> None:
        self.home = Home(root)
        self.queue_url = self.home.queue_url if queues == "files" else f"sqlite://{database(self.home)}"
        self.clock = Clock()
        self.config = SystemConfig.model_validate({"concurrency": {"max_soldiers": 100}, **config})
        self.bus: EventBus
        for folder in (self.home.results, self.home.logs, self.home.generals):
            folder.mkdir(parents=True, exist_ok=True)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Realm]:
        """The same, with its queues open."""
        async with open_queues(self.queue_url) as self.bus:
            await declare_queues(self.bus)
            yield self

    def king(self, gates: Sequence[Gate] = (), bus: Any = None) -> King:
        """A king who has just come to the throne; :meth:`King.start` is still to be called."""
        services = Services(self.home, bus or self.bus, Journal(self.home.journal, self.clock), self.clock)
        return King(services, self.config, GeneralsCache(self.home).current, gates)

    def install(self, name: str = "gen-pr", **manifest: Any) -> None:
        """Put a general into its place."""
        folder = self.home.general(name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prompt.md").write_text("Do it.\n")
        document = {"name": name, "description": "for tests", "concurrency": 50, **manifest}
        if not manifest.get("schedules"):
            document.setdefault("subscribes", ["github.pr.*"])
        write_atomic(folder / "manifest.yaml", yaml.safe_dump(document))

    async def event(self, number: int | str = 1, kind: str = "github.pr.opened", **fields: Any) -> str:
        """Put an event into the queue; returns its id."""
        source = kind.partition(".")[0]
        document = {
            "id": f"evt-{source}-{number}",
            "type": kind,
            "source": source,
            "created_at": timestamp(self.clock()),
            "payload": {"title": f"change {number}"},
            DETECTED_BY: "sentinel",
            **fields,
        }
        await put_documents(self.bus, [Event.model_validate(document)])
        return str(document["id"])

    async def answer(self, task_id: str, text: str, number: int = 1) -> str:
        """Answer a question."""
        payload = {"task_id": task_id, "text": text, "user": "ann"}
        return await self.event(f"response-{task_id}-{number}", "console.human_response", payload=payload)

    async def command(self, word: str, task_id: str, number: int = 1) -> str:
        """Cancel a task, or have it tried again."""
        payload = {"task_id": task_id, "user": "ann"}
        return await self.event(f"{word}-{task_id}-{number}", f"console.task_{word}", payload=payload)

    async def work(self, *general: str, status: str = "success", limit: int = 1000, **result: Any) -> list[Task]:
        """Be the generals: take up the tasks that wait and end each at once. Returns them."""
        done: list[Task] = []
        for name in general or ("gen-pr",):
            for delivery in await self.bus.claim(TASKS, worker=name, types=[name], limit=limit, lease=60):
                task = Task.model_validate(delivery.envelope.payload)
                done.append(task)
                self.result(task.id, name, status=status, **result)
                outcome = status if status in ("failed", "needs_human", "cancelled") else None
                await self.bus.settle(done=[(delivery, outcome)])
        return done

    def result(self, task_id: str, general: str = "gen-pr", **fields: Any) -> None:
        """Write the result of a task."""
        now = timestamp(self.clock())
        document = {"summary": f"did {task_id}", "started_at": now, "ended_at": now, **fields}
        write_atomic(self.home.result(task_id), json.dumps({"task_id": task_id, "general": general, **document}))

    def lose(self, stream: str, document_id: str) -> None:
        """Take a document away, past the bus."""
        forget(self.home, stream, document_id)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────

    def documents(self, stream: str, state: str) -> list[dict[str, Any]]:
        """The documents in a state, by id."""
        return [document for found, document in lying(self.home, stream) if found == state]

    def ids(self, stream: str, state: str) -> list[str]:
        """Their ids."""
        return [str(document["id"]) for document in self.documents(stream, state)]

    def tasks(self, state: str = "pending") -> list[Task]:
        """Tasks in a state."""
        return [Task.model_validate(document) for document in self.documents(TASKS, state)]

    def messages(self) -> list[Message]:
        """Messages that wait to be sent, in the order of their ids."""
        found = [Message.model_validate(document) for document in self.documents("messages", "pending")]
        return sorted(found, key=lambda message: (len(message.id), message.id))

    def said(self) -> list[str]:
        """The types of those messages."""
        return [message.type for message in self.messages()]

    def journal(self) -> list[tuple[str, dict[str, Any]]]:
        """What was written into the journal."""
        with Reader(self.home.journal, self.home.state / "test.cursor") as reader:
            return [(event.type, dict(event.fields)) for event in reader.read()]

    def where(self, event_id: str) -> tuple[str, str]:
        """The directory an event lies in, and the status it says."""
        found = [
            (state, str(document["status"]))
            for state in ("pending", "dispatched", "completed")
            for document in self.documents(EVENTS, state)
            if document["id"] == event_id
        ]
        assert len(found) == 1, f"{event_id} is in {found}"
        return found[0]


async def looks(king: King) -> None:
    """Have a king look until nothing wants to be looked at at once."""
    while await king.tick() == 0.0:
        pass
