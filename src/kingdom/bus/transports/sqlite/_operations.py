"""Settle, extend and release deliveries; the operations of operators."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.bus.delivery import DeadLetter, Depth, Record, StreamOptions
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.outbox import PRIORITY, form_from_json, form_to_json, statement
from kingdom.bus.transports.sqlite._writer import RunAgain

if TYPE_CHECKING:
    import sqlite3

    from kingdom.bus.delivery import DeadVerdict, Delivery, DoneVerdict, RetryVerdict


BATCH: Final = 1000  # rows moved or removed in one transaction, so that others need not wait long for the write lock


def declare(connection: sqlite3.Connection, stream: str, options: StreamOptions, now: float) -> None:
    """Store a stream's options and set the order of its events. Writes nothing if nothing changes."""
    before = connection.execute(statement("sqlite", "declared"), {"stream": stream}).fetchone()
    ordered, dead_head, _ = before or (0, "go-on", None)
    document = form_to_json(options.document)
    given = {
        "stream": stream,
        "ordered": options.ordered,
        "dead_head": options.dead_head,
        "document": document,
        "park": options.dead_head == "park",
        "now": now,
    }
    if before != (int(options.ordered), options.dead_head, document):
        connection.execute(statement("sqlite", "declare"), given)
    if bool(ordered) != options.ordered:
        connection.execute(statement("sqlite", "declare_rows"), given)
    if options.ordered and (bool(ordered), dead_head) != (options.ordered, options.dead_head):
        connection.execute(statement("sqlite", "declare_order"), given)


def read_options(connection: sqlite3.Connection, stream: str) -> StreamOptions:
    """Return the options of a stream."""
    row = connection.execute(statement("sqlite", "declared"), {"stream": stream}).fetchone()
    if row is None:
        return StreamOptions()
    return StreamOptions(ordered=bool(row[0]), dead_head=row[1], document=form_from_json(row[2]))


def streams(connection: sqlite3.Connection) -> list[str]:
    """Return every stream that is declared or has events."""
    return [row[0] for row in connection.execute(statement("sqlite", "streams"))]


def depth(connection: sqlite3.Connection, now: float) -> dict[str, Depth]:
    """Count the events of each stream, from partial indexes only."""
    found = {}
    for stream in streams(connection):
        row = connection.execute(statement("sqlite", "depth"), {"stream": stream, "now": now}).fetchone()
        pending, processing, dead, ready_at = row
        found[stream] = Depth(pending, processing, dead, 0.0 if ready_at is None else max(0.0, now - ready_at))
    return found


def pending_types(connection: sqlite3.Connection, stream: str, now: float) -> dict[str, int]:
    return dict(connection.execute(statement("sqlite", "pending_types"), {"stream": stream, "now": now}).fetchall())


def dead(connection: sqlite3.Connection, stream: str, limit: int) -> list[DeadLetter]:
    rows = connection.execute(statement("sqlite", "dead"), {"stream": stream, "limit": limit}).fetchall()
    return [DeadLetter(row[0], _envelope(row), row[6], row[7], row[8], _moment(row[9])) for row in rows]


def find(connection: sqlite3.Connection, event_id: str) -> Record | None:
    row = connection.execute(statement("sqlite", "find"), {"event_id": event_id}).fetchone()
    return None if row is None else record_from_row(row)


def list_records(
    connection: sqlite3.Connection, stream: str, ids: str, since: float | None, after: int, limit: int
) -> tuple[list[Record], int | None]:
    """Return a page of rows in publish order, and the id to continue after if there may be more."""
    literal = re.sub(r"[][?]", r"[\g<0>]", ids)  # GLOB: everything but the star is literal
    given = {"stream": stream, "ids": literal, "since": since, "after": after, "limit": limit}
    rows = connection.execute(statement("sqlite", "listing"), given).fetchall()
    return [record_from_row(row[:-1]) for row in rows], rows[-1][-1] if len(rows) == limit else None


