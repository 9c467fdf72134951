"""Publish in a transaction of our own, and notify other processes with LISTEN and NOTIFY.

A notification is a hint that arrives at once; polling alone is always sufficient. It names a stream and, if they fit,
the types of its events, so that of many workers only those are woken that may claim one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import asyncpg
from asyncpg import FeatureNotSupportedError, UniqueViolationError

from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import BusError
from kingdom.bus.outbox import RANK
from kingdom.bus.transports.postgresql._connections import Connection, ConnectionPool, close_connection

T = TypeVar("T")
Types = frozenset[str] | None  # of events; None: any
CHANNEL: Final = "kingdom_outbox"
_NONE: Final[frozenset[str]] = frozenset()
_SEPARATOR: Final = "\t"
_MAX_NOTICE_BYTES: Final = 7_900  # PostgreSQL takes less than 8,000
_MAX_TYPES: Final = 500  # in one notification: more are woken all, without a look at how long their names are
_NOTIFY_INTERVAL_SECONDS: Final = 0.01  # between two notifications of one process for one stream
_TIMER_SLACK_SECONDS: Final = 0.002  # a publish that comes this late may still carry the notification
_MAX_INSERT_EVENTS: Final = 100  # events that one INSERT takes; more go in chunks
_CHUNK_EVENTS: Final = 200  # smaller chunks cost round trips; with larger ones the server waits for the next
_COPIED_COLUMNS: Final = (
    "stream", "event_id", "event_type", "aggregate_type", "aggregate_id", "payload_json", "priority", "ordering_key",
)  # fmt: skip
_LISTEN_ERRORS: Final = (OSError, BusError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

log = logging.getLogger("kingdom.bus.postgresql")


class Listener:
    """One connection that only listens.

    Nothing else runs on it: a statement prepared there would hold back notifications until the next statement.
    """

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections
        self._subscribers: dict[str | None, list[tuple[Callable[[], None], Types]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def subscribe(
        self, stream: str | None, wake: Callable[[], None], types: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Call ``wake`` when a stream, or any, may have events of these types; return the undo.

        The first subscriber opens the connection, and the last closes it.
        """
        subscriber = (wake, None if types is None else frozenset(types))
        self._subscribers.setdefault(stream, []).append(subscriber)
        if self._task is None and self._connections.listens:
            self._task = asyncio.get_running_loop().create_task(self._listen(), name="kingdom-listen")

        def undo() -> None:
            self._subscribers[stream].remove(subscriber)
            if self._task is not None and not any(self._subscribers.values()):
                self._end(self._task)

        return undo

    def wake(self, stream: str | None, types: Types = None) -> None:
        """Wake the subscribers of a stream in this process that take events of one of these types."""
        for wake, wanted in (*self._subscribers.get(stream, ()), *self._subscribers.get(None, ())):
            if wanted is None or types is None or not wanted.isdisjoint(types):
                wake()

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._end(self._task)
        if self._ending:
            await asyncio.wait(self._ending)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        task.cancel()

    async def _listen(self) -> None:
        pause, logged = 0.1, False
        while True:
            lost = asyncio.Event()
            connection = None
            try:
                connection = await self._connections.connect()
                connection.add_termination_listener(lambda _, lost=lost: lost.set())
                await connection.add_listener(CHANNEL, self._heard)
                pause, logged = 0.1, False
                for stream in self._subscribers:  # events may have come before we listened
                    self.wake(stream)
                await lost.wait()
            except _LISTEN_ERRORS as error:
                if not logged:  # once for each outage
                    log.info("not listening for notifications, polling until the server is back: %s", error)
                    logged = True
            finally:
                if connection is not None:
                    await close_connection(connection)
            await asyncio.sleep(pause)
            pause = min(5.0, pause * 2)

    def _heard(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        if pid not in self._connections.pids:  # our own publishes have woken our own subscribers already
            stream, *types = payload.split(_SEPARATOR)
            self.wake(stream, frozenset(types) or None)


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification that a publish carries, and the types of events before it that were still owed one."""

    payload: str
    owed: Types


class Notifier:
    """Notifies other processes, at most once per stream and interval: the first event at once, the rest together.

    While events keep coming, the next publish after the interval carries the notification, which then costs no
    statement and no commit of its own. Only events with no publish after them are notified by a timer.
    """

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections
        self._last: dict[str, float] = {}
        self._owed: dict[str, Types] = {}  # streams with committed events that were not notified yet
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def collect(self, stream: str, types: Types, now: float) -> Notice | None:
        """Decide whether the publish about to happen carries the notification; None means that it does not.

        ``now`` is by the monotonic clock. Call :meth:`owe` to restore what was owed when the publish fails.
        """
        if now - self._last.get(stream, -1.0) < _NOTIFY_INTERVAL_SECONDS:
            return None
        self._last[stream] = now
        owed = self._owed.pop(stream, _NONE)
        return Notice(_payload(stream, _both(owed, types)), owed)

    def owe(self, stream: str, types: Types) -> None:
        """Notify in time: events were committed without a notification."""
        self._owed[stream] = _both(self._owed.get(stream, _NONE), types)
        if stream not in self._timers:
            self._arm(stream, _NOTIFY_INTERVAL_SECONDS + _TIMER_SLACK_SECONDS)

    def tell(self, stream: str, types: Types = None) -> None:
        """Notify soon: something other than a publish made events claimable."""
        self._owed[stream] = _both(self._owed.get(stream, _NONE), types)
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
        if stream not in self._owed:  # a publish carried it
            return
        wait = self._last.get(stream, -1.0) + _NOTIFY_INTERVAL_SECONDS - time.monotonic()
        if wait > 0 and not at_once:
            self._arm(stream, wait + _TIMER_SLACK_SECONDS)
        else:
            self._send(stream)

    def _send(self, stream: str) -> None:
        payload = _payload(stream, self._owed.pop(stream))
        self._last[stream] = time.monotonic()
        task = asyncio.get_running_loop().create_task(self._notify(payload))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _notify(self, payload: str) -> None:
        with contextlib.suppress(*_LISTEN_ERRORS):  # polling makes up for a lost hint
            await self._connections.use(lambda c: c.execute("SELECT pg_notify($1, $2)", CHANNEL, payload))


class PostgresPublisher:
    """Writes rows of ``outbox_event``, and wakes or notifies the subscribers of their stream.

    The number of events decides how: one row of parameters; one array for each column; COPY, chunk by chunk. ``text``
    returns a statement by its name; with ``+notify`` the statement also sends the notification.
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
        self._may_copy = True

    async def publish(self, stream: str, envelopes: Sequence[Envelope]) -> list[str]:
        """Store the events that are not there yet, all or none; return their ids."""
        types = frozenset([envelope.type for envelope in envelopes])
        notice = self._notifier.collect(stream, types, time.monotonic())
        tries = 0
        accepted: list[str] = []
        try:
            work = self._work(stream, envelopes, None if notice is None else notice.payload)

            async def counted(connection: Connection) -> list[str]:
                nonlocal tries
                tries += 1
                return await work(connection)

            accepted = await self._connections.run(counted)
            if tries > 1 and len(accepted) < len(envelopes):
                # A connection may break after the commit and before its answer. An id that was made here, of which no
                # caller knows yet, can only be there because of our own earlier try.
                new = set(accepted)
                accepted = [one.event_id for one in envelopes if one.own_id or one.event_id in new]
        finally:
            self._after(stream, types, notice, stored=bool(accepted))
        for envelope in envelopes:
            envelope.mark_stored()
        return accepted

    def _work(
        self, stream: str, envelopes: Sequence[Envelope], payload: str | None
    ) -> Callable[[Connection], Awaitable[list[str]]]:
        if len(envelopes) == 1:
            return partial(self._insert, "publish_one", (stream, *self._row(envelopes[0]), payload))
        if len(envelopes) <= _MAX_INSERT_EVENTS:
            return partial(self._insert, *self._notifying(payload, (stream, *self._columns(envelopes))))
        return partial(self._insert_many, stream, envelopes, payload)

    def _notifying(self, payload: str | None, values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """Return the statement that stores a batch, and sends the notification if there is one, and its values."""
        return ("publish", values) if payload is None else ("publish+notify", (*values, payload))

    def _after(self, stream: str, types: Types, notice: Notice | None, *, stored: bool) -> None:
        if stored:
            self._listener.wake(stream, types)
            if notice is None:
                self._notifier.owe(stream, types)
        elif notice is not None and notice.owed != _NONE:
            self._notifier.owe(stream, notice.owed)

    async def _insert(self, name: str, values: tuple[Any, ...], connection: Connection) -> list[str]:
        return [row[0] for row in await connection.fetch(self._text(name), *values)]

    async def _insert_many(
        self, stream: str, envelopes: Sequence[Envelope], payload: str | None, connection: Connection
    ) -> list[str]:
        # COPY cannot compare not_before with the server's clock.
        if self._may_copy and not any(envelope.not_before for envelope in envelopes):
            try:
                return await self._copy(connection, stream, envelopes, payload)
            except UniqueViolationError:  # some are there already, or twice among these: INSERT returns which are new
                pass
            except FeatureNotSupportedError:  # the role is subject to row-level security
                self._may_copy = False
        accepted: list[str] = []

        async def insert(columns: Iterable[tuple[Any, ...]], last: bool) -> None:
            name, values = self._notifying(payload if last else None, (stream, *columns))
            accepted.extend(await self._insert(name, values, connection))

        async with connection.transaction():
            await _store_in_chunks(envelopes, self._columns, insert)
        return accepted

    async def _copy(
        self, connection: Connection, stream: str, envelopes: Sequence[Envelope], payload: str | None
    ) -> list[str]:
        """Store events with COPY. Raises ``UniqueViolationError`` when not all of them are new."""

        def rows(chunk: Sequence[Envelope]) -> list[tuple[Any, ...]]:
            return [(stream, *self._row(envelope)[:-1], _ordering_key(envelope, ordered)) for envelope in chunk]

        async def copy(chunk: list[tuple[Any, ...]], last: bool) -> None:
            await connection.copy_records_to_table(
                "outbox_event", schema_name=self._connections.schema, columns=_COPIED_COLUMNS, records=chunk
            )
            if last and payload is not None:
                await connection.fetchval("SELECT pg_notify($1, $2)", CHANNEL, payload)

        async with connection.transaction():
            ordered = await connection.fetchval(self._text("is_ordered"), stream)
            await _store_in_chunks(envelopes, rows, copy)
        return [envelope.event_id for envelope in envelopes]

    def _row(self, e: Envelope) -> tuple[Any, ...]:
        text = e.to_json(self._max_bytes)
        return e.event_id, e.type, e.aggregate_type, e.aggregate_id, text, RANK[e.priority], e.not_before

    def _columns(self, envelopes: Sequence[Envelope]) -> Iterable[tuple[Any, ...]]:
        return zip(*map(self._row, envelopes), strict=True)


def _both(one: Types, other: Types) -> Types:
    return None if one is None or other is None else one | other


def _payload(stream: str, types: Types) -> str:
    """Return what a notification says: the stream and, if they fit, the types."""
    if not types or len(types) > _MAX_TYPES or any(_SEPARATOR in name for name in types):
        return stream
    notice = _SEPARATOR.join([stream, *sorted(types)])
    return notice if len(notice.encode()) <= _MAX_NOTICE_BYTES else stream


def _ordering_key(envelope: Envelope, ordered: bool | None) -> str | None:
    """Return the key as publish.sql and declare_rows.sql compute it."""
    return f"{envelope.aggregate_type or ''}\x1f{envelope.aggregate_id or ''}" if ordered else None


async def _store_in_chunks(
    envelopes: Sequence[Envelope], made: Callable[[Sequence[Envelope]], T], store: Callable[[T, bool], Awaitable[None]]
) -> None:
    """Store chunk after chunk, serialising each while the server stores the one before it.

    ``store`` is called with the chunk and whether it is the last.
    """
    storing: asyncio.Future[None] | None = None
    try:
        for start in range(0, len(envelopes), _CHUNK_EVENTS):
            chunk = made(envelopes[start : start + _CHUNK_EVENTS])
            if storing is not None:
                await storing
            storing = asyncio.ensure_future(store(chunk, start + _CHUNK_EVENTS >= len(envelopes)))
            await asyncio.sleep(0)  # lets the loop send it
    finally:
        if storing is not None:
            await storing
