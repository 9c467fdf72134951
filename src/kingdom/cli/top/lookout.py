"""Looking at a court from a thread of its own, so that the screen never waits for a disk.

The thread has its own event loop and its own open court. It looks when it is woken (by the queues, the journal, a
transcript), never more often than the screen can use, and every few seconds where nobody wakes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from kingdom.agents.ledger import Ledger
from kingdom.bus import BusError, inotify
from kingdom.bus.inotify import Watch
from kingdom.cli.output import Failure
from kingdom.cli.top.tasks import TaskBook, TaskLine
from kingdom.court.bootstrap import engines_of, open_services
from kingdom.court.config.system import load_system
from kingdom.court.costs import Cost, cost_at
from kingdom.court.errors import CourtError
from kingdom.court.journal_tail import journal_tail
from kingdom.court.king.gates import HealthGate
from kingdom.court.overview import look
from kingdom.court.queues import EVENTS, MESSAGES, TASKS
from kingdom.court.transcripts import LastWords
from kingdom.journal import JournalError, Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kingdom.court.config.system import SystemConfig
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.overview import Overview
    from kingdom.journal import Entry

T = TypeVar("T")
FALLBACK: Final = 5.0  # seconds between two looks when nobody wakes us
_QUIET: Final = 0.2  # seconds between two looks at least, however much happens
_SHARE: Final = 4  # the pause after a look is so many times as long as the look
_JOURNAL: Final = 200  # lines
_TROUBLE: Final = (CourtError, BusError, JournalError, OSError)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the screen shows, as it was at one moment."""

    at: float
    overview: Overview
    health: tuple[str, str]
    cost: Cost
    tasks: list[TaskLine] = field(default_factory=list)
    said: dict[str, list[str]] = field(default_factory=dict)  # the last lines of each soldier
    journal: list[tuple[int, Entry]] = field(default_factory=list)  # numbered, the newest first


class Lookout:
    """Looks, and does what the screen asks for."""

    def __init__(
        self,
        home: Home,
        seen: Callable[[Snapshot], None],
        trouble: Callable[[str], None],
        *,
        fallback: float = FALLBACK,
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
        self._tasks = TaskBook()
        self._journal: deque[tuple[int, Entry]] = deque(maxlen=_JOURNAL)
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
            self._loop.run_until_complete(self._keep_looking())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    async def _do(self, action: Callable[[Services], Awaitable[T]]) -> T:
        if self._services is None:
            raise Failure("NOT_OPEN", "the court cannot be looked at now; its queues are not open")
        try:
            done = await action(self._services)
        except _TROUBLE as error:
            raise Failure(getattr(error, "code", "OS_ERROR"), str(error)) from error
        self._woken.set()
        return done

    async def _keep_looking(self) -> None:
        while not self._stopping.is_set():
            try:
                async with open_services(self._home) as self._services:
                    await self._watch(self._services)
            except _TROUBLE as error:
                self._trouble(str(error))
                await self._pause(self._fallback)
            finally:
                self._services = None

    async def _watch(self, services: Services) -> None:
        system = load_system(self._home)
        eyes = _Eyes(services, system)
        async with self._wakers(services):
            while not self._stopping.is_set():
                self._woken.clear()
                began = time.monotonic()
                overview = await eyes.look()
                self._seen(
                    Snapshot(
                        services.clock(),
                        overview,
                        eyes.health(),
                        eyes.cost(),
                        self._tasks.lines(),
                        eyes.said(overview),
                        list(reversed(self._journal)),
                    )
                )
                await self._pause(max(_QUIET, _SHARE * (time.monotonic() - began)))
                await self._pause(self._fallback, self._woken)

    @contextlib.asynccontextmanager
    async def _wakers(self, services: Services) -> AsyncIterator[None]:
        """Everything that makes a look worth it."""
        undo = [services.bus.subscribe(stream, self._woken.set) for stream in (EVENTS, TASKS, MESSAGES)]
        transcripts = Watch(self._loop)
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
                        for entry in _tail_up_to(reader, self._home):
                            self._hear(entry)
                    async for entry in reader.follow(poll=self._fallback):
                        self._hear(entry)
            except (JournalError, OSError) as error:
                self._trouble(str(error))
                await asyncio.sleep(self._fallback)

    def _hear(self, entry: Entry) -> None:
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


class _Eyes:
    """What is looked at besides the overview."""

    def __init__(self, services: Services, system: SystemConfig) -> None:
        self._services = services
        self._system = system
        self._ledger = Ledger(services.home.ledger)
        self._gate = HealthGate(services.home)
        self._voices = LastWords(services.home, engines_of(system))

    async def look(self) -> Overview:
        return await look(self._services)

    def health(self) -> tuple[str, str]:
        return self._gate.level(self._services.clock())

    def cost(self) -> Cost:
        return cost_at(self._services.clock(), self._ledger, self._system)

    def said(self, overview: Overview) -> dict[str, list[str]]:
        return self._voices.hear([soldier.id for soldier in overview.soldiers])


def _tail_up_to(reader: Reader, home: Home) -> list[Entry]:
    """The end of the journal and what was written while it was read; the reader goes on behind it, none comes twice."""
    tail = journal_tail(home.journal)
    fresh = list(reader.read())
    known = next((count for count in range(len(fresh), 0, -1) if tail[-count:] == fresh[:count]), 0)
    return tail + fresh[known:]
