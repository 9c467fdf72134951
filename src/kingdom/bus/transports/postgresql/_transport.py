"""The transport: every operation as one statement, in batches."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Container, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any

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
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.outbox import (
    CallerTransaction,
    as_transaction,
    form_from_json,
    form_to_json,
    insert_statement,
    require_dialect,
    statement,
    with_schema,
)
from kingdom.bus.transport import TransportOptions
from kingdom.bus.transports.postgresql import _claims
from kingdom.bus.transports.postgresql._claims import ClaimWatermark
from kingdom.bus.transports.postgresql._connections import Connection, ConnectionPool, check_version, migrate
from kingdom.bus.transports.postgresql._publisher import (
    CHANNEL,
    UNORDERED_CACHE_SECONDS,
    Listener,
    Notifier,
    PostgresPublisher,
)

_OPTIONS_FRESH = 5.0  # seconds a stream's options are believed before they are read again
_PAGE = 1000  # places looked at at once when peeking
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AGGREGATES = 1000  # looked at per claim of an ordered stream


class PostgresTransport:
    """Events in the table ``outbox_event``; the row is the truth, whoever changes it."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._connections = ConnectionPool(url, options.connect_timeout)
        self._max_bytes = options.max_bytes
        self._listener = Listener(self._connections)
        self._notifier = Notifier(self._connections)
        self._marks: dict[tuple[str, tuple[str, ...] | None], ClaimWatermark] = {}
        self._streams: dict[str, StreamOptions] = {}
        self._streams_until = 0.0
        self._place_again_at = 0.0
        self._cursors: dict[str, str] = {}
        self._sql: dict[str, str] = {}
        self._publisher = PostgresPublisher(
            self._connections, self._listener, self._notifier, self._text, options.max_bytes
        )

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Connect, and refuse a database that a newer version has migrated."""
        connections = self._connections
        await connections.run(lambda c: check_version(c, connections.schema, connections.shown))

    async def close(self) -> None:
        """Send owed notifications, then disconnect."""
        await self._notifier.close()
        await self._listener.close()
        await self._connections.close()

    async def setup(self) -> list[str]:
        """Create or migrate the tables."""
        connections = self._connections
        return await connections.run(lambda c: migrate(c, connections.schema, connections.shown))

    async def declare(self, stream: str, options: StreamOptions) -> None:
        """Store a stream's options and give events published before them their place."""

        async def work(connection: Connection) -> Any:
            async with connection.transaction():
                given = stream, options.ordered, options.dead_head, form_to_json(options.document)
                order = await connection.fetchrow(self._text("declare"), *given)
                await connection.execute(self._text("declare_rows"), stream, options.ordered)
                if order["changed"]:
                    await connection.execute(self._text("declare_changed"), stream)
            return order["fresh"]

        fresh = await self._connections.run(work)
        self._streams_until = 0.0
        if fresh and options.ordered:
            # By now or soon, all who publish know. What came from those who did not know yet gets its place too: order
            # holds for every publish that begins when this has returned.
            await asyncio.sleep(2 * UNORDERED_CACHE_SECONDS)
            await self._execute("declare_rows", stream, options.ordered)

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, stream: str, envelopes: Sequence[Envelope], tx: Any | None) -> Coroutine[Any, Any, list[str]]:
        """Insert, in the caller's transaction or in one of our own."""
        return self._publisher.publish(stream, envelopes) if tx is None else self._join(stream, envelopes, tx)

    async def _join(self, stream: str, envelopes: Sequence[Envelope], tx: Any) -> list[str]:
        transaction = self._adopt(tx)
        sql, params = insert_statement("postgresql", stream, envelopes, self._max_bytes, self._connections.schema)
        return [row[0] for row in await transaction.run(sql, params)]

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
        """Claim; which statement depends on the stream (ordered or not) and on the watermark."""
        token = _new_token(worker)
        wanted = None if types is None else list(types)
        if ids is not None:
            rows = await self._claim_named(stream, limit, lease, token, list(ids), wanted, max_attempts)
        else:
            rows = await self._claim_waiting(stream, limit, lease, token, wanted, max_attempts)
        return await self._deliveries(stream, worker, token, rows)

    async def _claim_waiting(
        self, stream: str, limit: int, lease: float, token: str, wanted: list[str] | None, max_attempts: int
    ) -> list[Any]:
        rows: list[Any] = []
        options = None
        for fresh in (False, True):  # an empty hand may be due to what another process declared: look again, once
            known, options = options, (await self._options(fresh=fresh)).get(stream, StreamOptions())
            if fresh and known == options:
                break
            if options.ordered:
                rows = await self._claim_ordered(stream, limit, lease, token, wanted, max_attempts, options)
            else:
                rows = await self._claim_plain(stream, limit, lease, token, wanted, max_attempts)
            if rows:
                break
        return rows

    async def _deliveries(self, stream: str, worker: str, token: str, rows: list[Any]) -> list[Delivery]:
        rows.sort(key=lambda row: (row["priority"], row["next_retry_at"], row["id"]))
        deliveries, unreadable = [], []
        for row in rows:
            try:
                deliveries.append(
                    Delivery(stream, _claims.row_envelope(row), row["attempt_count"], token, worker, row["id"])
                )
            except InvalidEnvelope as error:
                unreadable.append((row["id"], token, "DEAD", 0.0, "INVALID_ENVELOPE", str(error)))
        for broken in unreadable:  # edited by hand, or inserted by somebody else's code: it must not hold up the rest
            await self._fetch("settle_failed", *broken)
        return deliveries

    async def _claim_plain(
        self, stream: str, limit: int, lease: float, token: str, types: list[str] | None, max_attempts: int
    ) -> list[Any]:
        key = (stream, None if types is None else tuple(types))
        mark = self._marks.get(key) or self._marks.setdefault(key, ClaimWatermark())
        rows: list[Any] = []
        if mark.usable():
            rows = await self._fetch("claim_fast", stream, limit, lease, token, types, *mark.arrays())
            mark.claimed(rows, limit)
            if not mark.must_look_before(len(rows), limit):
                return rows
        buried = True
        while buried and len(rows) < limit:  # a spent event took a place: look again
            started = time.perf_counter()
            found = await self._fetch("claim_full", stream, limit - len(rows), lease, token, types, max_attempts)
            mark.full_claim_took(time.perf_counter() - started)
            buried = bool(found) and found[-1]["buried"] is not None
            rows += found[:-1] if buried else found
        mark.claimed(rows, limit)
        return rows

    async def _claim_ordered(
        self,
        stream: str,
        limit: int,
        lease: float,
        token: str,
        types: list[str] | None,
        max_attempts: int,
        options: StreamOptions,
    ) -> list[Any]:
        rows: list[Any] = []
        start = self._cursors.get(stream, "")
        wrapped = start == ""
        while True:
            found = await self._fetch(
                "claim_ordered", stream, limit - len(rows), lease, token, types, max_attempts, start,
                options.dead_head == "park", _AGGREGATES,
            )  # fmt: skip
            rows += [row for row in found if row["id"] is not None]
            looked_at, reached, buried = found[0]["looked_at"], found[0]["reached"], found[0]["buried"]
            # More aggregates than one look takes in: the next look goes on behind them, so that none starves.
            start = reached if looked_at == _AGGREGATES else ""
            self._cursors[stream] = start
            if len(rows) >= limit:
                return rows
            if buried:  # its follower may go now
                continue
            if start == "" and wrapped:
                return rows
            wrapped = wrapped or start == ""

    async def _claim_named(
        self,
        stream: str,
        limit: int,
        lease: float,
        token: str,
        ids: list[str],
        types: list[str] | None,
        max_attempts: int,
    ) -> list[Any]:
        rows: list[Any] = []
        buried = True
        while buried and len(rows) < limit:  # a spent event took a place, and may have held back its follower
            left = limit - len(rows)
            found = await self._fetch("claim_named", stream, left, lease, token, ids, types, max_attempts)
            buried = bool(found) and found[-1]["buried"] is not None
            rows += found[:-1] if buried else found
        return rows

    async def recall(self, stream: str, *, worker: str, lease: float) -> list[Delivery]:
        """Hold anew what a worker holds."""
        token = _new_token(worker)
        return await self._deliveries(stream, worker, token, await self._fetch("recall", stream, lease, token, worker))

    async def peek(self, stream: str, limit: int, types: Sequence[str] | None, skip: Container[str]) -> list[Record]:
        """What could be claimed now: places, a page at a time, then the rows that were not skipped."""
        wanted = None if types is None else list(types)
        chosen: list[int] = []
        size, place = min(limit, _PAGE), (0, _EPOCH, 0)
        while len(chosen) < limit:
            page = await self._fetch("peek", stream, wanted, size, *place)
            chosen += [row["id"] for row in page if row["event_id"] not in skip]
            if len(page) < size:
                break
            size, place = _PAGE, page[-1][:3]
        return [_claims.record_from_row(row) for row in await self._fetch("records", chosen[:limit])] if chosen else []

    async def settle(
        self, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]
    ) -> list[Delivery]:
        """Write verdicts; two kinds in one call share a transaction."""
        failed = [(v.delivery, "PENDING", v.after, v.code, v.message) for v in retry]
        failed += [(v.delivery, "DEAD", 0.0, v.code, v.message) for v in dead]
        failed.sort(key=lambda item: item[0].handle)
        rows = [(delivery.handle, delivery.token, *verdict) for delivery, *verdict in failed]
        named = _claims.rows_by_outcome(done)
        await self._check_outcomes(done if named else ())
        writes = {
            "settle_done": _claims.rows_by_token(verdict.delivery for verdict in done if verdict.outcome is None),
            "settle_outcome": named,
            "settle_failed": rows,
        }
        statements = [(self._text(name), given) for name, given in writes.items() if given]

        async def work(connection: Connection) -> list[Any]:
            return [row for sql, given in statements for row in await connection.fetchmany(sql, given)]

        async def together(connection: Connection) -> list[Any]:
            async with connection.transaction():
                return await work(connection)

        settled = await self._connections.run(together if len(statements) > 1 else work)
        held = [*(verdict.delivery for verdict in done), *(item[0] for item in failed)]
        streams = {v.delivery.stream for v in retry if v.after <= 0}
        for stream in {delivery.stream for delivery in held}:
            if stream in streams or ((options := self._streams.get(stream)) and options.ordered):
                self._wake(stream)  # it, or its follower, may go now
        return _claims.lost_deliveries(held, settled)

    async def consume(self, stream: str, event_id: str, tx: Any) -> bool:
        """Claim and settle in the caller's transaction."""
        return bool(await self._adopt(tx).run(self._text("consume_tx"), {"stream": stream, "event_id": event_id}))

    def _adopt(self, tx: Any) -> CallerTransaction:
        transaction = as_transaction(tx)
        require_dialect(transaction, "postgresql", self._connections.shown)
        return transaction

    async def extend(self, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
        """Renew leases, one statement per claim, all in one round trip."""
        return await self._lost(deliveries, "extend", [(*held, lease) for held in _claims.rows_by_token(deliveries)])

    async def release(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Give events back."""
        lost = await self._lost(deliveries, "release", _claims.rows_by_token(deliveries))
        for stream in {delivery.stream for delivery in deliveries}:
            self._wake(stream)
        return lost

    async def _lost(self, deliveries: Sequence[Delivery], name: str, leases: list[Any]) -> list[Delivery]:
        sql = self._text(name)
        return _claims.lost_deliveries(
            deliveries, await self._connections.run(lambda connection: connection.fetchmany(sql, leases))
        )

    def subscribe(self, stream: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Listen for notifications of a stream."""
        return self._listener.subscribe(stream, wake)

    # ── operating ─────────────────────────────────────────────────────────────────────────────────────────────

    async def depth(self) -> dict[str, Depth]:
        """Count, from partial indexes only."""
        return {
            row["stream"]: Depth(row["pending"], row["processing"], row["dead"], max(0.0, row["oldest"]))
            for row in await self._fetch("depth")
        }

    async def pending_types(self, stream: str) -> dict[str, int]:
        """Count what waits by type."""
        return {row["event_type"]: row["waiting"] for row in await self._fetch("pending_types", stream)}

    async def dead(self, stream: str, limit: int) -> list[DeadLetter]:
        """The latest dead letters."""
        return [
            DeadLetter(
                row["event_id"],
                _claims.readable_envelope(row),
                row["attempt_count"],
                row["last_error_code"],
                row["last_error_message"],
                row["processed_at"],
            )
            for row in await self._fetch("dead", stream, limit)
        ]

    async def find(self, event_id: str) -> Record | None:
        """One row, whole."""
        rows = await self._fetch("find", event_id)
        return _claims.record_from_row(rows[0]) if rows else None

    async def records(
        self, stream: str, *, ids: str, within: float | None, after: Any, limit: int
    ) -> tuple[list[Record], Any]:
        """Rows in publish order, a page at a time."""
        like = ids.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")
        rows = await self._fetch("listing", stream, after or 0, within, like, limit)
        return [_claims.record_from_row(row) for row in rows], rows[-1]["id"] if len(rows) == limit else None

    async def requeue(
        self, stream: str, ids: Sequence[str] | None, *, event_type: str | None, error_code: str | None
    ) -> int:
        """Start events over."""
        wanted = None if ids is None else list(ids)
        moved = await self._execute("requeue", stream, wanted, event_type, error_code)
        if moved:
            self._wake(stream)
        return moved

    async def purge(self, older_than: float, *, stream: str | None, dead: bool, keep: Collection[str]) -> int:
        """Delete finished events, a batch at a time."""
        removed, reached = 0, 0
        while reached is not None:
            row = (await self._fetch("purge", older_than, stream, dead, reached, list(keep)))[0]
            removed += row["removed"]
            reached = row["reached"]
        await self._execute("purge_inbox", older_than)
        return removed

    async def doctor(self) -> list[Check]:
        """Look at the server, the table and the clock."""
        from kingdom.bus.transports.postgresql._doctor import examine

        return await examine(self._connections)

    # ── helpers ───────────────────────────────────────────────────────────────────────────────────────────────

    def _text(self, name: str) -> str:
        sql = self._sql.get(name)
        if sql is None:
            base, *more = name.split("+")
            sql = with_schema(statement("postgresql", base), self._connections.schema)
            if "place" in more:
                sql += "RETURNING ordering_key IS NULL"
            if "unless-known" in more:
                sql += "ON CONFLICT (event_id, stream) DO NOTHING RETURNING event_id"
            if "notify" in more:
                told = f"(SELECT pg_notify('{CHANNEL}', $1::text)) AS told"
                sql = f"WITH inserted AS ({sql}) SELECT inserted.event_id FROM inserted CROSS JOIN {told}"  # noqa: S608
            self._sql[name] = sql
        return sql

    async def _fetch(self, name: str, *arguments: Any) -> list[Any]:
        sql = self._text(name)
        rows: list[Any] = await self._connections.run(lambda connection: connection.fetch(sql, *arguments))
        return rows

    async def _execute(self, name: str, *arguments: Any) -> int:
        sql = self._text(name)
        status: str = await self._connections.run(lambda connection: connection.execute(sql, *arguments))
        return int(status.rpartition(" ")[2])

    async def _check_outcomes(self, done: Sequence[DoneVerdict]) -> None:
        for stream, outcome in {(verdict.delivery.stream, verdict.outcome) for verdict in done}:
            options = (await self._options(fresh=False)).get(stream, StreamOptions())
            if options.document is None or outcome not in options.document.outcomes:  # perhaps declared since
                options = (await self._options(fresh=True)).get(stream, StreamOptions())
            options.check_outcome(stream, outcome)

    async def _options(self, *, fresh: bool) -> dict[str, StreamOptions]:
        if fresh or time.monotonic() >= self._streams_until:
            rows = await self._fetch("stream_options")
            self._streams = {
                row["stream"]: StreamOptions(
                    ordered=row["ordered"], dead_head=row["dead_head"], document=form_from_json(row["document"])
                )
                for row in rows
            }
            self._streams_until = time.monotonic() + _OPTIONS_FRESH
            await self._put_in_place([(row["stream"], row["ordered"]) for row in rows if row["settling"]])
        return self._streams

    async def _put_in_place(self, settling: list[tuple[str, bool]]) -> None:
        """Do now and then what :meth:`declare` did, for transactions that were open by then: they did not see it."""
        if settling and time.monotonic() >= self._place_again_at:
            self._place_again_at = time.monotonic() + _OPTIONS_FRESH
            sql = self._text("declare_rows")
            await self._connections.run(lambda connection: connection.executemany(sql, settling))

    def _wake(self, stream: str) -> None:
        """Wake this process at once and the others by notification."""
        self._listener.wake(stream)
        self._notifier.tell(stream)


def _new_token(worker: str) -> str:
    """A token that no other claim has, and that says whose it is."""
    return f"{worker}/{secrets.token_hex(8)}"
