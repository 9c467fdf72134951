"""Claim events: which statement to run, and how rows become deliveries and records."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from kingdom.bus.delivery import Delivery, DoneVerdict, Record, StreamOptions
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.outbox import PRIORITY

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SLOW_SECONDS: Final = 0.05  # three full claims in a row this slow: they walk over dead index entries
_SUSTAINED_CLAIMS: Final = 2  # filled claims in a row, of at least _LARGE_CLAIM events each
_LARGE_CLAIM: Final = 20
_PRIORITIES: Final = 3
_AGGREGATES: Final = 1000  # looked at per claim of an ordered stream


class _Fetch(Protocol):
    def __call__(self, name: str, *arguments: Any) -> Awaitable[list[Any]]: ...


@dataclass(frozen=True, slots=True)
class PostgresClaim:
    """What one claim asks for; ``token`` is shared by no other claim."""

    stream: str
    limit: int
    lease: float
    token: str
    types: list[str] | None
    max_attempts: int


class ClaimWatermark:
    """How far one process has claimed one stream, for each priority: a hint that keeps claims fast.

    A claim behind the watermark stays fast whatever dead entries the index holds. Events before it (retries, expired
    leases, transactions that committed late) are found by a full claim, which runs

    * whenever there is no sustained backlog (a full claim then costs nothing extra),
    * after a claim behind the watermark that came back short, and
    * under load at least every half second, unless full claims have become so slow that this would take more than a
      twentieth of the time.
    """

    def __init__(self) -> None:
        self._marks = [(EPOCH, 0)] * _PRIORITIES
        self._filled = 0  # large claims in a row that were filled to their limit
        self._costs = deque([0.0] * 3, maxlen=3)  # seconds that the last full claims took
        self._next_full = 0.0

    def usable(self) -> bool:
        """Return whether to try a claim behind the watermark first."""
        return (self._filled >= _SUSTAINED_CLAIMS or min(self._costs) > _SLOW_SECONDS) and (
            time.monotonic() < self._next_full
        )

    def must_look_before(self, found: int, limit: int) -> bool:
        """Return whether a claim behind the watermark that found this much must be followed by a full one."""
        return found == 0 or (found < limit and min(self._costs) <= _SLOW_SECONDS)

    def arrays(self) -> tuple[list[datetime], list[int]]:
        """Return the watermark as the parameters of claim_fast.sql."""
        return [mark[0] for mark in self._marks], [mark[1] for mark in self._marks]

    def claimed(self, rows: list[Any], limit: int) -> None:
        """Record what a claim returned."""
        self._filled = self._filled + 1 if limit >= _LARGE_CLAIM and len(rows) >= limit else 0
        for row in rows:
            position = (row["next_retry_at"], row["id"])
            if position > self._marks[row["priority"]]:
                self._marks[row["priority"]] = position

    def full_claim_took(self, seconds: float) -> None:
        """Record the cost of a full claim, and when the next one is due at the latest."""
        self._costs.append(seconds)
        self._next_full = time.monotonic() + max(0.5, 20 * seconds)


class ClaimStatements:
    """Runs the claim statement that suits the stream. ``fetch`` runs a statement by its name."""

    def __init__(self, fetch: _Fetch, options: Callable[..., Awaitable[dict[str, StreamOptions]]]) -> None:
        self._fetch = fetch
        self._options = options
        self._marks: dict[tuple[str, tuple[str, ...] | None], ClaimWatermark] = {}
        self._cursors: dict[str, str] = {}

    async def claim(self, claim: PostgresClaim) -> list[Any]:
        """Claim the first events of a stream."""
        rows: list[Any] = []
        options = None
        for fresh in (False, True):  # nothing claimed: cached options may be stale; refresh and retry once
            known, options = options, (await self._options(fresh=fresh)).get(claim.stream, StreamOptions())
            if fresh and known == options:
                break
            rows = await (self._claim_ordered(claim, options) if options.ordered else self._claim_plain(claim))
            if rows:
                break
        return rows

    async def claim_named(self, claim: PostgresClaim, ids: list[str]) -> list[Any]:
        """Claim events by their ids."""
        rows: list[Any] = []
        buried = True
        while buried and len(rows) < claim.limit:  # an event went DEAD: its follower may be claimable now
            found = await self._fetch(
                "claim_named", claim.stream, claim.limit - len(rows), claim.lease, claim.token, ids, claim.types,
                claim.max_attempts,
            )  # fmt: skip
            buried = bool(found) and found[-1]["buried"] is not None
            rows += found[:-1] if buried else found
        return rows

    async def _claim_plain(self, claim: PostgresClaim) -> list[Any]:
        key = (claim.stream, None if claim.types is None else tuple(claim.types))
        mark = self._marks.get(key) or self._marks.setdefault(key, ClaimWatermark())
        given = claim.lease, claim.token, claim.types
        rows: list[Any] = []
        if mark.usable():
            rows = await self._fetch("claim_fast", claim.stream, claim.limit, *given, *mark.arrays())
            mark.claimed(rows, claim.limit)
            if not mark.must_look_before(len(rows), claim.limit):
                return rows
        buried = True
        while buried and len(rows) < claim.limit:  # an event that went DEAD took a place: claim again
            started, left = time.perf_counter(), claim.limit - len(rows)
            found = await self._fetch("claim_full", claim.stream, left, *given, claim.max_attempts)
            mark.full_claim_took(time.perf_counter() - started)
            buried = bool(found) and found[-1]["buried"] is not None
            rows += found[:-1] if buried else found
        mark.claimed(rows, claim.limit)
        return rows

    async def _claim_ordered(self, claim: PostgresClaim, options: StreamOptions) -> list[Any]:
        rows: list[Any] = []
        start = self._cursors.get(claim.stream, "")
        wrapped = start == ""
        while True:
            found = await self._fetch(
                "claim_ordered", claim.stream, claim.limit - len(rows), claim.lease, claim.token, claim.types,
                claim.max_attempts, start, options.dead_head == "park", _AGGREGATES,
            )  # fmt: skip
            rows += [row for row in found if row["id"] is not None]
            looked_at, reached, buried = found[0]["looked_at"], found[0]["reached"], found[0]["buried"]
            # One statement looks at a limited number of aggregates. The next one continues after them, so that no
            # aggregate starves.
            start = reached if looked_at == _AGGREGATES else ""
            self._cursors[claim.stream] = start
            if len(rows) >= claim.limit:
                return rows
            if buried:  # its follower may be claimable now
                continue
            if start == "" and wrapped:
                return rows
            wrapped = wrapped or start == ""


def deliveries_of(
    stream: str, worker: str, token: str, rows: list[Any]
) -> tuple[list[Delivery], list[tuple[Any, ...]]]:
    """Turn claimed rows into deliveries in claim order; also return settle_failed parameters of unreadable rows."""
    rows.sort(key=lambda row: (row["priority"], row["next_retry_at"], row["id"]))
    deliveries: list[Delivery] = []
    unreadable: list[tuple[Any, ...]] = []
    for row in rows:
        try:
            envelope = row_envelope(row)
        except InvalidEnvelope as error:
            unreadable.append((row["id"], token, "DEAD", 0.0, "INVALID_ENVELOPE", str(error)))
        else:
            deliveries.append(Delivery(stream, envelope, row["attempt_count"], token, worker, row["id"]))
    return deliveries, unreadable


def row_envelope(row: Any) -> Envelope:
    """Return the envelope of a row, or raise :class:`InvalidEnvelope`."""
    priority = PRIORITY[row["priority"]]
    return Envelope.from_store(row["payload_json"], row["aggregate_type"], row["aggregate_id"], priority)


def readable_envelope(row: Any) -> Envelope:
    """Return the envelope of a row, or a placeholder that shows the stored text."""
    try:
        return row_envelope(row)
    except InvalidEnvelope:
        return Envelope.unreadable(row["event_id"], row["event_type"], row["payload_json"])


def record_from_row(row: Any) -> Record:
    """Return what ``bus.find`` shows of a row."""
    return Record(
        stream=row["stream"],
        envelope=readable_envelope(row),
        status=row["status"],
        attempts=row["attempt_count"],
        created_at=row["created_at"],
        next_retry_at=row["next_retry_at"],
        locked_by=row["locked_by"],
        locked_until=row["locked_until"],
        error_code=row["last_error_code"],
        error_message=row["last_error_message"],
        finished_at=row["processed_at"],
        outcome=row["outcome"],
    )


def lost_deliveries(deliveries: Iterable[Delivery], rows: Iterable[Any]) -> list[Delivery]:
    """Return the deliveries for which nothing was written; two of one event differ by their token."""
    written = {(row[0], row[1]) for row in rows}
    return [delivery for delivery in deliveries if (delivery.handle, delivery.token) not in written]


def rows_by_token(deliveries: Iterable[Delivery]) -> list[tuple[list[int], str]]:
    """Group row ids by claim, sorted: two statements on the same rows then cannot deadlock."""
    claims: dict[str, list[int]] = {}
    for delivery in deliveries:
        claims.setdefault(delivery.token, []).append(delivery.handle)
    return sorted((sorted(ids), token) for token, ids in claims.items())


def rows_by_outcome(done: Iterable[DoneVerdict]) -> list[tuple[list[int], str, str]]:
    """Group row ids by claim and outcome, sorted, of the verdicts that have an outcome."""
    claims: dict[tuple[str, str], list[int]] = {}
    for delivery, outcome in done:
        if outcome is not None:
            claims.setdefault((delivery.token, outcome), []).append(delivery.handle)
    return sorted((sorted(ids), token, outcome) for (token, outcome), ids in claims.items())