def record_from_row(row: Sequence[Any]) -> Record:
    """Build a record from a row of find.sql or records.sql, or of listing.sql without its last column."""
    attempts, code, message, finished, stream, status, created, retry, locked_by, locked_until, outcome = row[6:]
    return Record(
        stream=stream,
        envelope=_envelope(row),
        status=status,
        attempts=attempts,
        created_at=_moment(created),
        next_retry_at=_moment(retry),
        locked_by=locked_by,
        locked_until=None if locked_until is None else _moment(locked_until),
        error_code=code,
        error_message=message,
        finished_at=None if finished is None else _moment(finished),
        outcome=outcome,
    )


def to_requeue(
    connection: sqlite3.Connection,
    stream: str,
    ids: Sequence[str] | None,
    event_type: str | None,
    error_code: str | None,
) -> list[int]:
    """Return the ids of the rows to requeue."""
    given: dict[str, Any] = {"stream": stream, "event_type": event_type, "error_code": error_code}
    name = "requeue_dead"
    if ids is not None:
        name, given["event_ids"] = "requeue_named", json.dumps(list(ids))
    rows: list[int] = json.loads(connection.execute(statement("sqlite", name), given).fetchone()[0])
    return rows


def requeue(connection: sqlite3.Connection, rows: list[int], now: float) -> int:
    """Move finished events back to PENDING; events that are not finished stay unchanged."""
    return connection.execute(statement("sqlite", "requeue"), {"ids": json.dumps(rows), "now": now}).rowcount


def purge(
    connection: sqlite3.Connection,
    kind: str,
    stream: str | None,
    before: float,
    keep: str = "[]",
    only: str | None = None,
) -> int:
    """Remove up to ``BATCH`` rows of a kind (done, dead, inbox) that ended at ``before`` or earlier.

    ``keep``: a JSON array of the ids that stay; ``only``: of the only ids that go.
    """
    given = {"stream": stream, "before": before, "limit": BATCH, "keep": keep, "only": only}
    return connection.execute(statement("sqlite", f"purge_{kind}"), given).rowcount


def _envelope(row: Sequence[Any]) -> Envelope:
    event_id, event_type, aggregate_type, aggregate_id, rank, text = row[:6]
    try:
        return Envelope.from_store(text, aggregate_type, aggregate_id, PRIORITY[rank])
    except InvalidEnvelope:
        return Envelope.unreadable(event_id, event_type, text)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


# ── verdicts, renewals, releases: only for deliveries whose token still holds the event ─────────────────────────


class ChangeResult(NamedTuple):
    """The deliveries that were refused, and the streams in which events may have become claimable."""

    lost: list[Delivery]
    wake: set[str]


