"""The hub that delivers live events to listeners and connected clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from starlette.websockets import WebSocketDisconnect

from kingdom.web.live.event import FeedEvent, LiveEvent
from kingdom.web.live.feed import Feed
from kingdom.web.live.feeder import FeedWriter
from kingdom.web.record import STATE_FOLDER

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.workflow.ports import WorkflowStore


# Who wants to know what happens, and is told.
#
# Everybody reads from one shared piece of memory, the newest events; a client is a place in it, and no more. So a client
# that does not read costs nothing, and one that was away for longer is given what it missed from the feed on disk.


__all__ = ["Hub", "Listener", "LiveEvent", "open_hub"]

log = logging.getLogger("kingdom.web.live")
MAX_LIVE_CLIENTS: Final = 1_000
_MAX_RECENT_EVENTS: Final = 4_096
_MAX_RECENT_BYTES: Final = 16 * 1024 * 1024
_CHECK_SECONDS: Final = 0.5  # seconds between two looks at the clients

Listener: TypeAlias = Callable[[Sequence[LiveEvent]], None]


class LiveClient(Protocol):
    """Somebody connected from outside."""

    def look(self, now: float) -> None:
        """Is called twice a second: time to send a sign of life, or to give up on somebody."""

    def disconnect(self) -> None:
        """End the connection: the server stops."""


class Hub:
    """Tells listeners of this process what happens, in order."""

    def __init__(self, feed: Feed, store: WorkflowStore) -> None:
        self.feed = feed
        self.store = store
        self.head = feed.last
        """The number of the newest event that was told."""
        self.bytes_sent = 0
        """Counts over all events since the start: by it a client that does not read is measured."""
        self.clients: set[LiveClient] = set()
        self.trouble: Callable[[], str] = lambda: ""
        """Why nothing new is told; empty while all is well."""
        self._listeners: list[Listener] = []
        self._waiting: dict[str | None, set[Callable[[], None]]] = {}
        self._recent: list[FeedEvent] = []  # without a gap, up to `head`
        self._recent_bytes = 0

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have ``listener`` called, in the event loop, with what is new; returns the undo. It must not block."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def wake_for(self, workflow_id: str | None, wake: Callable[[], None]) -> Callable[[], None]:
        """Have ``wake`` called when there is something new of a workflow (None: of anybody); returns the undo."""
        waiting = self._waiting.setdefault(workflow_id, set())
        waiting.add(wake)

        def undo() -> None:
            waiting.discard(wake)
            if not waiting and self._waiting.get(workflow_id) is waiting:
                del self._waiting[workflow_id]

        return undo

    def recent(self, after: int, limit: int) -> Sequence[FeedEvent] | None:
        """What was told behind a number; None when that is not in memory: look into the feed."""
        start = after + 1 - (self.head + 1 - len(self._recent))
        return None if start < 0 or after > self.head else self._recent[start : start + limit]

    def tell(self, frames: Sequence[FeedEvent]) -> None:
        """Tell everybody what is new. It was kept before."""
        if not frames:
            return
        assert frames[0].sequence == self.head + 1
        self._keep(frames)
        for wake in [*self._waiting.get(None, ())]:
            wake()
        for workflow_id in {frame.workflow_id for frame in frames if frame.workflow_id in self._waiting} - {None}:
            for wake in [*self._waiting.get(workflow_id, ())]:
                wake()
        if self._listeners:
            events = [frame.event() for frame in frames]
            for listener in [*self._listeners]:
                try:
                    listener(events)
                except Exception:  # a page that breaks keeps nobody else from hearing
                    log.exception("a listener of live events failed")

    def skip_to(self, head: int) -> None:
        """Go on behind another number: what is in between can be had from nobody."""
        self.head = head
        self._recent, self._recent_bytes = [], 0
        for waiting in [*self._waiting.values()]:
            for wake in [*waiting]:
                wake()

    def disconnect(self) -> None:
        """End every connection from outside, so that a server can stop. They come back to the next one."""
        for client in [*self.clients]:
            client.disconnect()

    async def recall(self) -> None:
        """Take the newest events into memory: after a restart everybody comes back at once and asks for them."""
        found = await self.feed.after(max(0, self.head - _MAX_RECENT_EVENTS), _MAX_RECENT_EVENTS)
        frames = [frame for frame in found if frame.sequence <= self.head]
        if frames and frames[-1].sequence - frames[0].sequence == len(frames) - 1:
            self._recent, self._recent_bytes = frames, sum(len(frame.body) for frame in frames)
            self._forget()

    async def watch(self) -> None:
        """Look after the clients, for ever."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = clock()
            for client in [*self.clients]:
                client.look(now)

    def _keep(self, frames: Sequence[FeedEvent]) -> None:
        size = sum(len(frame.body) for frame in frames)
        self._recent += frames
        self._recent_bytes += size
        self.bytes_sent += size
        self.head = frames[-1].sequence
        if len(self._recent) > 2 * _MAX_RECENT_EVENTS or self._recent_bytes > 2 * _MAX_RECENT_BYTES:
            self._forget()

    def _forget(self) -> None:
        """Shorten what is in memory by half or more: not with each event, as a list is moved by it."""
        start = max(0, len(self._recent) - _MAX_RECENT_EVENTS)
        size = sum(len(frame.body) for frame in self._recent[start:])
        while size > _MAX_RECENT_BYTES:
            size -= len(self._recent[start].body)
            start += 1
        del self._recent[:start]
        self._recent_bytes = size


