"""The outbox as a relay sees it: leases on shards, rows in publish order, and marks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from kingdom.bus.errors import BusError, InvalidEnvelope
from kingdom.bus.outbox import with_schema
from kingdom.bus.relay_port import OutboxRow, RelayShards
from kingdom.bus.transports.postgresql._connections import Connection, ConnectionPool
from kingdom.bus.transports.postgresql._publisher import CHANNEL, Listener

_SHARDS: Final = 16  # as in relay_index.sql
_LOCK: Final = 0x72656C61790000  # of an advisory lock: those who share out shards take turns
_LOCK_PAUSE_SECONDS: Final = 0.2
_INDEX: Final = "outbox_event_relay"
_MAX_MESSAGE_CHARS: Final = 4000


class PostgresOutbox:
    """See :class:`kingdom.bus.relay_port.Outbox`. ``text`` returns a statement by its name."""

    def __init__(self, connections: ConnectionPool, listener: Listener, text: Callable[[str], str]) -> None:
        self._connections = connections
        self._text = text
        self.subscribe = listener.subscribe

    async def prepare(self) -> None:
        await self._connections.run(self._prepare)

    async def _prepare(self, connection: Connection) -> None:
        await connection.execute(self._qualified("SELECT 1 FROM outbox_relay LIMIT 1"))
        # Tried, not waited for: who waits for the lock has a transaction, and a concurrent index waits for that. Behind
        # pgbouncer the lock would stay with a connection that others use.
        while not self._connections.pgbouncer:
            if await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
                break
            await asyncio.sleep(_LOCK_PAUSE_SECONDS)
        try:
            await self._create_index(connection)
        finally:
            if not self._connections.pgbouncer:
                await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK)

    async def _create_index(self, connection: Connection) -> None:
        """Create the index; one that was left half-made is replaced."""
        table = self._qualified(" outbox_event").strip()
        valid = await connection.fetchval(
            "SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            "WHERE i.indrelid = to_regclass($1) AND c.relname = $2",
            table,
            _INDEX,
        )
        if valid is False and not self._connections.pgbouncer:
            await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {table.removesuffix('outbox_event')}{_INDEX}")
        if not valid:
            await connection.execute(self._text("relay_index"))

    async def streams(self) -> list[str]:
        return [row["stream"] for row in await self._fetch("relay_streams")]

    async def share(self, stream: str, holder: str, lease: float) -> RelayShards:
        async def work(connection: Connection) -> list[Any]:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
                await connection.execute(self._text("relay_join"), stream, holder, lease)
                await connection.execute(
                    self._qualified(
                        "INSERT INTO outbox_relay (stream, shard) SELECT $1, shard "
                        "FROM generate_series(0, $2 - 1) AS shard ON CONFLICT DO NOTHING"
                    ),
                    stream,
                    _SHARDS,
                )
                rows: list[Any] = await connection.fetch(self._text("relay_share"), stream, holder, lease)
                if any(row["given_up"] for row in rows):
                    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, stream)
                return rows

        rows = await self._connections.run(work)
        mine = [row for row in rows if not row["given_up"]]
        return RelayShards([row["shard"] for row in mine if row["held"]], len(mine))

    async def leave(self, stream: str, holder: str) -> None:
        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
                for sql in (
                    "DELETE FROM outbox_relay_member WHERE stream = $1 AND (holder = $2 OR until < now())",
                    "UPDATE outbox_relay SET holder = NULL, until = NULL WHERE stream = $1 AND holder = $2",
                ):
                    await connection.execute(self._qualified(sql), stream, holder)
                await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, stream)

        await self._connections.run(work)

    async def read(
        self, stream: str, shards: Sequence[int], *, limit: int, after: int, without: Sequence[str]
    ) -> list[OutboxRow]:
        each = max(1, -(-limit // len(shards)))
        rows = await self._fetch("relay_read", stream, list(shards), each, after, list(without))
        return [OutboxRow(*row) for row in rows]

    async def mark(self, stream: str, holder: str, shards: Sequence[int], ids: Sequence[int]) -> int:
        return len(await self._fetch("relay_mark", stream, holder, list(shards), sorted(ids)))

    async def fail(self, stream: str, holder: str, shards: Sequence[int], failed: dict[int, BusError]) -> None:
        rows = [
            (key, isinstance(error, InvalidEnvelope), type(error).__name__, str(error)[:_MAX_MESSAGE_CHARS])
            for key, error in sorted(failed.items())
        ]
        await self._fetch("relay_failed", stream, holder, list(shards), *map(list, zip(*rows, strict=True)))

    async def _fetch(self, name: str, *arguments: Any) -> list[Any]:
        sql = self._text(name)
        rows: list[Any] = await self._connections.run(lambda connection: connection.fetch(sql, *arguments))
        return rows

    def _qualified(self, sql: str) -> str:
        return with_schema(sql, self._connections.schema)
