"""What operators ask and do."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus.delivery import DeadLetter, Depth, Record, StreamOptions
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.outbox import PRIORITY, form_from_json, form_to_json, statement

if TYPE_CHECKING:
    import sqlite3

BATCH: Final = 1000  # rows moved or removed in one transaction: nobody waits long for the write lock


def declare(connection: sqlite3.Connection, stream: str, options: StreamOptions, now: float) -> None:
    """Store a stream's options and give the events it has their place. Writes nothing when nothing changes."""
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


def options(connection: sqlite3.Connection, stream: str) -> StreamOptions:
    """How a stream behaves."""
    row = connection.execute(statement("sqlite", "declared"), {"stream": stream}).fetchone()
    if row is None:
        return StreamOptions()
    return StreamOptions(ordered=bool(row[0]), dead_head=row[1], document=form_from_json(row[2]))


def streams(connection: sqlite3.Connection) -> list[str]:
    """Every stream that is declared or has events."""
    return [row[0] for row in connection.execute(statement("sqlite", "streams"))]


def depth(connection: sqlite3.Connection, now: float) -> dict[str, Depth]:
    """How full each stream is, from partial indexes only."""
    found = {}
    for stream in streams(connection):
        row = connection.execute(statement("sqlite", "depth"), {"stream": stream, "now": now}).fetchone()
        pending, processing, dead, ready_at = row
        found[stream] = Depth(pending, processing, dead, 0.0 if ready_at is None else max(0.0, now - ready_at))
    return found


def pending_types(connection: sqlite3.Connection, stream: str, now: float) -> dict[str, int]:
    """How many events of each type wait."""
    return dict(connection.execute(statement("sqlite", "pending_types"), {"stream": stream, "now": now}).fetchall())


def dead(connection: sqlite3.Connection, stream: str, limit: int) -> list[DeadLetter]:
    """The latest dead letters."""
    rows = connection.execute(statement("sqlite", "dead"), {"stream": stream, "limit": limit}).fetchall()
    return [DeadLetter(row[0], _envelope(row), row[6], row[7], row[8], _moment(row[9])) for row in rows]


def find(connection: sqlite3.Connection, event_id: str) -> Record | None:
    """One row, whole."""
    row = connection.execute(statement("sqlite", "find"), {"event_id": event_id}).fetchone()
    return None if row is None else record(row)


def listed(
    connection: sqlite3.Connection, stream: str, ids: str, since: float | None, after: int, limit: int
) -> tuple[list[Record], int | None]:
    """A page of rows in publish order, and the last of them if there may be more."""
    literal = re.sub(r"[][?]", r"[\g<0>]", ids)  # all but the star
    given = {"stream": stream, "ids": literal, "since": since, "after": after, "limit": limit}
    rows = connection.execute(statement("sqlite", "listing"), given).fetchall()
    return [record(row[:-1]) for row in rows], rows[-1][-1] if len(rows) == limit else None


def record(row: Sequence[Any]) -> Record:
    """What find.sql, records.sql or, but for its last column, listing.sql found."""
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
    """The rows a requeue means."""
    given: dict[str, Any] = {"stream": stream, "event_type": event_type, "error_code": error_code}
    name = "requeue_dead"
    if ids is not None:
        name, given["event_ids"] = "requeue_named", json.dumps(list(ids))
    rows: list[int] = json.loads(connection.execute(statement("sqlite", name), given).fetchone()[0])
    return rows


def requeue(connection: sqlite3.Connection, rows: list[int], now: float) -> int:
    """Start finished events over; those that are not finished (any more) stay as they are."""
    return connection.execute(statement("sqlite", "requeue"), {"ids": json.dumps(rows), "now": now}).rowcount


def purge(connection: sqlite3.Connection, kind: str, stream: str | None, before: float, keep: str = "[]") -> int:
    """Remove up to ``BATCH`` rows of a kind (done, dead, inbox) that ended at ``before`` or earlier.

    ``keep``: a JSON array of the ids that stay.
    """
    given = {"stream": stream, "before": before, "limit": BATCH, "keep": keep}
    return connection.execute(statement("sqlite", f"purge_{kind}"), given).rowcount


def _envelope(row: Sequence[Any]) -> Envelope:
    event_id, event_type, aggregate_type, aggregate_id, rank, text = row[:6]
    try:
        return Envelope.from_store(text, aggregate_type, aggregate_id, PRIORITY[rank])
    except InvalidEnvelope:
        return Envelope.unreadable(event_id, event_type, text)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
