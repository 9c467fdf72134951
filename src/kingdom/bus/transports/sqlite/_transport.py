"""The SQLite transport: each operation is one function of the write connection, queued to the writer."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Collection, Container, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus.envelope import Envelope
from kingdom.bus.outbox import RANK, CallerTransaction, as_transaction, insert_statement, require_dialect, statement
from kingdom.bus.transport import Clock
from kingdom.bus.transports.sqlite import _claim, _operations
from kingdom.bus.transports.sqlite._store import SqliteReader, SqliteStore, migrate
from kingdom.bus.transports.sqlite._wake import CommitWatcher, Subscribers, data_version
from kingdom.bus.transports.sqlite._writer import Mergeable, SqliteWriter, SyncSqlitePublisher

if TYPE_CHECKING:
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
    from kingdom.bus.transport import TransportOptions


_NAMES: Final = (
    "event_id", "stream", "event_type", "aggregate_type", "aggregate_id", "payload_json", "priority", "not_before",
)  # fmt: skip
_ROW: Final = f"({', '.join('?' for _ in _NAMES)})"
_MAX_ROWS: Final = 64  # in one statement
Row = tuple[Any, ...]


class PublishOperation(Mergeable[list[str]]):
    """One call of ``publish``; returns the ids that are new."""

    def __init__(self, stream: str, envelopes: Sequence[Envelope], max_bytes: int, clock: Clock) -> None:
        self.rows: list[Row] = [
            (
                envelope.event_id,
                stream,
                envelope.type,
                envelope.aggregate_type,
                envelope.aggregate_id,
                envelope.to_json(max_bytes),
                RANK[envelope.priority],
                None if envelope.not_before is None else envelope.not_before.timestamp(),
            )
            for envelope in envelopes
        ]
        self._clock = clock

    def __call__(self, connection: sqlite3.Connection) -> list[str]:
        return self.together(connection, [self])[0]

    def together(self, connection: sqlite3.Connection, calls: Sequence[PublishOperation]) -> list[list[str]]:
        """Publish the rows of several calls with the same statements."""
        rows = [row for call in calls for row in call.rows]
        inserted, last = _insert(connection, rows, self._clock())
        if inserted == len(rows):
            return [[row[0] for row in call.rows] for call in calls]
        # New rows have consecutive ids, so the last ones are ours.
        found = connection.execute(statement("sqlite", "published_since"), {"id": last - inserted}) if inserted else ()
        new = set(found)
        return [[row[0] for row in call.rows if _take(new, row[:2])] for call in calls]


def _take(new: set[Row], row: Row) -> bool:
    """Return whether this row was inserted; if several calls have the same event, the first one inserted it."""
    if row not in new:
        return False
    new.remove(row)
    return True


def _insert(connection: sqlite3.Connection, rows: list[Row], now: float) -> tuple[int, int]:
    """Insert the rows that are not there yet; return how many, and the id of the last."""
    if len(rows) == 1:  # the form without a join takes a third less of SQLite's time
        cursor = connection.execute(_insert_row(), (*rows[0], now))
        return cursor.rowcount, cursor.lastrowid or 0
    inserted, last, start = 0, 0, 0
    while start < len(rows):
        # Powers of two: a few statements, which stay prepared, serve every number of rows.
        size = min(_MAX_ROWS, 1 << (len(rows) - start).bit_length() - 1)
        values = [value for row in rows[start : start + size] for value in row]
        cursor = connection.execute(_insert_rows(size), (now, *values))
        inserted += cursor.rowcount
        last = cursor.lastrowid or last
        start += size
    return inserted, last


@cache
def _insert_row() -> str:
    """Return publish_tx_one.sql with numbered parameters: the values of a row and the time."""
    sql = statement("sqlite", "publish_tx_one").partition("RETURNING")[0]
    for place, name in enumerate((*_NAMES, "now"), 1):
        sql = sql.replace(f":{name}", f"?{place}")
    return sql


@cache
def _insert_rows(rows: int) -> str:
    return statement("sqlite", "publish").replace(_ROW, ", ".join([_ROW] * rows))


class SqliteTransport:
    """Events in the table ``outbox_event`` of one SQLite file, which several processes may share."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._url = url
        self._max_bytes = options.max_bytes
        self._store = SqliteStore(url, options)
        self._clock = self._store.clock
        self._direct = SyncSqlitePublisher(self._store)
        self._subscribers = Subscribers()
        self._connect()

    def _connect(self) -> None:
        self._reader = SqliteReader(self._store)
        writer = self._writer = SqliteWriter(self._store)
        self._watcher = CommitWatcher(
            self._store.path, lambda: writer.run(data_version), lambda: writer.busy, self._subscribers
        )
        self._open = True

    # ── life cycle ────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Refuse a file that cannot be used. Connections are opened on first use."""
        await asyncio.to_thread(self._store.check)
        if not self._open:
            self._connect()

    async def close(self) -> None:
        """Finish what is queued and disconnect."""
        self._open = False
        self._subscribers.clear()
        await self._watcher.close()
        await self._writer.close()
        await self._reader.close()

    async def setup(self) -> list[str]:
        return await asyncio.to_thread(migrate, self._store)

    async def declare(self, stream: str, options: StreamOptions) -> None:
        def work(connection: sqlite3.Connection) -> None:
            _operations.declare(connection, stream, options, self._clock())

        await self._writer.run(work, lambda _: self._subscribers.wake(stream))

    # ── publish ───────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(self, stream: str, envelopes: Sequence[Envelope], tx: Any | None) -> list[str]:
        """Insert, in the caller's transaction or in one shared with concurrent publishers."""
        if tx is not None:
            transaction = await self._adopt(tx)
            sql, params = insert_statement("sqlite", stream, envelopes, self._max_bytes, now=self._clock())
            return [row[0] for row in await transaction.run(sql, params)]
        publish = PublishOperation(stream, envelopes, self._max_bytes, self._clock)
        return await self._writer.run(publish, lambda accepted: self._wake([stream] if accepted else []))

    def publish_now(self, stream: str, envelopes: Sequence[Envelope]) -> list[str]:
        """Insert in the calling thread. Subscribers in this process are woken as those of other processes are."""
        return self._direct.publish(PublishOperation(stream, envelopes, self._max_bytes, self._clock))

    def close_now(self) -> None:
        """Close the connection of :meth:`publish_now`."""
        self._direct.close()

    # ── consume ───────────────────────────────────────────────────────────────────────────────────────────────

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
        claim = _claim.new_claim(stream, worker, limit, lease, types, ids, max_attempts)
        claimed = await self._writer.run(lambda connection: _claim.take(connection, claim, self._clock()))
        return [] if claimed is None else await self._deliver(stream, worker, claim.token, claimed)

    async def recall(self, stream: str, *, worker: str, lease: float) -> list[Delivery]:
        token = _claim.new_token(worker)
        held = await self._writer.run(
            lambda connection: _claim.recall(connection, stream, worker, token, lease, self._clock())
        )
        return await self._deliver(stream, worker, token, held)

    async def _deliver(self, stream: str, worker: str, token: str, held: _claim.ClaimedRows) -> list[Delivery]:
        found, unreadable = _claim.deliveries(stream, worker, token, held)
        if unreadable:  # edited by hand, or inserted by another program: it must not block the rest
            await self.settle([], [], unreadable)
        return found

    async def peek(self, stream: str, limit: int, types: Sequence[str] | None, skip: Container[str]) -> list[Record]:
        wanted = None if types is None else sorted(set(types))
        return await self._reader.run(
            lambda connection: _claim.peek(connection, stream, limit, wanted, skip, self._clock())
        )

    async def settle(
        self, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]
    ) -> list[Delivery]:
        return await self._change(_operations.SettleOperation(done, retry, dead))

    async def consume(self, stream: str, event_id: str, tx: Any) -> bool:
        """Claim and settle in the caller's transaction."""
        transaction = await self._adopt(tx)
        given = {"stream": stream, "event_id": event_id, "now": self._clock()}
        return bool(await transaction.run(statement("sqlite", "consume_tx"), given))

    async def _adopt(self, tx: Any) -> CallerTransaction:
        transaction = as_transaction(tx)
        require_dialect(transaction, "sqlite", self._url)
        self._store.require_same([row[2] for row in await transaction.run("PRAGMA database_list", {})])
        return transaction

    async def extend(self, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
        return await self._change(partial(_operations.extend, deliveries=deliveries, lease=lease))

    async def release(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        return await self._change(partial(_operations.release, deliveries=deliveries))

    async def _change(self, change: Callable[[sqlite3.Connection, float], _operations.ChangeResult]) -> list[Delivery]:
        outcome = await self._writer.run(
            lambda connection: change(connection, self._clock()), lambda outcome: self._wake(outcome.wake)
        )
        return outcome.lost

    def subscribe(
        self, stream: str, wake: Callable[[], None], types: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Wake on what this bus writes and on what other connections commit."""
        undo = self._subscribers.add(stream, wake)
        if self._open:
            self._watcher.start()
        return undo

    # ── operate ───────────────────────────────────────────────────────────────────────────────────────────────

    async def depth(self) -> dict[str, Depth]:
        return await self._reader.run(lambda connection: _operations.depth(connection, self._clock()))

    async def pending_types(self, stream: str) -> dict[str, int]:
        return await self._reader.run(lambda connection: _operations.pending_types(connection, stream, self._clock()))

    async def dead(self, stream: str, limit: int) -> list[DeadLetter]:
        return await self._reader.run(lambda connection: _operations.dead(connection, stream, limit))

    async def find(self, event_id: str) -> Record | None:
        return await self._reader.run(lambda connection: _operations.find(connection, event_id))

    async def records(
        self, stream: str, *, ids: str, within: float | None, after: Any, limit: int
    ) -> tuple[list[Record], Any]:
        """Return one page of rows in publish order."""
        since = None if within is None else self._clock() - within
        return await self._reader.run(
            lambda connection: _operations.list_records(connection, stream, ids, since, after or 0, limit)
        )

    async def requeue(
        self, stream: str, ids: Sequence[str] | None, *, event_type: str | None, error_code: str | None
    ) -> int:
        """Requeue in batches."""
        rows = await self._writer.run(
            lambda connection: _operations.to_requeue(connection, stream, ids, event_type, error_code)
        )
        moved = 0
        for start in range(0, len(rows), _operations.BATCH):
            batch = rows[start : start + _operations.BATCH]
            moved += await self._writer.run(
                lambda connection, batch=batch: _operations.requeue(connection, batch, self._clock()),  # type: ignore[misc]
                lambda count: self._wake([stream] if count else []),
            )
        return moved

    async def purge(
        self, older_than: float, *, stream: str | None, dead: bool, keep: Collection[str], only: Collection[str] | None
    ) -> int:
        """Delete finished events in batches."""
        before, kept = self._clock() - older_than, json.dumps(sorted(keep))
        wanted = None if only is None else json.dumps(sorted(only))
        streams = [stream] if stream is not None else await self._writer.run(_operations.streams)
        removed = 0
        for name in streams:
            removed += await self._purge("done", name, before, kept, wanted)
            if dead and (buried := await self._purge("dead", name, before, kept, wanted)):
                removed += buried
                self._subscribers.wake(name)  # a parked aggregate may continue
        if stream is None and only is None:
            await self._purge("inbox", None, before)
        return removed

    async def _purge(
        self, kind: str, stream: str | None, before: float, keep: str = "[]", only: str | None = None
    ) -> int:
        removed, last = 0, _operations.BATCH
        while last == _operations.BATCH:
            last = await self._writer.run(
                lambda connection: _operations.purge(connection, kind, stream, before, keep, only)
            )
            removed += last
        return removed

    async def doctor(self) -> list[Check]:
        from kingdom.bus.transports.sqlite._doctor import examine

        return await asyncio.to_thread(examine, self._store)

    def _wake(self, streams: Sequence[str] | set[str]) -> None:
        for stream in streams:
            self._subscribers.wake(stream)