@contextlib.asynccontextmanager
async def open_hub(root: Path, store: WorkflowStore, services: Services | None) -> AsyncIterator[Hub]:
    """A hub that is fed with the events of the workflows of a store and the journal of a court.

    One process of a root writes the feed; others read it, and one of them takes over when the first is gone.
    """
    journal = None if services is None else services.home.journal
    async with Feed.open(root / STATE_FOLDER / "feed.db") as feed:
        hub = Hub(feed, store)
        await hub.recall()
        feeder = FeedWriter(feed, store, journal, hub.tell, hub.skip_to)
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


# What live connections have in common: when somebody reads too slowly, and when it is time for a sign of life.


MAX_BEHIND_EVENTS: Final = 2_000
MAX_BEHIND_BYTES: Final = 4 * 1024 * 1024
MAX_BEHIND_SECONDS: Final = 20.0


class LiveConnection:
    """A client as the hub sees it.

    It reads too slowly when one message to it is on its way so long that ``BEHIND_EVENTS`` events or ``BEHIND_BYTES``
    happened meanwhile, or ``BEHIND_SECONDS`` went by. Somebody who reads an old part of the feed is behind as well, but
    gets on.
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
        """Do the work of a connection until some of it ends: the client went, or :meth:`end` was called.

        Returns what ``end`` was given. Raises what broke, unless it was the connection.
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
        """Send something; the watch over slow clients looks on."""
        self._sending = (self._clock(), self.hub.head, self.hub.bytes_sent)
        await work
        self._sending = None
        self.sent_at = self._clock()

    def look(self, now: float) -> None:
        """Give up on a client that does not read; send a sign of life to one that heard nothing for a while."""
        if self._sending is not None:
            since, head, told = self._sending
            events, size = self.hub.head - head, self.hub.bytes_sent - told
            if events > MAX_BEHIND_EVENTS or size > MAX_BEHIND_BYTES or now - since > MAX_BEHIND_SECONDS:
                self.end(4429, f"you do not read: {events} events behind after {now - since:.0f} s")
        elif now - self.sent_at > self.idle / 3:
            self.sent_at = now
            self.send_keepalive()

    def send_keepalive(self) -> None:
        """Have a sign of life sent."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """End the connection: the server stops."""
        self.end(1012, "the server stops")

    def end(self, code: int, reason: str) -> None:
        """Have the connection closed."""
        if not self._over.done():
            self._over.set_result((code, reason))
