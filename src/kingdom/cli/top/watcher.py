"""Watch a court from a thread of its own, so that the screen never waits for a disk.

The thread has its own event loop and its own open court. It reads when the queues, the journal or a transcript wake it,
at a limited rate, and every few seconds without a wake-up.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kingdom.agents.ledger import Ledger
from kingdom.base import inotify
from kingdom.base.inotify import FileWatcher
from kingdom.bus import BusError
from kingdom.bus.transport import INTERACTIVE_CONNECT_SECONDS
from kingdom.cli.output import CommandError
from kingdom.court.activity import journal_tail
from kingdom.court.bootstrap import configured_engines, open_services
from kingdom.court.budget import CostSummary, cost_summary
from kingdom.court.config import load_system
from kingdom.court.errors import CourtError
from kingdom.court.king.admission import HealthGate
from kingdom.court.overview import OverviewReaders, read_overview
from kingdom.court.queues import EVENTS, MESSAGES, TASKS
from kingdom.court.soldiers import TranscriptTails
from kingdom.journal import JournalError, Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from kingdom.court.config import SystemConfig
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.overview import CourtOverview
    from kingdom.journal import Entry

_MAX_TASKS: Final = 200
_STATE_OF_EVENT: Final = {
    "task.created": "pending",
    "task.started": "in progress",
    "task.completed": "completed",
    "task.failed": "failed",
    "task.cancelled": "cancelled",
    "task.needs_human": "needs human",
}
T = TypeVar("T")
FALLBACK_SECONDS: Final = 5.0  # between two reads when nothing wakes the watcher
_MIN_PAUSE_SECONDS: Final = 0.2  # between two reads, however much happens
_PAUSE_FACTOR: Final = 4  # the pause after a read is this many times as long as the read
_MAX_JOURNAL_LINES: Final = 200  # lines
_ERRORS: Final = (CourtError, BusError, JournalError, OSError)


@dataclass(slots=True)
class TopTask:
    """The latest state of a task."""

    id: str
    state: str
    since: float
    general: str = ""
    kind: str = ""
    note: str = ""


class TaskTracker:
    """Keeps the latest tasks from the journal: cheaper than reading the queue, however many tasks it has."""

    def __init__(self) -> None:
        self._tasks: dict[str, TopTask] = {}

    def feed(self, entry: Entry) -> None:
        """Update the tasks with an entry of the journal."""
        fields, when = entry.fields, entry.at.timestamp()
        if entry.type == "task.resumed":
            self._update(fields.get("original_task_id"), "answered", when, note=f"continues as {fields.get('task_id')}")
        elif (state := _STATE_OF_EVENT.get(entry.type)) is not None:
            task = self._update(fields.get("task_id"), state, when, note=_note_of(fields))
            if task is not None and entry.type == "task.created":
                task.general, task.kind = str(fields.get("target_general")), str(fields.get("event_type"))
            elif task is not None:
                task.general = task.general or entry.actor

    def lines(self) -> list[TopTask]:
        """Return the tasks, the last updated first."""
        return list(reversed(self._tasks.values()))

    def _update(self, task_id: object, state: str, when: float, *, note: str) -> TopTask | None:
        if not isinstance(task_id, str):
            return None
        task = self._tasks.pop(task_id, None) or TopTask(task_id, state, when)
        task.state, task.since, task.note = state, when, note
        self._tasks[task_id] = task
        if len(self._tasks) > _MAX_TASKS:
            del self._tasks[next(iter(self._tasks))]
        return task


def _note_of(fields: Mapping[str, Any]) -> str:
    if "duration_seconds" in fields:
        return f"{fields.get('status')} after {fields['duration_seconds']} s"
    return str(fields.get("error") or fields.get("question") or "")


@dataclass(frozen=True, slots=True)
class TopSnapshot:
    """Everything the screen shows, at one moment."""

    at: float
    overview: CourtOverview
    health: tuple[str, str]
    cost: CostSummary
    tasks: list[TopTask] = field(default_factory=list)
    said: dict[str, list[str]] = field(default_factory=dict)  # the last lines of each soldier
    journal: list[tuple[int, Entry]] = field(default_factory=list)  # numbered, the newest first


class CourtWatcher:
    """Reads the court in a thread of its own, and executes requests of the screen there."""

    def __init__(
        self,
        home: Home,
        seen: Callable[[TopSnapshot], None],
        trouble: Callable[[str], None],
        *,
        fallback: float = FALLBACK_SECONDS,
    ) -> None:
        self._home = home
        self._seen = seen
        self._trouble = trouble
        self._fallback = fallback
        self._thread = threading.Thread(target=self._run, name="court-watcher", daemon=True)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._services: Services | None = None
        self._tasks = TaskTracker()
        self._journal: deque[tuple[int, Entry]] = deque(maxlen=_MAX_JOURNAL_LINES)
        self._number = 0

    # Called from the thread of the screen

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """End the thread. Waits a moment; a thread that hangs on a disk is left behind."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            await asyncio.to_thread(self._thread.join, 5.0)

    async def do(self, action: Callable[[Services], Awaitable[T]]) -> T:
        """Run an action with the open court. Raises :class:`CommandError` when it fails."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._do(action), self._loop))

    # Run in the thread of the watcher

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._watch_until_stopped())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    async def _do(self, action: Callable[[Services], Awaitable[T]]) -> T:
        if self._services is None:
            raise CommandError("NOT_OPEN", "the court cannot be read now: its queues are not open")
        try:
            done = await action(self._services)
        except _ERRORS as error:
            raise CommandError(getattr(error, "code", "OS_ERROR"), str(error)) from error
        self._woken.set()
        return done

    async def _watch_until_stopped(self) -> None:
        while not self._stopping.is_set():
            try:
                async with open_services(self._home, connect_timeout=INTERACTIVE_CONNECT_SECONDS) as self._services:
                    await self._watch(self._services)
            except _ERRORS as error:
                self._trouble(str(error))
                await self._pause(self._fallback)
            finally:
                self._services = None

    async def _watch(self, services: Services) -> None:
        system = load_system(self._home)
        reader = _CourtReader(services, system)
        async with self._wakers(services):
            while not self._stopping.is_set():
                self._woken.clear()
                began = time.monotonic()
                overview = await reader.overview()
                self._seen(
                    TopSnapshot(
                        services.clock(),
                        overview,
                        reader.health(),
                        reader.cost(),
                        self._tasks.lines(),
                        reader.said(overview),
                        list(reversed(self._journal)),
                    )
                )
                await self._pause(max(_MIN_PAUSE_SECONDS, _PAUSE_FACTOR * (time.monotonic() - began)))
                await self._pause(self._fallback, self._woken)

    @contextlib.asynccontextmanager
    async def _wakers(self, services: Services) -> AsyncIterator[None]:
        """Subscribe to everything that should cause a read."""
        undo = [services.bus.subscribe(stream, self._woken.set) for stream in (EVENTS, TASKS, MESSAGES)]
        transcripts = FileWatcher(self._loop)
        with contextlib.suppress(OSError):  # no folder yet: the periodic read finds the output
            transcripts.add(self._home.sessions, inotify.MODIFY | inotify.CREATE, lambda changes: self._woken.set())
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            transcripts.close()
            for one in undo:
                one()

    async def _follow(self) -> None:
        """Read the journal: first its end, then every new entry."""
        while True:
            try:
                with Reader(self._home.journal, start="newest", report=lambda problem: None) as reader:
                    if not self._number:
                        for entry in _journal_up_to(reader, self._home):
                            self._record_entry(entry)
                    async for entry in reader.follow(poll=self._fallback):
                        self._record_entry(entry)
            except (JournalError, OSError) as error:
                self._trouble(str(error))
                await asyncio.sleep(self._fallback)

    def _record_entry(self, entry: Entry) -> None:
        self._number += 1
        self._journal.append((self._number, entry))
        self._tasks.feed(entry)
        self._woken.set()

    async def _pause(self, seconds: float, *events: asyncio.Event) -> None:
        """Wait for the stop or one of these events, for a limited time."""
        waiting = [asyncio.ensure_future(event.wait()) for event in (self._stopping, *events)]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()


class _CourtReader:
    """Reads what the screen shows of a court."""

    def __init__(self, services: Services, system: SystemConfig) -> None:
        self._services = services
        self._system = system
        self._ledger = Ledger(services.home.ledger)
        self._gate = HealthGate(services.home)
        self._readers = OverviewReaders(services.home)
        self._transcripts = TranscriptTails(services.home, configured_engines(system))

    async def overview(self) -> CourtOverview:
        return await read_overview(self._services, self._readers)

    def health(self) -> tuple[str, str]:
        return self._gate.level(self._services.clock())

    def cost(self) -> CostSummary:
        generals = self._readers.generals.current().by_name
        return cost_summary(self._services.clock(), self._ledger, self._system, generals)

    def said(self, overview: CourtOverview) -> dict[str, list[str]]:
        return self._transcripts.read([soldier.id for soldier in overview.soldiers])


def _journal_up_to(reader: Reader, home: Home) -> list[Entry]:
    """Return the end of the journal, including entries written meanwhile. The reader continues after them."""
    tail = journal_tail(home.journal)
    fresh = list(reader.read())
    known = next((count for count in range(len(fresh), 0, -1) if tail[-count:] == fresh[:count]), 0)
    return tail + fresh[known:]
