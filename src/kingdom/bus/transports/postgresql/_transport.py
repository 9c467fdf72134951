"""The PostgreSQL transport: every operation is one statement, in batches."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import replace
from typing import Any, Final

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
from kingdom.bus.errors import NotPermitted
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
from kingdom.bus.relay_port import Outbox
from kingdom.bus.transport import TransportOptions
from kingdom.bus.transports.postgresql import _claims
from kingdom.bus.transports.postgresql._claims import ClaimStatements, PostgresClaim
from kingdom.bus.transports.postgresql._connections import Connection, ConnectionPool, check_version, migrate
from kingdom.bus.transports.postgresql._publisher import CHANNEL, Listener, Notifier, PostgresPublisher

_OPTIONS_CACHE_SECONDS: Final = 5.0  # before the options of streams are read again
_IN_FLIGHT_SECONDS: Final = 0.1  # statements that did not see a new declaration have ended by then
_PEEK_PAGE: Final = 1000  # positions that one peek statement reads


class PostgresTransport:
    """Events in the table ``outbox_event``. The row is the truth, whichever program changes it."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._connections = ConnectionPool(url, options.connect_timeout)
        self._max_bytes = options.max_bytes
        self._listener = Listener(self._connections)
        self._notifier = Notifier(self._connections)
        self._streams: dict[str, StreamOptions] = {}
        self._streams_until = 0.0
        self._place_again_at = 0.0
        self._sql: dict[str, str] = {}
        self._claims = ClaimStatements(self._fetch, self._options)
        self._publisher = PostgresPublisher(
            self._connections, self._listener, self._notifier, self._text, options.max_bytes
        )

    # ── life cycle ────────────────────────────────────────────────────────────────────────────────────────────

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
        connections = self._connections
        return await connections.run(lambda c: migrate(c, connections.schema, connections.shown))

    async def declare(self, stream: str, options: StreamOptions) -> None:
        """Store a stream's options, and set the ordering keys of events that were published before."""

        async def work(connection: Connection) -> Any:
            async with connection.transaction():
                given = stream, options.ordered, options.dead_head, form_to_json(options.document)
                order = await connection.fetchrow(self._text("declare"), *given)
                await connection.execute(self._text("declare_rows"), stream, options.ordered)
                if order["changed"]:
                    await connection.execute(self._text("declare_changed"), stream)
            return order["fresh"]

        try:
            fresh = await self._connections.run(work)
        except NotPermitted:
            # A role that may only publish and consume declares in vain, unless another has declared the same.
            if (await self._options(fresh=True)).get(stream) == replace(options, states={}):
                return
            raise
        self._streams_until = 0.0
        if fresh and options.ordered:
            # A publish that was running when this committed did not see it, and its events have no ordering key yet.
            # Order holds for every publish that begins after this has returned.
            await asyncio.sleep(_IN_FLIGHT_SECONDS)
            await self._execute("declare_rows", stream, options.ordered)

    # ── publish ───────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(self, stream: str, envelopes: Sequence[Envelope], tx: Any | None) -> list[str]:
        """Insert, in the caller's transaction or in one of our own."""
        if tx is None:
            return await self._publisher.publish(stream, envelopes)
        transaction = self._join(tx)
        sql, params = insert_statement("postgresql", stream, envelopes, self._max_bytes, self._connections.schema)
        return [row[0] for row in await transaction.run(sql, params)]

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
        token = _new_token(worker)
        claim = PostgresClaim(stream, limit, lease, token, None if types is None else list(types), max_attempts)
        if ids is None:
            rows = await self._claims.claim(claim)
        else:
            rows = await self._claims.claim_named(claim, list(ids))
        return await self._deliver(stream, worker, token, rows)

    async def recall(self, stream: str, *, worker: str, lease: float) -> list[Delivery]:
        token = _new_token(worker)
        return await self._deliver(stream, worker, token, await self._fetch("recall", stream, lease, token, worker))

    async def _deliver(self, stream: str, worker: str, token: str, rows: list[Any]) -> list[Delivery]:
        deliveries, unreadable = _claims.deliveries_of(stream, worker, token, rows)
        for parameters in unreadable:  # edited by hand, or inserted by another program: it must not block the rest
            await self._fetch("settle_failed", *parameters)
        return deliveries

    async def peek(self, stream: str, limit: int, types: Sequence[str] | None, skip: Container[str]) -> list[Record]:
        """Read claim positions page by page, then the rows that are not skipped."""
        wanted = None if types is None else list(types)
        chosen: list[int] = []
        size, place = min(limit, _PEEK_PAGE), (0, _claims.EPOCH, 0)
        while len(chosen) < limit:
            page = await self._fetch("peek", stream, wanted, size, *place)
            chosen += [row["id"] for row in page if row["event_id"] not in skip]
            if len(page) < size:
                break
            size, place = _PEEK_PAGE, page[-1][:3]
        return [_claims.record_from_row(row) for row in await self._fetch("records", chosen[:limit])] if chosen else []

    async def settle(
        self, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]
    ) -> list[Delivery]:
        """Write verdicts; several kinds in one call share a transaction."""
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
                self._wake(stream)  # the event, or its follower, may be claimable now
        return _claims.lost_deliveries(held, settled)

    async def consume(self, stream: str, event_id: str, tx: Any) -> bool:
        """Claim and settle in the caller's transaction."""
        return bool(await self._join(tx).run(self._text("consume_tx"), {"stream": stream, "event_id": event_id}))

    def _join(self, tx: Any) -> CallerTransaction:
        transaction = as_transaction(tx)
        require_dialect(transaction, "postgresql", self._connections.shown)
        return transaction

    async def extend(self, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
        """Renew leases, one statement per claim, all in one round trip."""
        return await self._lost(deliveries, "extend", [(*held, lease) for held in _claims.rows_by_token(deliveries)])

    async def release(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        lost = await self._lost(deliveries, "release", _claims.rows_by_token(deliveries))
        types: dict[str, set[str]] = {}
        for delivery in deliveries:
            types.setdefault(delivery.stream, set()).add(delivery.envelope.type)
        for stream, released in types.items():
            self._wake(stream, frozenset(released))
        return lost

    async def _lost(self, deliveries: Sequence[Delivery], name: str, leases: list[Any]) -> list[Delivery]:
        sql = self._text(name)
        return _claims.lost_deliveries(
            deliveries, await self._connections.run(lambda connection: connection.fetchmany(sql, leases))
        )

    def subscribe(
        self, stream: str, wake: Callable[[], None], types: Collection[str] | None = None
    ) -> Callable[[], None]:
        return self._listener.subscribe(stream, wake, types)

    # ── operate ───────────────────────────────────────────────────────────────────────────────────────────────

    async def depth(self) -> dict[str, Depth]:
        return {
            row["stream"]: Depth(row["pending"], row["processing"], row["dead"], max(0.0, row["oldest"]))
            for row in await self._fetch("depth")
        }

    async def pending_types(self, stream: str) -> dict[str, int]:
        return {row["event_type"]: row["waiting"] for row in await self._fetch("pending_types", stream)}

    async def dead(self, stream: str, limit: int) -> list[DeadLetter]:
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
        return (await self.find_many([event_id])).get(event_id)

    async def find_many(self, event_ids: Sequence[str]) -> dict[str, Record]:
        rows = await self._fetch("find", list(event_ids))
        return {row["event_id"]: _claims.record_from_row(row) for row in rows}

    async def records(
        self, stream: str, *, ids: str, within: float | None, after: Any, limit: int
    ) -> tuple[list[Record], Any]:
        """Return one page of rows in publish order."""
        like = ids.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")
        rows = await self._fetch("listing", stream, after or 0, within, like, limit)
        return [_claims.record_from_row(row) for row in rows], rows[-1]["id"] if len(rows) == limit else None

    async def requeue(
        self, stream: str, ids: Sequence[str] | None, *, event_type: str | None, error_code: str | None
    ) -> int:
        wanted = None if ids is None else list(ids)
        moved = await self._execute("requeue", stream, wanted, event_type, error_code)
        if moved:
            self._wake(stream)
        return moved

    async def purge(
        self, older_than: float, *, stream: str | None, dead: bool, keep: Collection[str], only: Collection[str] | None
    ) -> int:
        """Delete finished events in batches."""
        removed, reached = 0, 0
        wanted = None if only is None else list(only)
        while reached is not None:
            row = (await self._fetch("purge", older_than, stream, dead, reached, list(keep), wanted))[0]
            removed += row["removed"]
            reached = row["reached"]
        if only is None:
            await self._execute("purge_inbox", older_than)
        return removed

    def outbox(self) -> Outbox:
        """Return what a relay needs (:mod:`kingdom.bus.relay`)."""
        from kingdom.bus.transports.postgresql._relay import PostgresOutbox

        return PostgresOutbox(self._connections, self._listener, self._text)

    async def doctor(self) -> list[Check]:
        from kingdom.bus.transports.postgresql._doctor import examine

        return await examine(self._connections)

    # ── helpers ───────────────────────────────────────────────────────────────────────────────────────────────

    def _text(self, name: str) -> str:
        sql = self._sql.get(name)
        if sql is None:
            base, *more = name.split("+")
            sql = with_schema(statement("postgresql", base), self._connections.schema)
            if "notify" in more:
                notified = f"(SELECT pg_notify('{CHANNEL}', $9::text)) AS notified"
                sql = f"WITH inserted AS ({sql}) SELECT inserted.event_id FROM inserted CROSS JOIN {notified}"  # noqa: S608
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
            if options.document is None or outcome not in options.document.outcomes:  # the cache may be stale
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
            self._streams_until = time.monotonic() + _OPTIONS_CACHE_SECONDS
            await self._put_in_place([(row["stream"], row["ordered"]) for row in rows if row["settling"]])
        return self._streams

    async def _put_in_place(self, settling: list[tuple[str, bool]]) -> None:
        """Repeat :meth:`declare` now and then, for transactions that were open at the time and did not see it."""
        if settling and time.monotonic() >= self._place_again_at:
            self._place_again_at = time.monotonic() + _OPTIONS_CACHE_SECONDS
            sql = self._text("declare_rows")
            await self._connections.run(lambda connection: connection.executemany(sql, settling))

    def _wake(self, stream: str, types: frozenset[str] | None = None) -> None:
        """Wake subscribers here at once, and other processes by notification."""
        self._listener.wake(stream, types)
        self._notifier.tell(stream, types)


def _new_token(worker: str) -> str:
    """Return a token that no other claim has, and that names the worker."""
    return f"{worker}/{secrets.token_hex(8)}"
