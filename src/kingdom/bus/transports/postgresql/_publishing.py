"""Storing events in a transaction of our own: one, some, or many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from asyncpg import PostgresError, UniqueViolationError

from kingdom.bus.envelope import Envelope
from kingdom.bus.outbox import RANK
from kingdom.bus.transports.postgresql._connections import AWAY, Connection, Connections
from kingdom.bus.transports.postgresql._notify import CHANNEL

T = TypeVar("T")
_SOME: Final = 100  # events that one INSERT takes; more go in chunks
_CHUNK: Final = 200  # events at once of many: fewer cost round trips, with more the server waits for the next
_COPIED: Final = (
    "stream", "event_id", "event_type", "aggregate_type", "aggregate_id", "payload_json", "priority", "ordering_key",
)  # fmt: skip


class Publisher:
    """Writes rows of ``outbox_event``.

    ``text`` gives a statement by its name; with ``+unless-known`` it leaves out what is there already, with ``+notify``
    it notifies.
    """

    def __init__(self, connections: Connections, text: Callable[[str], str], max_bytes: int) -> None:
        self._connections = connections
        self._text = text
        self._max_bytes = max_bytes
        self._prepared: dict[Connection, Any] = {}  # publish_one, on each connection

    async def publish(self, stream: str, envelopes: Sequence[Envelope], *, notify: bool) -> list[str]:
        """Store events, all or none, and say which were new."""
        told = "+notify" if notify else ""
        if len(envelopes) == 1:
            envelope = envelopes[0]
            values = self._row(envelope)
            if envelope.own_id and not told and await self._new(stream, values):
                return [envelope.event_id]
            return await self._insert(f"publish_one+unless-known{told}", stream, values)
        if len(envelopes) > _SOME:
            return await self._connections.run(lambda c: self._many(c, stream, envelopes, told))
        return await self._insert(f"publish{told}", stream, self._columns(envelopes))

    async def _new(self, stream: str, values: tuple[Any, ...]) -> bool:
        """Store an event whose id was made here and is new, unless the same envelope is published once more.

        A plain INSERT takes the server less time than one that leaves out what is there already. With a connection at
        hand the way to it is short; whatever goes wrong on it, the long way tells, or mends by trying again.
        """
        connection: Connection = self._connections.lend()
        statement = self._prepared.get(connection)
        if statement is None:  # no connection is at hand, or it has not done this yet
            if connection is not None:
                self._connections.give_back(connection)
            return await self._connections.run(lambda c: self._first(c, stream, values))
        try:
            await statement.fetch(stream, *values)
        except asyncio.CancelledError:
            connection.terminate()  # the statement may still be running on the server
            raise
        except UniqueViolationError:
            return False
        except (*AWAY, PostgresError):
            self._prepared.pop(connection, None)
            return False
        finally:
            self._connections.give_back(connection)
        return True

    async def _first(self, connection: Connection, stream: str, values: tuple[Any, ...]) -> bool:
        """The same on a connection that has not done it before, or that was waited for."""
        sql = self._text("publish_one")
        try:
            if self._connections.pgbouncer:  # what is prepared may be gone with the next statement
                await connection.fetch(sql, stream, *values)
                return True
            statement = self._prepared.get(connection)
            if statement is None:
                statement = await connection.prepare(sql)
                kept = {one: ready for one, ready in self._prepared.items() if not one.is_closed()}
                self._prepared = {**kept, connection: statement}
            await statement.fetch(stream, *values)
        except UniqueViolationError:
            return False
        return True

    async def _insert(self, name: str, stream: str, values: Iterable[Any]) -> list[str]:
        sql, given = self._text(name), tuple(values)
        return [row[0] for row in await self._connections.run(lambda c: c.fetch(sql, stream, *given))]

    async def _many(self, connection: Connection, stream: str, envelopes: Sequence[Envelope], told: str) -> list[str]:
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
