"""Watch a court from a thread of its own, so that the screen never waits for a disk."""

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
from kingdom.cli.output import CommandError
from kingdom.court.activity import journal_tail
from kingdom.court.bootstrap import configured_engines, open_services
from kingdom.court.budget import CostSummary, cost_summary
from kingdom.court.config import load_system
from kingdom.court.errors import CourtError
from kingdom.court.king.admission import HealthGate
from kingdom.court.overview import read_overview
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


# The latest tasks, as the journal tells of them: cheap to keep, however many lie in the queue.


_MAX_TASKS: Final = 200
_STATE_OF_EVENT: Final = {
    "task.created": "pending",
    "task.started": "in progress",
    "task.completed": "completed",
    "task.failed": "failed",
    "task.needs_human": "needs human",
}


@dataclass(slots=True)
class TopTask:
    """One task."""

    id: str
    state: str
    since: float
    general: str = ""
    kind: str = ""
    note: str = ""


class TaskTracker:
    """Tasks in the order in which something happened to them."""

    def __init__(self) -> None:
        self._tasks: dict[str, TopTask] = {}

    def feed(self, entry: Entry) -> None:
        """Take note of a line of the journal."""
        fields, when = entry.fields, entry.at.timestamp()
        if entry.type == "task.resumed":
            self._note(fields.get("original_task_id"), "answered", when, note=f"goes on as {fields.get('task_id')}")
        elif (state := _STATE_OF_EVENT.get(entry.type)) is not None:
            task = self._note(fields.get("task_id"), state, when, note=_note_of(fields))
            if task is not None and entry.type == "task.created":
                task.general, task.kind = str(fields.get("target_general")), str(fields.get("event_type"))
            elif task is not None:
                task.general = task.general or entry.actor

    def lines(self) -> list[TopTask]:
        """The last one to whom something happened first."""
        return list(reversed(self._tasks.values()))

    def _note_of(self, task_id: object, state: str, when: float, *, note: str) -> TopTask | None:
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


# Looking at a court from a thread of its own, so that the screen never waits for a disk.
#
# The thread has its own event loop and its own open court. It looks when it is woken (by the queues, the journal, a
# transcript), never more often than the screen can use, and every few seconds where nobody wakes it.


T = TypeVar("T")
FALLBACK_SECONDS: Final = 5.0  # seconds between two looks when nobody wakes us
_MIN_PAUSE_SECONDS: Final = 0.2  # seconds between two looks at least, however much happens
_PAUSE_FACTOR: Final = 4  # the pause after a look is so many times as long as the look
_MAX_JOURNAL_LINES: Final = 200  # lines
_ERRORS: Final = (CourtError, BusError, JournalError, OSError)


@dataclass(frozen=True, slots=True)
class TopSnapshot:
    """Everything the screen shows, as it was at one moment."""

    at: float
    overview: CourtOverview
    health: tuple[str, str]
    cost: CostSummary
    tasks: list[TopTask] = field(default_factory=list)
    said: dict[str, list[str]] = field(default_factory=dict)  # the last lines of each soldier
    journal: list[tuple[int, Entry]] = field(default_factory=list)  # numbered, the newest first


class CourtWatcher:
    """Looks, and does what the screen asks for."""

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
        self._thread = threading.Thread(target=self._run, name="lookout", daemon=True)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._services: Services | None = None
        self._tasks = TaskTracker()
        self._journal: deque[tuple[int, Entry]] = deque(maxlen=_MAX_JOURNAL_LINES)
        self._number = 0

    # ── from the screen's thread ──────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    async def stop(self) -> None:
        """Have the thread end; it is given a moment, and what hangs on a disk is left behind."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            await asyncio.to_thread(self._thread.join, 5.0)

    async def do(self, action: Callable[[Services], Awaitable[T]]) -> T:
        """Do something with the open court. Raises :class:`Failure` when it cannot be done."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._do(action), self._loop))

    # ── in the lookout's own thread ───────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._watch_until_stopped())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    async def _do(self, action: Callable[[Services], Awaitable[T]]) -> T:
        if self._services is None:
            raise CommandError("NOT_OPEN", "the court cannot be looked at now; its queues are not open")
        try:
            done = await action(self._services)
        except _ERRORS as error:
            raise CommandError(getattr(error, "code", "OS_ERROR"), str(error)) from error
        self._woken.set()
        return done

    async def _watch_until_stopped(self) -> None:
        while not self._stopping.is_set():
            try:
                async with open_services(self._home) as self._services:
                    await self._watch(self._services)
            except _ERRORS as error:
                self._trouble(str(error))
                await self._pause(self._fallback)
            finally:
                self._services = None

    async def _watch(self, services: Services) -> None:
        system = load_system(self._home)
        eyes = _CourtReader(services, system)
        async with self._wakers(services):
            while not self._stopping.is_set():
                self._woken.clear()
                began = time.monotonic()
                overview = await eyes.look()
                self._seen(
                    TopSnapshot(
                        services.clock(),
                        overview,
                        eyes.health(),
                        eyes.cost(),
                        self._tasks.lines(),
                        eyes.said(overview),
                        list(reversed(self._journal)),
                    )
                )
                await self._pause(max(_MIN_PAUSE_SECONDS, _PAUSE_FACTOR * (time.monotonic() - began)))
                await self._pause(self._fallback, self._woken)

    @contextlib.asynccontextmanager
    async def _wakers(self, services: Services) -> AsyncIterator[None]:
        """Everything that makes a look worth it."""
        undo = [services.bus.subscribe(stream, self._woken.set) for stream in (EVENTS, TASKS, MESSAGES)]
        transcripts = FileWatcher(self._loop)
        with contextlib.suppress(OSError):  # there is none yet: the fallback finds what they say
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
        """Hear what is written into the journal: first its end, then every line."""
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
        """Wait for the end, or one of these events, at most so long."""
        waiting = [asyncio.ensure_future(event.wait()) for event in (self._stopping, *events)]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()


class _CourtReader:
    """What is looked at besides the overview."""

    def __init__(self, services: Services, system: SystemConfig) -> None:
        self._services = services
        self._system = system
        self._ledger = Ledger(services.home.ledger)
        self._gate = HealthGate(services.home)
        self._voices = TranscriptTails(services.home, configured_engines(system))

    async def read_overview(self) -> CourtOverview:
        return await read_overview(self._services)

    def health(self) -> tuple[str, str]:
        return self._gate.level(self._services.clock())

    def cost(self) -> CostSummary:
        return cost_summary(self._services.clock(), self._ledger, self._system)

    def said(self, overview: CourtOverview) -> dict[str, list[str]]:
        return self._voices.hear([soldier.id for soldier in overview.soldiers])


def _journal_up_to(reader: Reader, home: Home) -> list[Entry]:
    """The end of the journal and what was written while it was read; the reader goes on behind it, none comes twice."""
    tail = journal_tail(home.journal)
    fresh = list(reader.read())
    known = next((count for count in range(len(fresh), 0, -1) if tail[-count:] == fresh[:count]), 0)
    return tail + fresh[known:]
