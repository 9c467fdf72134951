"""The hub that delivers live events to listeners and connected clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from starlette.websockets import WebSocketDisconnect

from kingdom.web.live.event import FeedEvent, LiveEvent
from kingdom.web.live.feed import FEED_FILE, Feed
from kingdom.web.live.feeder import FeedWriter
from kingdom.web.record import STATE_FOLDER

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.workflow.ports import WorkflowStore


log = logging.getLogger("kingdom.web.live")
MAX_LIVE_CLIENTS: Final = 1_000
_MAX_RECENT_EVENTS: Final = 4_096
_MAX_RECENT_BYTES: Final = 16 * 1024 * 1024
_CHECK_SECONDS: Final = 0.5  # interval of client checks

Listener: TypeAlias = Callable[[Sequence[LiveEvent]], None]


class Hub:
    """Delivers live events, in order, to listeners of this process and to connected clients.

    All clients read from one shared buffer of recent events; a client is only a position in it. So a client that does
    not read costs nothing, and one that was away longer reads what it missed from the feed on disk.
    """

    def __init__(self, feed: Feed, store: WorkflowStore) -> None:
        self.feed = feed
        self.store = store
        self.head = feed.last
        """The number of the newest delivered event."""
        self.bytes_sent = 0
        """Total size of delivered events since the start; used to detect clients that do not read."""
        self.clients: set[LiveConnection] = set()
        self.trouble: Callable[[], str] = lambda: ""
        """Returns the error that stopped the feed; empty if there is none."""
        self._listeners: list[Listener] = []
        self._waiting: dict[str | None, set[Callable[[], None]]] = {}
        self._recent: list[FeedEvent] = []  # without gaps, up to `head`
        self._recent_bytes = 0

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with new events, in the event loop; it must not block.

        Returns a function that removes it.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def wake_for(self, workflow_id: str | None, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` on new events of a workflow (None: of any source). Returns a function that removes it."""
        waiting = self._waiting.setdefault(workflow_id, set())
        waiting.add(wake)

        def undo() -> None:
            waiting.discard(wake)
            if not waiting and self._waiting.get(workflow_id) is waiting:
                del self._waiting[workflow_id]

        return undo

    def recent(self, after: int, limit: int) -> Sequence[FeedEvent] | None:
        """Return delivered events after a number; None if they are not in memory and must be read from the feed."""
        start = after + 1 - (self.head + 1 - len(self._recent))
        return None if start < 0 or after > self.head else self._recent[start : start + limit]

    def publish(self, events: Sequence[FeedEvent]) -> None:
        """Deliver new events. They are already stored."""
        if not events:
            return
        assert events[0].sequence == self.head + 1
        self._buffer(events)
        for wake in [*self._waiting.get(None, ())]:
            wake()
        for workflow_id in {event.workflow_id for event in events if event.workflow_id in self._waiting} - {None}:
            for wake in [*self._waiting.get(workflow_id, ())]:
                wake()
        if self._listeners:
            parsed = [event.event() for event in events]
            for listener in [*self._listeners]:
                try:
                    listener(parsed)
                except Exception:  # a failing listener must not keep others from the events
                    log.exception("a live event listener failed")

    def skip_to(self, head: int) -> None:
        """Continue after another number. The events in between are lost."""
        self.head = head
        self._recent, self._recent_bytes = [], 0
        for waiting in [*self._waiting.values()]:
            for wake in [*waiting]:
                wake()

    def disconnect(self) -> None:
        """End all client connections so that the server can stop. Clients reconnect to the next one."""
        for client in [*self.clients]:
            client.disconnect()

    async def load_recent(self) -> None:
        """Load the newest events into memory: after a restart all clients reconnect at once and ask for them."""
        found = await self.feed.after(max(0, self.head - _MAX_RECENT_EVENTS), _MAX_RECENT_EVENTS)
        events = [event for event in found if event.sequence <= self.head]
        if events and events[-1].sequence - events[0].sequence == len(events) - 1:
            self._recent, self._recent_bytes = events, sum(len(event.body) for event in events)
            self._trim()

    async def watch(self) -> None:
        """Check the clients at an interval, forever."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = clock()
            for client in [*self.clients]:
                client.check(now)

    def _buffer(self, events: Sequence[FeedEvent]) -> None:
        size = sum(len(event.body) for event in events)
        self._recent += events
        self._recent_bytes += size
        self.bytes_sent += size
        self.head = events[-1].sequence
        if len(self._recent) > 2 * _MAX_RECENT_EVENTS or self._recent_bytes > 2 * _MAX_RECENT_BYTES:
            self._trim()

    def _trim(self) -> None:
        """Drop the older half of the buffer. Not for every event, because deleting moves the whole list."""
        start = max(0, len(self._recent) - _MAX_RECENT_EVENTS)
        size = sum(len(event.body) for event in self._recent[start:])
        while size > _MAX_RECENT_BYTES:
            size -= len(self._recent[start].body)
            start += 1
        del self._recent[:start]
        self._recent_bytes = size


@contextlib.asynccontextmanager
async def open_hub(root: Path, store: WorkflowStore, services: Services | None) -> AsyncIterator[Hub]:
    """Open a hub for the events of a workflow store and the journal of a court.

    One process of a root writes the feed. Others read it, and one of them takes over when the first ends.
    """
    journal = None if services is None else services.home.journal
    async with Feed.open(root / STATE_FOLDER / FEED_FILE) as feed:
        hub = Hub(feed, store)
        await hub.load_recent()
        feeder = FeedWriter(feed, store, journal, hub.publish, hub.skip_to)
        hub.trouble = lambda: feeder.trouble
        await feeder.start()
        watchdog = asyncio.create_task(hub.watch(), name="web-live-watch")
        try:
            yield hub
        finally:
            hub.disconnect()
            watchdog.cancel()
            await feeder.stop()
            await asyncio.gather(watchdog, return_exceptions=True)


MAX_BEHIND_EVENTS: Final = 2_000
MAX_BEHIND_BYTES: Final = 4 * 1024 * 1024
MAX_BEHIND_SECONDS: Final = 20.0


class LiveConnection:
    """A connected client.

    A client reads too slowly if, while one message is being sent, ``MAX_BEHIND_EVENTS`` events or ``MAX_BEHIND_BYTES``
    arrive or ``MAX_BEHIND_SECONDS`` pass. A client that reads old events makes progress and is not too slow.
    """

    def __init__(self, hub: Hub, idle: float) -> None:
        self.hub = hub
        self._clock = asyncio.get_running_loop().time
        self.idle = idle
        self.sent_at = self._clock()
        self._sending: tuple[float, int, int] | None = None
        self.woken = asyncio.Event()
        self._over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def attend(self, *work: Coroutine[Any, Any, None]) -> tuple[int, str] | None:
        """Run the coroutines of a connection until one of them ends, or :meth:`end` is called.

        Returns the arguments of ``end``, if it was called. Raises errors other than a broken connection.
        """
        self.hub.clients.add(self)
        tasks = [asyncio.ensure_future(part) for part in work]
        try:
            await asyncio.wait({*tasks, self._over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.hub.clients.discard(self)
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, WebSocketDisconnect | OSError):
                raise end
        if not self._over.done():
            return None
        code, reason = self._over.result()
        return code, reason

    async def sending(self, work: Awaitable[None]) -> None:
        """Send a message and record its start, so that :meth:`check` can detect a slow client."""
        self._sending = (self._clock(), self.hub.head, self.hub.bytes_sent)
        await work
        self._sending = None
        self.sent_at = self._clock()

    def check(self, now: float) -> None:
        """Disconnect a client that does not read; send a keepalive to one that received nothing for a while."""
        if self._sending is not None:
            since, head, sent = self._sending
            events, size = self.hub.head - head, self.hub.bytes_sent - sent
            if events > MAX_BEHIND_EVENTS or size > MAX_BEHIND_BYTES or now - since > MAX_BEHIND_SECONDS:
                self.end(4429, f"reading too slowly: {events} events behind after {now - since:.0f} s")
        elif now - self.sent_at > self.idle / 3:
            self.sent_at = now
            self.send_keepalive()

    def send_keepalive(self) -> None:
        """Schedule a keepalive message."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """End the connection because the server stops."""
        self.end(1012, "the server is stopping")

    def end(self, code: int, reason: str) -> None:
        """Close the connection with a code and reason."""
        if not self._over.done():
            self._over.set_result((code, reason))
