"""Publishing by itself, without a caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus.outbox import RANK, statement

if TYPE_CHECKING:
    import sqlite3

    from kingdom.bus.envelope import Envelope

_ROW: Final = "(?, ?, ?, ?, ?, ?, ?)"
_MOST_ROWS: Final = 64  # in one statement
Row = tuple[Any, ...]


def rows_of(envelopes: Sequence[Envelope], max_bytes: int) -> list[Row]:
    """What is stored of each envelope, in the order of the statement's placeholders."""
    return [
        (
            envelope.event_id,
            envelope.type,
            envelope.aggregate_type,
            envelope.aggregate_id,
            envelope.to_json(max_bytes),
            RANK[envelope.priority],
            None if envelope.not_before is None else envelope.not_before.timestamp(),
        )
        for envelope in envelopes
    ]


def insert(connection: sqlite3.Connection, stream: str, rows: list[Row], now: float) -> list[str]:
    """Insert what is not there yet; return the ids inserted."""
    inserted, last, start = 0, 0, 0
    while start < len(rows):
        # Powers of two: a handful of statements, which stay prepared, serve every number of rows.
        size = min(_MOST_ROWS, 1 << (len(rows) - start).bit_length() - 1)
        values = [value for row in rows[start : start + size] for value in row]
        cursor = connection.execute(_statement(size), (stream, now, *values))
        inserted += cursor.rowcount
        last = cursor.lastrowid or last
        start += size
    if inserted == len(rows):
        return [row[0] for row in rows]
    if not inserted:
        return []
    # New rows are numbered one after another, so the last ones are ours.
    found = connection.execute(statement("sqlite", "published_since"), {"id": last - inserted})
    accepted = {row[0] for row in found}
    return [row[0] for row in rows if row[0] in accepted]


@cache
def _statement(rows: int) -> str:
    return statement("sqlite", "publish").replace(_ROW, ", ".join([_ROW] * rows))
