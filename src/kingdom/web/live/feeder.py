"""Copy events from their sources (workflow store, journal) into the feed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from kingdom.bus.urls import redact_url
from kingdom.journal import Cursor, InvalidCursor, Problem, Reader
from kingdom.journal.reader import watch_log
from kingdom.web.live.event import FeedEvent, SourceEvent
from kingdom.web.live.feed import is_contiguous
from kingdom.workflow.store.transactions import STREAM

if TYPE_CHECKING:
    from kingdom.web.live.feed import Feed
    from kingdom.workflow.ports import StoredEvent, WorkflowStore


# ── Sources ──


log = logging.getLogger("kingdom.web.live")
_WORKFLOW_ID_PREFIX: Final = "wf-"  # repositories and templates have events, too


class EventsMissed(Exception):
    """A source no longer has the events that come next."""


class EventSource(Protocol):
    """A source of events, read in order."""

    name: str
    place: str
    """Position up to which it was read; stored together with the events."""

    async def begin(self, place: str | None) -> None:
        """Start at a position; None: after the last event. Raises :class:`EventsMissed`, and is then at the end."""

    async def read(self, limit: int) -> list[SourceEvent]:
        """Return new events."""

    async def close(self) -> None:
        """Release resources."""


class WorkflowSource:
    """The events of a workflow store."""

    def __init__(self, store: WorkflowStore) -> None:
        self._store = store
        self._url = redact_url(store.bus.url)  # without its password
        self.name = f"workflow {self._url}"
        self.place = "0"

    async def begin(self, place: str | None) -> None:
        """Start at a position; None: after the last event."""
        last = await self._store.last_event_number(None)
        self.place = str(last) if place is None else str(min(last, int(place)))
        if place is not None and last < int(place):
            raise EventsMissed(
                f"the store at {self._url} has {last} events but {place} were read: it is a different store"
            )

    async def read(self, limit: int) -> list[SourceEvent]:
        """Return new events."""
        seen = await self._store.events(None, int(self.place), limit)
        if seen:
            self.place = str(seen[-1].position)
        return [source_event(event) for event in seen]

    async def close(self) -> None:
        """Nothing to release."""


class JournalSource:
    """The lines of a journal. File access runs ``in_thread``."""

    def __init__(self, path: Path, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._path = path
        self._in_thread = in_thread
        self._reader: Reader | None = None
        self._gone = False
        self.name = "journal"
        self.place = ""

    async def begin(self, place: str | None) -> None:
        """Start at a position; None: after the last line."""
        await self._in_thread(lambda: self._begin(place))

    async def read(self, limit: int) -> list[SourceEvent]:
        """Return new events."""
        found: list[SourceEvent] = await self._in_thread(lambda: self._read(limit))
        return found

    async def close(self) -> None:
        """Close the files."""
        await self._in_thread(self._close)

    def _begin(self, place: str | None) -> None:
        self._close()
        cursor, self._gone = _parse_cursor(place), False
        self._reader = Reader(self._path, cursor=cursor, start="newest", report=self._report)
        if self._gone:  # the reader would continue at the start of some older file
            self._close()
            self._reader = Reader(self._path, start="newest", report=self._report)
        self._remember()
        if self._gone or (place is not None and cursor is None):
            raise EventsMissed(f"the journal at {self._path} no longer has the lines that come next")

    def _read(self, limit: int) -> list[SourceEvent]:
        assert self._reader is not None
        found = [
            SourceEvent("journal", entry.type, entry.ts, dict(entry.fields), actor=entry.actor)
            for entry in itertools.islice(self._reader.read(), limit)
        ]
        self._remember()
        return found

    def _close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _remember(self) -> None:
        assert self._reader is not None
        self.place = json.dumps(self._reader.cursor.to_dict(), separators=(",", ":"))

    def _report(self, problem: Problem) -> None:
        self._gone = self._gone or problem.kind == "gone"
        log.warning("journal: %s", problem)


def source_event(event: StoredEvent) -> SourceEvent:
    """Convert an event of a workflow store."""
    owner = event.workflow_id if event.workflow_id.startswith(_WORKFLOW_ID_PREFIX) else None
    return SourceEvent(
        "workflow",
        event.type,
        event.occurred_at.isoformat(),
        dict(event.payload),
        owner,
        None if owner is None else event.sequence,
        attempt=event.attempt,
    )


def _parse_cursor(place: str | None) -> Cursor | None:
    if not place:
        return None
    try:
        return Cursor.from_dict(json.loads(place))
    except (ValueError, InvalidCursor) as error:
        log.warning("the stored journal position is invalid (%s): continuing at the end", error)
        return None


# ── Writer ──


_BATCH_EVENTS: Final = 500  # of one source in a batch
_BATCH_SECONDS: Final = 0.02  # between two batches; events in between share one commit and one message
_BUSY_POLL_SECONDS: Final = 0.25  # poll interval shortly after a wake-up, which may come before all data is visible
_BUSY_SECONDS: Final = 1.0  # how long "shortly after" lasts
_IDLE_POLL_SECONDS: Final = 5.0  # poll interval without wake-ups
_STANDBY_POLL_SECONDS: Final = 1.0  # the same for a process that waits for the lock
_RETRY_SECONDS: Final = 1.0  # after an error


class FeedWriter:
    """Copies events from the sources into the feed and delivers them.

    The process that holds the lock of the feed reads the sources. Other processes read the feed, and one of them takes
    over when the lock is free. Events are delivered only after they are stored.
    """

    def __init__(
        self,
        feed: Feed,
        store: WorkflowStore,
        journal: Path | None,
        deliver: Callable[[Sequence[FeedEvent]], None],
        skip_to: Callable[[int], None],
    ) -> None:
        self._feed = feed
        self._store = store
        self._deliver = deliver
        self._skip_to = skip_to
        self._sources: list[EventSource] = [WorkflowSource(store)]
        if journal is not None:
            self._sources.append(JournalSource(journal, feed.in_thread))
        self._journal = journal
        self._ready = False  # whether the sources are at the positions stored in the feed
        self._delivered = feed.last
        self._kept: dict[str, str] = {}
        self._woken = asyncio.Event()
        self._undo: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.trouble = ""
        """The error that stopped the feed; empty if there is none."""

    async def start(self) -> None:
        """Start. Events from now on get into the feed."""
        if self._feed.is_writer:
            try:
                await self._begin()
            except Exception as error:  # noqa: BLE001 - the rest of the server works without live events
                self._log_error(error)
        self._undo.append(self._store.on_publish(lambda _: self._woken.set()))
        self._undo.append(self._store.bus.subscribe(STREAM, self._woken.set))
        watched = [path for path in (self._journal, None if self._feed.is_writer else self._feed.path) if path]
        self._tasks = [asyncio.create_task(self._watch(path), name="web-feed-watch") for path in watched]
        self._tasks.append(asyncio.create_task(self._run(), name="web-feed"))

    async def stop(self) -> None:
        """Stop. Events that are not stored yet are found by the next process."""
        for undo in self._undo:
            undo()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for source in self._sources:
            await source.close()

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        last_busy = clock()
        while True:
            if self._woken.is_set():
                last_busy = clock()
            self._woken.clear()
            try:
                count = await self._round()
                self.trouble = ""
            except Exception as error:  # noqa: BLE001 - errors of the disk or database may be temporary
                self._log_error(error)
                self._ready = False
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if count:
                last_busy = clock()
            await asyncio.sleep(0 if count >= _BATCH_EVENTS else _BATCH_SECONDS)
            if count < _BATCH_EVENTS:
                # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with what it waits for.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause(clock() - last_busy)):
                        await self._woken.wait()

    def _pause(self, idle: float) -> float:
        """Return how long to wait for a wake-up, ``idle`` seconds after the last one."""
        if idle < _BUSY_SECONDS:
            return _BUSY_POLL_SECONDS
        return _IDLE_POLL_SECONDS if self._ready else _STANDBY_POLL_SECONDS

    async def _round(self) -> int:
        """Copy new events into the feed (or read them from it) and deliver them. Returns their number."""
        if not self._ready:
            if not await self._feed.take():
                return await self._catch_up()
            await self._begin()
        found = [event for source in self._sources for event in await source.read(_BATCH_EVENTS)]
        places = {name: place for name, place in self._places().items() if self._kept.get(name) != place}
        if not found and not places:
            return 0
        events = await self._feed.append(found, places)
        self._kept |= places
        self._delivered = self._feed.last
        self._deliver(events)
        return len(events)

    async def _begin(self) -> None:
        """Move the sources to the positions stored in the feed."""
        await self._feed.refresh_bounds()
        while await self._catch_up():
            pass
        missed = False
        for source in self._sources:
            try:
                await source.begin(await self._feed.place(source.name))
            except EventsMissed as error:
                log.warning("the live feed restarts: %s", error)
                missed = True
        if missed:
            await self._feed.drop_history(self._places())
            self._delivered = self._feed.last
            self._skip_to(self._delivered)
        else:
            await self._feed.append([], self._places())
        self._kept = self._places()
        self._ready = True

    async def _catch_up(self) -> int:
        """Deliver events that another process stored (or this one, if an error followed the commit)."""
        await self._feed.refresh_bounds()
        events = await self._feed.after(self._delivered, _BATCH_EVENTS)
        if not is_contiguous(events, self._delivered) or (not events and self._feed.last != self._delivered):
            self._delivered = self._feed.last
            self._skip_to(self._delivered)
            return 0
        if events:
            self._delivered = events[-1].sequence
            self._deliver(events)
        return len(events)

    def _places(self) -> dict[str, str]:
        return {source.name: source.place for source in self._sources}

    async def _watch(self, path: Path) -> None:
        """Wake up when a file changes, and at an interval."""
        while True:
            with contextlib.suppress(OSError):
                async with watch_log(path, 60.0) as wait:
                    while True:
                        await wait()
                        self._woken.set()
            await asyncio.sleep(_RETRY_SECONDS)

    def _log_error(self, error: Exception) -> None:
        """Log an error once, not at every retry."""
        trouble = f"{type(error).__name__}: {error}"
        if trouble != self.trouble:
            self.trouble = trouble
            log.error("the live feed has stopped, retrying: %s", trouble, exc_info=error)