class _HeldRows:
    """The rows that are still held, of those asked for."""

    def __init__(self, found: list[tuple[str, str, int]]) -> None:
        self._rows: dict[str, set[int]] = {token: set(json.loads(rows)) for token, rows, _ in found}
        self.ordered = {token for token, _, ordered in found if ordered}  # the claims on an ordered stream

    def lacks(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return the deliveries that are not held; if the counts agree, without checking each."""
        held = sum(map(len, self._rows.values()))
        return [] if held == len(deliveries) else [item for item in deliveries if item not in self]

    def __contains__(self, delivery: Delivery) -> bool:
        return delivery.handle in self._rows.get(delivery.token, ())


class SettleOperation:
    """Writes verdicts."""

    def __init__(self, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]) -> None:
        self._done = done
        self._retry = retry
        self._dead = dead
        self._simple = not retry and not dead and all(verdict.outcome is None for verdict in done)

    def __call__(self, connection: sqlite3.Connection, now: float) -> ChangeResult:
        """Write the verdicts. If all are DONE, assume that all are held: that saves one statement of two."""
        if self._simple:
            self._simple = False  # the second call, after RunAgain, checks each
            return _all_done(connection, now, [verdict.delivery for verdict in self._done])
        return _settle(connection, now, self._done, self._retry, self._dead)


def _all_done(connection: sqlite3.Connection, now: float, deliveries: list[Delivery]) -> ChangeResult:
    """Settle deliveries as DONE if all are still held; otherwise raise :class:`RunAgain`."""
    before = connection.total_changes
    ended = _end(connection, now, deliveries)
    if ended != len(deliveries):
        raise RunAgain(f"{len(deliveries) - ended} deliveries are not held any more, or there twice")
    # In an ordered stream a trigger makes the next event of the aggregate claimable, which is one more change.
    freed = connection.total_changes - before > ended
    return ChangeResult([], {delivery.stream for delivery in deliveries} if freed else set())


def _settle(
    connection: sqlite3.Connection,
    now: float,
    done: Sequence[DoneVerdict],
    retry: Sequence[RetryVerdict],
    dead: Sequence[DeadVerdict],
) -> ChangeResult:
    """Write verdicts of any kind. The first of several verdicts on one delivery counts."""
    deliveries = [verdict.delivery for verdicts in (done, retry, dead) for verdict in verdicts]
    for stream, outcome in {(v.delivery.stream, v.outcome) for v in done if v.outcome is not None}:
        read_options(connection, stream).check_outcome(stream, outcome)
    held = _held(connection, deliveries)
    lost = held.lacks(deliveries)
    if done:
        _end(connection, now, [v.delivery for v in done if v.outcome is None and v.delivery in held])
        named = [(v.delivery.handle, v.outcome) for v in done if v.outcome is not None and v.delivery in held]
        _update(connection, "settle_outcome", now, verdicts=named)
    if retry:
        again = [(v.delivery.handle, v.after, _clean(v.code), _clean(v.message)) for v in retry if v.delivery in held]
        _update(connection, "settle_retry", now, verdicts=again)
    if dead:
        ended = [(v.delivery.handle, _clean(v.code), _clean(v.message)) for v in dead if v.delivery in held]
        _update(connection, "settle_dead", now, verdicts=ended)
    wake = {verdict.delivery.stream for verdict in retry if verdict.after <= 0}
    # In an ordered stream the next event of the aggregate becomes claimable.
    if held.ordered:
        wake.update(delivery.stream for delivery in deliveries if delivery.token in held.ordered)
    return ChangeResult(lost, wake)


def _end(connection: sqlite3.Connection, now: float, deliveries: Iterable[Delivery]) -> int:
    """Settle as DONE those that are held; return how many."""
    ended = 0
    for token, rows in _by_token(deliveries).items():
        given = {"now": now, "token": token, "ids": json.dumps(rows)}
        ended += connection.execute(statement("sqlite", "settle_done"), given).rowcount
    return ended


def extend(connection: sqlite3.Connection, now: float, deliveries: Sequence[Delivery], lease: float) -> ChangeResult:
    """Set the leases to end ``lease`` seconds from now."""
    held = _held(connection, deliveries)
    _update(connection, "extend", now, ids=[item.handle for item in deliveries if item in held], lease=lease)
    return ChangeResult(held.lacks(deliveries), set())


def release(connection: sqlite3.Connection, now: float, deliveries: Sequence[Delivery]) -> ChangeResult:
    """Return events to PENDING as if they had not been claimed."""
    held = _held(connection, deliveries)
    given_back = [delivery for delivery in deliveries if delivery in held]
    _update(connection, "release", now, ids=[delivery.handle for delivery in given_back])
    return ChangeResult(held.lacks(deliveries), {item.stream for item in given_back})


def _held(connection: sqlite3.Connection, deliveries: Iterable[Delivery]) -> _HeldRows:
    claims = json.dumps(_by_token(deliveries))
    return _HeldRows(connection.execute(statement("sqlite", "held"), {"claims": claims}).fetchall())


def _by_token(deliveries: Iterable[Delivery]) -> dict[str, list[int]]:
    """Group the rows of deliveries by claim."""
    claims: dict[str, list[int]] = {}
    for delivery in deliveries:
        claims.setdefault(delivery.token, []).append(delivery.handle)
    return claims


def _update(connection: sqlite3.Connection, name: str, now: float, **given: Any) -> None:
    """Run a statement unless its list of rows is empty; lists are passed as JSON."""
    packed = {key: json.dumps(value) if isinstance(value, list) else value for key, value in given.items()}
    if "[]" not in packed.values():
        connection.execute(statement("sqlite", name), {"now": now, **packed})


def _clean(text: str | None) -> str | None:
    """Make text storable: error messages may contain NUL or lone surrogates."""
    return None if text is None else text.replace("\0", "").encode("utf-8", "replace").decode()
