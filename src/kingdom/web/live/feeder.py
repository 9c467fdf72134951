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

from kingdom.bus.eventbus import redact_url
from kingdom.journal import Cursor, InvalidCursor, Problem, Reader
from kingdom.journal.reader import watch_log
from kingdom.web.live.event import FeedEvent, SourceEvent
from kingdom.web.live.feed import is_contiguous
from kingdom.workflow.store.transactions import STREAM

if TYPE_CHECKING:
    from kingdom.web.live.feed import Feed
    from kingdom.workflow.ports import StoredEvent, WorkflowStore


# Where the events of the feed come from: the workflows of a store, and the journal of a court.


log = logging.getLogger("kingdom.web.live")
_WORKFLOW_ID_PREFIX: Final = (
    "wf-"  # what the id of a workflow begins with; repositories and templates have events as well
)


class EventsMissed(Exception):
    """What a source was to go on with is not there any more."""


class EventSource(Protocol):
    """Has events, in an order of its own, and remembers where it stands."""

    name: str
    place: str
    """Up to where it was read; to be kept with what was made of it."""

    async def begin(self, place: str | None) -> None:
        """Go on at a place; without one, behind the last event. Raises :class:`Missed`, and stands there as well."""

    async def read(self, limit: int) -> list[SourceEvent]:
        """What is new."""

    async def close(self) -> None:
        """Let go of it."""


class WorkflowSource:
    """The events of a store, by their position."""

    def __init__(self, store: WorkflowStore) -> None:
        self._store = store
        self._url = redact_url(store.bus.url)  # without its password
        self.name = f"workflow {self._url}"
        self.place = "0"

    async def begin(self, place: str | None) -> None:
        """Go on at a place; without one, behind the last event."""
        last = await self._store.last_event_number(None)
        self.place = str(last) if place is None else str(min(last, int(place)))
        if place is not None and last < int(place):
            raise EventsMissed(f"the store at {self._url} has {last} events, {place} were read: it is another one")

    async def read(self, limit: int) -> list[SourceEvent]:
        """What is new."""
        seen = await self._store.events(None, int(self.place), limit)
        if seen:
            self.place = str(seen[-1].position)
        return [source_event(event) for event in seen]

    async def close(self) -> None:
        """Nothing is held."""


