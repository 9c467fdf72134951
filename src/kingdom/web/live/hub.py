"""Who wants to know what happens, and is told.

Everybody reads from one shared piece of memory, the newest events; a client is a place in it, and no more. So a client
that does not read costs nothing, and one that was away for longer is given what it missed from the feed on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kingdom.web.live.event import Frame, LiveEvent
from kingdom.web.live.feeding import Feeder
from kingdom.web.live.storing import Feed
from kingdom.web.record import FOLDER

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.workflow.ports import Store

__all__ = ["Hub", "Listener", "LiveEvent", "open_hub"]

log = logging.getLogger("kingdom.web.live")
MAX_CLIENTS: Final = 1_000
_RECENT_EVENTS: Final = 4_096
_RECENT_BYTES: Final = 16 * 1024 * 1024
_LOOK_EVERY: Final = 0.5  # seconds between two looks at the clients

Listener: TypeAlias = Callable[[Sequence[LiveEvent]], None]


class Client(Protocol):
    """Somebody connected from outside."""

    def look(self, now: float) -> None:
        """Is called twice a second: time to send a sign of life, or to give up on somebody."""

    def hang_up(self) -> None:
        """End the connection: the server stops."""


class Hub:
    """Tells listeners of this process what happens, in order."""

    def __init__(self, feed: Feed, store: Store) -> None:
        self.feed = feed
        self.store = store
        self.head = feed.last
        """The number of the newest event that was told."""
        self.bytes_told = 0
        """Counts over all events since the start: by it a client that does not read is measured."""
        self.clients: set[Client] = set()
        self.trouble: Callable[[], str] = lambda: ""
        """Why nothing new is told; empty while all is well."""
        self._listeners: list[Listener] = []
        self._waiting: dict[str | None, set[Callable[[], None]]] = {}
        self._recent: list[Frame] = []  # without a gap, up to `head`
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

    def recent(self, after: int, limit: int) -> Sequence[Frame] | None:
        """What was told behind a number; None when that is not in memory: look into the feed."""
        start = after + 1 - (self.head + 1 - len(self._recent))
        return None if start < 0 or after > self.head else self._recent[start : start + limit]

    def tell(self, frames: Sequence[Frame]) -> None:
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

    def hang_up(self) -> None:
        """End every connection from outside, so that a server can stop. They come back to the next one."""
        for client in [*self.clients]:
            client.hang_up()

    async def recall(self) -> None:
        """Take the newest events into memory: after a restart everybody comes back at once and asks for them."""
        found = await self.feed.after(max(0, self.head - _RECENT_EVENTS), _RECENT_EVENTS)
        frames = [frame for frame in found if frame.sequence <= self.head]
        if frames and frames[-1].sequence - frames[0].sequence == len(frames) - 1:
            self._recent, self._recent_bytes = frames, sum(len(frame.body) for frame in frames)
            self._forget()

    async def watch(self) -> None:
        """Look after the clients, for ever."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            now = clock()
            for client in [*self.clients]:
                client.look(now)

    def _keep(self, frames: Sequence[Frame]) -> None:
        size = sum(len(frame.body) for frame in frames)
        self._recent += frames
        self._recent_bytes += size
        self.bytes_told += size
        self.head = frames[-1].sequence
        if len(self._recent) > 2 * _RECENT_EVENTS or self._recent_bytes > 2 * _RECENT_BYTES:
            self._forget()

    def _forget(self) -> None:
        """Shorten what is in memory by half or more: not with each event, as a list is moved by it."""
        start = max(0, len(self._recent) - _RECENT_EVENTS)
        size = sum(len(frame.body) for frame in self._recent[start:])
        while size > _RECENT_BYTES:
            size -= len(self._recent[start].body)
            start += 1
        del self._recent[:start]
        self._recent_bytes = size


@contextlib.asynccontextmanager
async def open_hub(root: Path, store: Store, services: Services | None) -> AsyncIterator[Hub]:
    """A hub that is fed with the events of the workflows of a store and the journal of a court.

    One process of a root writes the feed; others read it, and one of them takes over when the first is gone.
    """
    journal = None if services is None else services.home.journal
    async with Feed.open(root / FOLDER / "feed.db") as feed:
        hub = Hub(feed, store)
        await hub.recall()
        feeder = Feeder(feed, store, journal, hub.tell, hub.skip_to)
        hub.trouble = lambda: feeder.trouble
        await feeder.start()
        watchdog = asyncio.create_task(hub.watch(), name="web-live-watch")
        try:
            yield hub
        finally:
            hub.hang_up()
            watchdog.cancel()
            await feeder.stop()
            await asyncio.gather(watchdog, return_exceptions=True)
