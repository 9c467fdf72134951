"""Publish in a transaction of our own, and notify other processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import asyncpg
from asyncpg import PostgresError, UniqueViolationError

from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import BusError
from kingdom.bus.outbox import RANK
from kingdom.bus.transports.postgresql._connections import (
    CONNECTION_ERRORS,
    Connection,
    ConnectionPool,
    close_connection,
)

# LISTEN and NOTIFY: a hint that arrives at once, on top of polling that is always sufficient.


CHANNEL: Final = "kingdom_outbox"
_QUIET: Final = 0.01  # seconds between two notifications of one process for one stream
_SLACK: Final = 0.002  # seconds that a timer leaves to a publish that would carry the notification
_TROUBLE: Final = (OSError, BusError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
log = logging.getLogger("kingdom.bus.postgresql")


class Listener:
    """One connection that only listens.

    Nothing else runs on it: a statement prepared there would hold back notifications until the next one.
    """

    def __init__(self, connections: ConnectionPool) -> None:
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
                    await close_connection(connection)
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

    def __init__(self, connections: ConnectionPool) -> None:
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


# Storing events in a transaction of our own: one, some, or many.


T = TypeVar("T")
_SOME: Final = 100  # events that one INSERT takes; more go in chunks
_CHUNK: Final = 200  # events at once of many: fewer cost round trips, with more the server waits for the next
# Seconds that a single publish believes, without looking, that a stream is not ordered. Whoever declares it ordered
# waits until nobody does.
UNORDERED_CACHE_SECONDS: Final = 0.05
_COPIED: Final = (
    "stream", "event_id", "event_type", "aggregate_type", "aggregate_id", "payload_json", "priority", "ordering_key",
)  # fmt: skip


class PostgresPublisher:
    """Writes rows of ``outbox_event``, and sees to it that those who wait for them are told.

    ``text`` gives a statement by its name; with ``+unless-known`` it leaves out what is there already, with ``+notify``
    it notifies, with ``+place`` it says whether the event needed no place in an aggregate's order.
    """

    def __init__(
        self,
        connections: ConnectionPool,
        listener: Listener,
        notifier: Notifier,
        text: Callable[[str], str],
        max_bytes: int,
    ) -> None:
        self._connections = connections
        self._listener = listener
        self._notifier = notifier
        self._text = text
        self._max_bytes = max_bytes
        self._prepared: dict[tuple[Connection | None, str], Any] = {}
        self._plain_until: dict[str, float] = {}  # streams that were found to be not ordered, and how long that counts

    def publish(self, stream: str, envelopes: Sequence[Envelope]) -> Coroutine[Any, Any, list[str]]:
        """Store events, all or none, and say which were new."""
        if len(envelopes) == 1 and envelopes[0].own_id:
            return self._new(stream, envelopes[0])
        return self._perhaps_known(stream, envelopes)

    async def _new(self, stream: str, envelope: Envelope) -> list[str]:
        """Store an event whose id was made here: it is new, unless the same envelope is published once more.

        A plain INSERT takes the server less time than one that leaves out what is there already, and with a connection
        at hand the way to it is short. Whatever goes wrong on it, the long way tells, or mends by trying again.
        """
        row, now = self._row(envelope), time.monotonic()
        debt = self._notifier.collect(stream, now)
        values = stream, *row, debt is not None
        name = "publish_plain" if now < self._plain_until.get(stream, 0.0) else "publish_one+place"
        connection = self._connections.lend()
        statement = self._prepared.get((connection, name))
        stored = tried = False
        try:
            if statement is None:  # no connection is at hand, or it has not done this yet
                if connection is not None:
                    self._connections.give_back(connection)
                    connection = None
                rows = await self._connections.use(lambda c: self._first(c, name, values))
            else:
                rows = await statement.fetch(*values)
            stored = True
            if rows and rows[0][0]:
                self._plain_until[stream] = now + UNORDERED_CACHE_SECONDS
        except asyncio.CancelledError:
            if connection is not None:
                connection.terminate()  # the statement may still be running on the server
            raise
        except UniqueViolationError:
            pass
        except (*CONNECTION_ERRORS, PostgresError):
            self._prepared.pop((connection, name), None)
            tried = True
        finally:
            if connection is not None:
                self._connections.give_back(connection)
            self._tell(stream, debt, stored)
        if not stored:
            return await self._perhaps_known(stream, (envelope,), tried=tried)
        envelope.mark_stored()
        return [envelope.event_id]

    async def _first(self, connection: Connection, name: str, values: tuple[Any, ...]) -> list[Any]:
        """The same on a connection that has not done it before, or that was waited for."""
        sql = self._text(name)
        statement = self._prepared.get((connection, name))
        if self._connections.pgbouncer:  # what is prepared may be gone with the next statement
            statement = connection
            values = sql, *values
        elif statement is None:
            statement = await connection.prepare(sql)
            kept = {key: ready for key, ready in self._prepared.items() if key[0] and not key[0].is_closed()}
            self._prepared = {**kept, (connection, name): statement}
        rows: list[Any] = await statement.fetch(*values)
        return rows

    async def _perhaps_known(self, stream: str, envelopes: Sequence[Envelope], *, tried: bool = False) -> list[str]:
        """Store what is not there yet. ``tried``: it may have been stored by a try whose answer did not come."""
        if len(envelopes) > _SOME:
            work = partial(self._many, stream, envelopes)
        elif len(envelopes) > 1:
            work = partial(self._insert, "publish", (stream, *self._columns(envelopes)))
        else:
            work = partial(self._insert, "publish_one+unless-known", (stream, *self._row(envelopes[0]), False))
        debt = self._notifier.collect(stream, time.monotonic())
        told = "" if debt is None else "+notify"
        tries = int(tried)

        async def counted(connection: Connection) -> list[str]:
            nonlocal tries
            tries += 1
            return await work(told, connection)

        accepted: list[str] = []
        try:
            accepted = await self._connections.run(counted)
            if tries > 1 and len(accepted) < len(envelopes):
                # A connection may break when all is stored and only the answer is missing. What the next try finds
                # there under an id that was made here, and that nobody was told of yet, came with the one before.
                new = set(accepted)
                accepted = [one.event_id for one in envelopes if one.own_id or one.event_id in new]
        finally:
            self._tell(stream, debt, bool(accepted))
        for envelope in envelopes:
            envelope.mark_stored()
        return accepted

    def _tell(self, stream: str, debt: bool | None, stored: bool) -> None:
        """Wake who waits in this process, and owe the others a notification that was not sent."""
        if stored:
            self._listener.wake(stream)
        if stored if debt is None else debt and not stored:
            self._notifier.owe(stream)

    async def _insert(self, name: str, values: tuple[Any, ...], told: str, connection: Connection) -> list[str]:
        return [row[0] for row in await connection.fetch(self._text(name + told), *values)]

    async def _many(self, stream: str, envelopes: Sequence[Envelope], told: str, connection: Connection) -> list[str]:
        if not any(envelope.not_before for envelope in envelopes):  # that is compared with the server's clock
            try:
                return await self._copy(connection, stream, envelopes, told)
            except UniqueViolationError:  # some are there already, or twice among these: an INSERT says which
                pass
        accepted: list[str] = []

        async def insert(columns: Iterable[tuple[Any, ...]], last: bool) -> None:
            sql = self._text(f"publish{told}" if last else "publish")
            accepted.extend([row[0] for row in await connection.fetch(sql, stream, *columns)])

        async with connection.transaction():
            await _overlapping(envelopes, self._columns, insert)
        return accepted

    async def _copy(self, connection: Connection, stream: str, envelopes: Sequence[Envelope], told: str) -> list[str]:
        """Store events as the server does fastest. Raises ``UniqueViolationError`` when not all of them are new."""

        def rows(chunk: Sequence[Envelope]) -> list[tuple[Any, ...]]:
            return [(stream, *self._row(envelope)[:-1], _ordering_key(envelope, ordered)) for envelope in chunk]

        async def copy(chunk: list[tuple[Any, ...]], last: bool) -> None:
            await connection.copy_records_to_table(
                "outbox_event", schema_name=self._connections.schema, columns=_COPIED, records=chunk
            )
            if last and told:
                await connection.fetchval("SELECT pg_notify($1, $2)", CHANNEL, stream)

        async with connection.transaction():
            ordered = await connection.fetchval(self._text("is_ordered"), stream)
            await _overlapping(envelopes, rows, copy)
        return [envelope.event_id for envelope in envelopes]

    def _row(self, e: Envelope) -> tuple[Any, ...]:
        text = e.to_json(self._max_bytes)
        return e.event_id, e.type, e.aggregate_type, e.aggregate_id, text, RANK[e.priority], e.not_before

    def _columns(self, envelopes: Sequence[Envelope]) -> Iterable[tuple[Any, ...]]:
        return zip(*map(self._row, envelopes), strict=True)


def _ordering_key(envelope: Envelope, ordered: bool | None) -> str | None:
    """As the statements of publish and declare make it: an aggregate has one, however its events came."""
    return f"{envelope.aggregate_type or ''}\x1f{envelope.aggregate_id or ''}" if ordered else None


async def _overlapping(
    envelopes: Sequence[Envelope], made: Callable[[Sequence[Envelope]], T], store: Callable[[T, bool], Awaitable[None]]
) -> None:
    """Store chunk after chunk, each made while the one before it is being stored; the last is told that it is."""
    storing: asyncio.Future[None] | None = None
    try:
        for start in range(0, len(envelopes), _CHUNK):
            chunk = made(envelopes[start : start + _CHUNK])
            if storing is not None:
                await storing
            storing = asyncio.ensure_future(store(chunk, start + _CHUNK >= len(envelopes)))
            await asyncio.sleep(0)  # lets it go out
    finally:
        if storing is not None:
            await storing
