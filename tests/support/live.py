"""Live events in tests: make something happen, and hear of it as clients do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from kingdom.journal import Journal
from kingdom.workflow.domain.events import TaskCompleted, TaskStarted
from kingdom.workflow.ports import RecordedEvent

if TYPE_CHECKING:
    from kingdom.web.context import WebContext
    from kingdom.web.live.event import LiveEvent
    from kingdom.web.live.hub import Hub
    from kingdom.workflow.ports import WorkflowStore
    from tests.support.web import Served

PATIENCE = 30.0  # seconds before a test gives up


async def happen(store: WorkflowStore, workflow_id: str, count: int = 1, *, start: int = 0) -> None:
    """Have a workflow tell that tasks began, in one transaction."""
    async with store.transaction() as tx:
        for number in range(start, start + count):
            tx.record(RecordedEvent(TaskStarted("work-1", f"task-{number}"), "Workflow", workflow_id))


async def finish(store: WorkflowStore, workflow_id: str, task: str = "task-0") -> None:
    """Have a workflow tell that a task is done."""
    async with store.transaction() as tx:
        tx.record(RecordedEvent(TaskCompleted("work-1", task), "Workflow", workflow_id))


def write(context: WebContext, number: int) -> None:
    """Have a line written into the journal."""
    emit(context.court.journal, number)


def emit(journal: Journal, number: int) -> None:
    """The same, for who has the journal only."""
    journal.emit("task.started", "gen-test", {"task_id": f"task-{number}"})


class Socket:
    """A client of ``/ws/events``."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, action: str, **fields: Any) -> None:
        await self.connection.send(json.dumps({"action": action, **fields}))

    async def hear(self) -> dict[str, Any]:
        """The next message that is no sign of life."""
        while True:
            message: dict[str, Any] = json.loads(await self._next())
            if message["type"] != "ping":
                return message

    async def subscribe(self, **fields: Any) -> dict[str, Any]:
        await self.say("subscribe", **fields)
        return await self.hear()

    async def events(self, count: int) -> list[dict[str, Any]]:
        """The next events, whether they come one by one or together."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            message = await self.hear()
            assert message["type"] in ("event", "events"), message
            found += message["items"] if message["type"] == "events" else [message]
        return found

    async def closed(self) -> tuple[int, str]:
        """Read on until it is closed; why it was."""
        with contextlib.suppress(Exception):
            while True:
                await self._next()
        assert self.connection.close_code is not None
        return self.connection.close_code, self.connection.close_reason or ""

    async def _next(self) -> str | bytes:
        # Not wait_for: before Python 3.12 it may return what came in the moment of a cancellation, and drop that.
        async with asyncio.timeout(PATIENCE):
            return await self.connection.recv()


@contextlib.asynccontextmanager
async def socket(web: Served, **options: Any) -> AsyncIterator[Socket]:
    """Connect, with the token."""
    headers = {"Authorization": f"Bearer {web.context.token}"}
    url = f"{web.websocket_url}/ws/events"
    async with connect(url, additional_headers=headers, compression=None, proxy=None, **options) as connection:
        yield Socket(connection)


@contextlib.asynccontextmanager
async def stream(
    client: httpx.AsyncClient, *, last: int | None = None, **query: Any
) -> AsyncIterator[AsyncIterator[tuple[int, dict[str, Any]]]]:
    """``/api/stream`` as a browser reads it: number and message of each event."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    async with client.stream("GET", "/api/stream", params=query, headers=headers, timeout=PATIENCE) as response:
        assert response.status_code == 200, (await response.aread()).decode()
        yield _parsed(response)


async def _parsed(response: httpx.Response) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    number, data = -1, ""
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("data: "):
            data += line[6:]
        elif not line and data:
            yield number, json.loads(data)
            data = ""


def numbers(messages: list[dict[str, Any]]) -> list[int]:
    """The numbers of events, in the order in which they came."""
    return [message["sequenceNumber"] for message in messages]


class Ear:
    """Hears what a hub tells inside its process."""

    def __init__(self, hub: Hub) -> None:
        self.heard: list[LiveEvent] = []
        self._more = asyncio.Event()
        self.undo = hub.listen(self._hear)

    def _hear(self, events: Sequence[LiveEvent]) -> None:
        self.heard += events
        self._more.set()

    async def until(self, count: int) -> list[LiveEvent]:
        """Wait until that many events were heard in all."""
        async with asyncio.timeout(PATIENCE):
            while len(self.heard) < count:
                self._more.clear()
                await self._more.wait()
        return self.heard


class Wanderer:
    """A client that comes and goes, and asks each time for what it missed."""

    def __init__(self, url: str, token: str, seed: int, *, workflow_id: str | None = None, batch: bool = False) -> None:
        self._url = f"{url.replace('http', 'ws', 1)}/ws/events"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._random = random.Random(seed)
        self._wanted = {"batch": batch} if workflow_id is None else {"batch": batch, "workflowId": workflow_id}
        self.heard: list[int] = []
        """Every number, in the order in which it came."""

    async def lives(self, count: int) -> None:
        """Connect that often; leave each time after some events, or some moments, politely or not."""
        for _ in range(count):
            await self._live(self._random.randrange(25), self._random.uniform(0, 0.05))

    async def until(self, number: int) -> None:
        """Once more, up to a number."""
        missing = number - (self.heard[-1] if self.heard else 0)
        if missing > 0:
            await self._live(missing, PATIENCE)

    async def _live(self, events: int, seconds: float) -> None:
        last = self.heard[-1] if self.heard else 0
        # A queue without a bound: a client whose queue is full reads no more, not even the answer to its good-bye.
        async with connect(
            self._url, additional_headers=self._headers, compression=None, proxy=None, max_queue=None
        ) as connection:
            client = Socket(connection)
            told = await client.subscribe(lastSequenceNumber=last, **self._wanted)
            assert (told["type"], told["sequenceNumber"]) == ("subscribed", last)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while events > 0:
                        more = await client.events(1)
                        self.heard += numbers(more)
                        events -= len(more)
            if self._random.random() < 0.5:
                connection.transport.abort()
