"""LISTEN and NOTIFY: a hint that arrives at once, on top of polling that is always sufficient."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Final

import asyncpg

from kingdom.bus.errors import BusError
from kingdom.bus.transports.postgresql._connections import Connections, hang_up

CHANNEL: Final = "kingdom_outbox"
_QUIET: Final = 0.01  # seconds between two notifications of one process for one stream
_SLACK: Final = 0.002  # seconds that a timer leaves to a publish that would carry the notification
_TROUBLE: Final = (OSError, BusError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
log = logging.getLogger("kingdom.bus.postgresql")


class Listener:
    """One connection that only listens.

    Nothing else runs on it: a statement prepared there would hold back notifications until the next one.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._subscribers: dict[str, list[Callable[[], None]]] = {}
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, stream: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when a stream may have something; the first subscriber opens the connection."""
        self._subscribers.setdefault(stream, []).append(wake)
        if self._task is None and self._connections.listens:
            self._task = asyncio.get_running_loop().create_task(self._listen(), name="kingdom-listen")

        def undo() -> None:
            self._subscribers[stream].remove(wake)

        return undo

    def wake(self, stream: str) -> None:
        """Wake this process's subscribers of a stream."""
        for subscriber in self._subscribers.get(stream, ()):
            subscriber()

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _listen(self) -> None:
        pause, told = 0.1, False
        while True:
            lost = asyncio.Event()
            connection = None
            try:
                connection = await self._connections.connect()
                connection.add_termination_listener(lambda _, lost=lost: lost.set())
                await connection.add_listener(CHANNEL, self._heard)
                pause, told = 0.1, False
                for stream in self._subscribers:  # whatever came while nobody listened
                    self.wake(stream)
                await lost.wait()
            except _TROUBLE as error:
                if not told:  # once for each time it is away
                    log.info("not listening for notifications, polling until the server is back: %s", error)
                    told = True
            finally:
                if connection is not None:
                    await hang_up(connection)
            await asyncio.sleep(pause)
            pause = min(5.0, pause * 2)

    def _heard(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        if pid not in self._connections.pids:  # our own publishes woke our own subscribers already
            self.wake(payload)


class Notifier:
    """Tells other processes, at most once per stream and 10 ms: the first at once, the rest together.

    While events keep coming, the next publish after that time carries the notification: it costs no statement and no
    commit of its own. Only what no publish came after is told by a timer.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._last: dict[str, float] = {}
        self._owed: set[str] = set()  # streams with committed events that nobody was told of
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def collect(self, stream: str, now: float) -> bool | None:
        """Whether the publish about to happen shall carry the notification itself: None when it shall not.

        ``now`` is by the monotonic clock. If it shall, the answer is what was owed before and is now up to it: to be
        given back by :meth:`owe` when nothing came of the publish.
        """
        if now - self._last.get(stream, -1.0) < _QUIET:
            return None
        self._last[stream] = now
        if stream not in self._owed:
            return False
        self._owed.remove(stream)
        return True

    def owe(self, stream: str) -> None:
        """Notify in time: events were committed without a notification."""
        self._owed.add(stream)
        if stream not in self._timers:
            self._arm(stream, _QUIET + _SLACK)

    def tell(self, stream: str) -> None:
        """Notify soon: something other than a publish made events claimable."""
        self._owed.add(stream)
        if stream not in self._timers:
            self._arm(stream, 0)

    async def close(self) -> None:
        """Send what is still owed."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for stream in list(self._owed):
            self._send(stream)
        if self._sending:
            await asyncio.wait(self._sending)

    def _arm(self, stream: str, seconds: float) -> None:
        self._timers[stream] = asyncio.get_running_loop().call_later(seconds, self._due, stream, seconds == 0)

    def _due(self, stream: str, at_once: bool) -> None:
        del self._timers[stream]
        if stream not in self._owed:  # a publish told it
            return
        wait = self._last.get(stream, -1.0) + _QUIET - time.monotonic()
        if wait > 0 and not at_once:
            self._arm(stream, wait + _SLACK)
        else:
            self._send(stream)

    def _send(self, stream: str) -> None:
        self._owed.discard(stream)
        self._last[stream] = time.monotonic()
        task = asyncio.get_running_loop().create_task(self._notify(stream))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _notify(self, stream: str) -> None:
        with contextlib.suppress(*_TROUBLE):  # a hint that is lost is made up by polling
            await self._connections.use(lambda c: c.execute("SELECT pg_notify($1, $2)", CHANNEL, stream))
