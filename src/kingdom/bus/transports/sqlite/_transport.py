"""The transport: each operation is one function of the write connection, queued to the writer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kingdom.bus.outbox import insert_statement, statement
from kingdom.bus.transports.sqlite import _claim, _operate, _peek, _settle
from kingdom.bus.transports.sqlite._direct import Direct
from kingdom.bus.transports.sqlite._migrate import migrate
from kingdom.bus.transports.sqlite._publish import Publish
from kingdom.bus.transports.sqlite._reader import Reader
from kingdom.bus.transports.sqlite._store import Store
from kingdom.bus.transports.sqlite._wake import Neighbours, Subscribers, data_version
from kingdom.bus.transports.sqlite._writer import Writer
from kingdom.bus.tx import Transaction, adopt, require

if TYPE_CHECKING:
    import sqlite3

    from kingdom.bus.delivery import (
        Check,
        DeadLetter,
        DeadVerdict,
        Delivery,
        Depth,
        DoneVerdict,
        Record,
        RetryVerdict,
        StreamOptions,
    )
    from kingdom.bus.envelope import Envelope
    from kingdom.bus.transport import TransportOptions


class SqliteTransport:
    """Events in the table ``outbox_event`` of one SQLite file, which several processes may share."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._url = url
        self._max_bytes = options.max_bytes
        self._store = Store(url, options)
        self._clock = self._store.clock
        self._direct = Direct(self._store)
        self._subscribers = Subscribers()
        self._connect()

    def _connect(self) -> None:
        self._reader = Reader(self._store)
        writer = self._writer = Writer(self._store)
        self._neighbours = Neighbours(
            self._store.path, lambda: writer.run(data_version), lambda: writer.busy, self._subscribers
        )
        self._open = True

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Refuse a file that cannot be used; connections are made when they are needed."""
        await asyncio.to_thread(self._store.check)
        if not self._open:
            self._connect()

    async def close(self) -> None:
        """Finish what is queued and disconnect."""
        self._open = False
        self._subscribers.clear()
        await self._neighbours.close()
        await self._writer.close()
        await self._reader.close()

    async def setup(self) -> list[str]:
        """Create or migrate the file."""
        return await asyncio.to_thread(migrate, self._store)

    async def declare(self, stream: str, options: StreamOptions) -> None:
        """Store a stream's options."""

        def work(connection: sqlite3.Connection) -> None:
            _operate.declare(connection, stream, options, self._clock())

        await self._writer.run(work, lambda _: self._subscribers.ring(stream))

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(self, stream: str, envelopes: Sequence[Envelope], tx: Any | None) -> list[str]:
        """Insert, in the caller's transaction or together with whoever else publishes now."""
        if tx is not None:
            transaction = await self._adopt(tx)
            sql, params = insert_statement("sqlite", stream, envelopes, self._max_bytes, now=self._clock())
            return [row[0] for row in await transaction.run(sql, params)]
        publish = Publish(stream, envelopes, self._max_bytes, self._clock)
        return await self._writer.run(publish, lambda accepted: self._ring([stream] if accepted else []))

    def publish_now(self, stream: str, envelopes: Sequence[Envelope]) -> list[str]:
        """Insert in the calling thread. Whoever waits in this process hears of it like any neighbour."""
        return self._direct.publish(Publish(stream, envelopes, self._max_bytes, self._clock))

    def close_now(self) -> None:
        """Disconnect what :meth:`publish_now` connected."""
        self._direct.close()

    # ── consuming ─────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(
        self,
        stream: str,
        *,
        worker: str,
        limit: int,
        lease: float,
        types: Sequence[str] | None,
        ids: Sequence[str] | None,
        max_attempts: int,
    ) -> list[Delivery]:
        """Hold what can be claimed; what was stored and cannot be read goes DEAD instead."""
        claim = _claim.new_claim(stream, worker, limit, lease, types, ids, max_attempts)
        claimed = await self._writer.run(lambda connection: _claim.take(connection, claim, self._clock()))
        return [] if claimed is None else await self._deliver(stream, worker, claim.token, claimed)

    async def recall(self, stream: str, *, worker: str, lease: float) -> list[Delivery]:
        """Hold anew what a worker holds."""
        token = _claim.new_token(worker)
        held = await self._writer.run(
            lambda connection: _claim.recall(connection, stream, worker, token, lease, self._clock())
        )
        return await self._deliver(stream, worker, token, held)

    async def _deliver(self, stream: str, worker: str, token: str, held: _claim.Claimed) -> list[Delivery]:
        found, unreadable = _claim.deliveries(stream, worker, token, held)
        if unreadable:  # edited by hand, or inserted by somebody else's code: it must not hold up the rest
            await self.settle([], [], unreadable)
        return found

    async def peek(self, stream: str, limit: int, types: Sequence[str] | None, skip: Container[str]) -> list[Record]:
        """What could be claimed now."""
        wanted = None if types is None else sorted(set(types))
        return await self._reader.run(
            lambda connection: _peek.peek(connection, stream, limit, wanted, skip, self._clock())
        )

    async def settle(
        self, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]
    ) -> list[Delivery]:
        """Write verdicts."""
        return await self._change(_settle.Settle(done, retry, dead))

    async def consume(self, stream: str, event_id: str, tx: Any) -> bool:
        """Claim and settle in the caller's transaction."""
        transaction = await self._adopt(tx)
        given = {"stream": stream, "event_id": event_id, "now": self._clock()}
        return bool(await transaction.run(statement("sqlite", "consume_tx"), given))

    async def _adopt(self, tx: Any) -> Transaction:
        transaction = adopt(tx)
        require(transaction, "sqlite", self._url)
        self._store.require_same([row[2] for row in await transaction.run("PRAGMA database_list", {})])
        return transaction

    async def extend(self, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
        """Renew leases."""
        return await self._change(partial(_settle.extend, deliveries=deliveries, lease=lease))

    async def release(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Give events back."""
        return await self._change(partial(_settle.release, deliveries=deliveries))

    async def _change(self, change: Callable[[sqlite3.Connection, float], _settle.Outcome]) -> list[Delivery]:
        outcome = await self._writer.run(
            lambda connection: change(connection, self._clock()), lambda outcome: self._ring(outcome.wake)
        )
        return outcome.lost

    def subscribe(self, stream: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Wake on what this bus writes, and on what other connections commit."""
        undo = self._subscribers.add(stream, wake)
        if self._open:
            self._neighbours.start()
        return undo

    # ── operating ─────────────────────────────────────────────────────────────────────────────────────────────

    async def depth(self) -> dict[str, Depth]:
        """Count, from partial indexes only."""
        return await self._reader.run(lambda connection: _operate.depth(connection, self._clock()))

    async def pending_types(self, stream: str) -> dict[str, int]:
        """Count what waits by type."""
        return await self._reader.run(lambda connection: _operate.pending_types(connection, stream, self._clock()))

    async def dead(self, stream: str, limit: int) -> list[DeadLetter]:
        """The latest dead letters."""
        return await self._reader.run(lambda connection: _operate.dead(connection, stream, limit))

    async def find(self, event_id: str) -> Record | None:
        """One row, whole."""
        return await self._reader.run(lambda connection: _operate.find(connection, event_id))

    async def records(
        self, stream: str, *, ids: str, within: float | None, after: Any, limit: int
    ) -> tuple[list[Record], Any]:
        """Rows in publish order, a page at a time."""
        since = None if within is None else self._clock() - within
        return await self._reader.run(
            lambda connection: _operate.listed(connection, stream, ids, since, after or 0, limit)
        )

    async def requeue(
        self, stream: str, ids: Sequence[str] | None, *, event_type: str | None, error_code: str | None
    ) -> int:
        """Start events over, a batch at a time."""
        rows = await self._writer.run(
            lambda connection: _operate.to_requeue(connection, stream, ids, event_type, error_code)
        )
        moved = 0
        for start in range(0, len(rows), _operate.BATCH):
            batch = rows[start : start + _operate.BATCH]
            moved += await self._writer.run(
                lambda connection, batch=batch: _operate.requeue(connection, batch, self._clock()),  # type: ignore[misc]
                lambda count: self._ring([stream] if count else []),
            )
        return moved

    async def purge(self, older_than: float, *, stream: str | None, dead: bool, keep: Collection[str]) -> int:
        """Delete finished events, a batch at a time."""
        before, kept = self._clock() - older_than, json.dumps(sorted(keep))
        streams = [stream] if stream is not None else await self._writer.run(_operate.streams)
        removed = 0
        for name in streams:
            removed += await self._purge("done", name, before, kept)
            if dead and (buried := await self._purge("dead", name, before, kept)):
                removed += buried
                self._subscribers.ring(name)  # what a dead head kept parked may go on
        if stream is None:
            await self._purge("inbox", None, before)
        return removed

    async def _purge(self, kind: str, stream: str | None, before: float, keep: str = "[]") -> int:
        removed, last = 0, _operate.BATCH
        while last == _operate.BATCH:
            last = await self._writer.run(lambda connection: _operate.purge(connection, kind, stream, before, keep))
            removed += last
        return removed

    async def doctor(self) -> list[Check]:
        """Look at the file, the file system and the settings."""
        from kingdom.bus.transports.sqlite._doctor import examine

        return await asyncio.to_thread(examine, self._store)

    def _ring(self, streams: Sequence[str] | set[str]) -> None:
        for stream in streams:
            self._subscribers.ring(stream)