class JournalSource:
    """The lines of a journal, read ``in_thread``: it touches files."""

    def __init__(self, path: Path, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._path = path
        self._in_thread = in_thread
        self._reader: Reader | None = None
        self._gone = False
        self.name = "journal"
        self.place = ""

    async def begin(self, place: str | None) -> None:
        """Go on at a place; without one, behind the last line."""
        await self._in_thread(lambda: self._begin(place))

    async def read(self, limit: int) -> list[SourceEvent]:
        """What is new."""
        found: list[SourceEvent] = await self._in_thread(lambda: self._read(limit))
        return found

    async def close(self) -> None:
        """Let go of the files."""
        await self._in_thread(self._close)

    def _begin(self, place: str | None) -> None:
        self._close()
        cursor, self._gone = _parse_cursor(place), False
        self._reader = Reader(self._path, cursor=cursor, start="newest", report=self._report)
        if self._gone:  # where the reader would go on now is the start of some file, days ago maybe
            self._close()
            self._reader = Reader(self._path, start="newest", report=self._report)
        self._remember()
        if self._gone or (place is not None and cursor is None):
            raise EventsMissed(f"the journal at {self._path} has lost what was being read")

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
    """An event of a store."""
    owner = event.workflow_id if event.workflow_id.startswith(_WORKFLOW_ID_PREFIX) else None
    return SourceEvent(
        "workflow",
        event.type,
        event.occurred_at.isoformat(),
        dict(event.payload),
        owner,
        None if owner is None else event.sequence,
    )


def _parse_cursor(place: str | None) -> Cursor | None:
    if not place:
        return None
    try:
        return Cursor.from_dict(json.loads(place))
    except (ValueError, InvalidCursor) as error:
        log.warning("the place in the journal that was kept is not one (%s): going on at its end", error)
        return None


# From the sources into the feed, and from there to everybody who listens.
#
# The process that has the lock of the feed reads the sources; another one reads the feed, and takes over when the lock is
# free. Either is told only of what is on disk.


_BATCH_EVENTS: Final = 500  # events of one source in a batch
_BATCH_SECONDS: Final = 0.02  # seconds between two batches: what happens meanwhile shares one commit and one message
_BUSY_POLL_SECONDS: Final = (
    0.25  # seconds until the next look shortly after we were woken: that may be before there is all to see
)
_BUSY_SECONDS: Final = 1.0  # how long "shortly after" is
_IDLE_POLL_SECONDS: Final = 5.0  # seconds between two looks in any case
_STANDBY_POLL_SECONDS: Final = 1.0  # the same for a process that waits to take over
_RETRY_SECONDS: Final = 1.0  # seconds before another try when something is wrong


class FeedWriter:
    """Keeps the feed going."""

    def __init__(
        self,
        feed: Feed,
        store: WorkflowStore,
        journal: Path | None,
        tell: Callable[[Sequence[FeedEvent]], None],
        skip_to: Callable[[int], None],
    ) -> None:
        self._feed = feed
        self._store = store
        self._tell = tell
        self._skip_to = skip_to
        self._sources: list[EventSource] = [WorkflowSource(store)]
        if journal is not None:
            self._sources.append(JournalSource(journal, feed.in_thread))
        self._journal = journal
        self._ready = False  # whether the sources stand where the feed says
        self._told = feed.last
        self._kept: dict[str, str] = {}
        self._woken = asyncio.Event()
        self._undo: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.trouble = ""
        """Why it stands still; empty while all is well."""

    async def start(self) -> None:
        """Begin. What happens from now on gets into the feed."""
        if self._feed.is_writer:
            try:
                await self._begin()
            except Exception as error:  # noqa: BLE001 - the rest of the server is of use without it
                self._say(error)
        self._undo.append(self._store.on_publish(lambda _: self._woken.set()))
        self._undo.append(self._store.bus.subscribe(STREAM, self._woken.set))
        watched = [path for path in (self._journal, None if self._feed.is_writer else self._feed.path) if path]
        self._tasks = [asyncio.create_task(self._watch(path), name="web-feed-watch") for path in watched]
        self._tasks.append(asyncio.create_task(self._run(), name="web-feed"))

    async def stop(self) -> None:
        """End; what was not kept yet is found by the next one."""
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
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a disk or a database, it may get better
                self._say(error)
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
        """How long to wait for a wake-up, so many seconds after the last one."""
        if idle < _BUSY_SECONDS:
            return _BUSY_POLL_SECONDS
        return _IDLE_POLL_SECONDS if self._ready else _STANDBY_POLL_SECONDS

    async def _round(self) -> int:
        """Get what is new into the feed (or out of it), and tell. Returns how much it was."""
        if not self._ready:
            if not await self._feed.take():
                return await self._catch_up()
            await self._begin()
        happened = [event for source in self._sources for event in await source.read(_BATCH_EVENTS)]
        places = {name: place for name, place in self._places().items() if self._kept.get(name) != place}
        if not happened and not places:
            return 0
        frames = await self._feed.append(happened, places)
        self._kept |= places
        self._told = self._feed.last
        self._tell(frames)
        return len(frames)

    async def _begin(self) -> None:
        """Have the sources stand where the feed says."""
        await self._feed.look()
        while await self._catch_up():
            pass
        missed = False
        for source in self._sources:
            try:
                await source.begin(await self._feed.place(source.name))
            except EventsMissed as error:
                log.warning("live events begin anew: %s", error)
                missed = True
        if missed:
            await self._feed.drop_history(self._places())
            self._told = self._feed.last
            self._skip_to(self._told)
        else:
            await self._feed.append([], self._places())
        self._kept = self._places()
        self._ready = True

    async def _catch_up(self) -> int:
        """Tell what another process (or this one, when something went wrong after a commit) put into the feed."""
        await self._feed.look()
        frames = await self._feed.after(self._told, _BATCH_EVENTS)
        if not is_contiguous(frames, self._told) or (not frames and self._feed.last != self._told):
            self._told = self._feed.last
            self._skip_to(self._told)
            return 0
        if frames:
            self._told = frames[-1].sequence
            self._tell(frames)
        return len(frames)

    def _places(self) -> dict[str, str]:
        return {source.name: source.place for source in self._sources}

    async def _watch(self, path: Path) -> None:
        """Wake when a file changes, or the time has come."""
        while True:
            with contextlib.suppress(OSError):
                async with watch_log(path, 60.0) as wait:
                    while True:
                        await wait()
                        self._woken.set()
            await asyncio.sleep(_RETRY_SECONDS)

    def _say(self, error: Exception) -> None:
        """Once per change, not once per second."""
        trouble = f"{type(error).__name__}: {error}"
        if trouble != self.trouble:
            self.trouble = trouble
            log.error("live events stand still, trying again: %s", trouble, exc_info=error)
