"""Claim statements: which one to run, and how rows become deliveries and records."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from kingdom.bus.delivery import Delivery, DoneVerdict, Record
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.outbox import PRIORITY

# What rows mean, and which deliveries they answer.


def row_envelope(row: Any) -> Envelope:
    """The envelope of a row, or :class:`InvalidEnvelope`."""
    priority = PRIORITY[row["priority"]]
    return Envelope.from_store(row["payload_json"], row["aggregate_type"], row["aggregate_id"], priority)


def readable_envelope(row: Any) -> Envelope:
    """The envelope of a row, or one that shows what cannot be read."""
    try:
        return row_envelope(row)
    except InvalidEnvelope:
        return Envelope.unreadable(row["event_id"], row["event_type"], row["payload_json"])


def record_from_row(row: Any) -> Record:
    """One row, whole."""
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
    """The deliveries for which nothing was written; two of one event differ by their token."""
    written = {(row[0], row[1]) for row in rows}
    return [delivery for delivery in deliveries if (delivery.handle, delivery.token) not in written]


def rows_by_token(deliveries: Iterable[Delivery]) -> list[tuple[list[int], str]]:
    """Row ids by claim, in order: two statements on the same rows then never wait in a circle."""
    claims: dict[str, list[int]] = {}
    for delivery in deliveries:
        claims.setdefault(delivery.token, []).append(delivery.handle)
    return sorted((sorted(ids), token) for token, ids in claims.items())


def rows_by_outcome(done: Iterable[DoneVerdict]) -> list[tuple[list[int], str, str]]:
    """Row ids by claim and outcome, in order, of the verdicts that have one."""
    claims: dict[tuple[str, str], list[int]] = {}
    for delivery, outcome in done:
        if outcome is not None:
            claims.setdefault((delivery.token, outcome), []).append(delivery.handle)
    return sorted((sorted(ids), token, outcome) for (token, outcome), ids in claims.items())


# Which claim statement to run: behind the watermark, or the full one.
#
# The watermark is a hint kept per process and stream: how far this process has claimed, for each priority. Claims behind
# it stay fast whatever dead entries the index holds. What may lie before it (retries, expired leases, transactions that
# committed late) is found by a full claim, which runs
#
# * whenever there is no sustained backlog (a full claim then costs nothing extra),
# * after a claim behind the mark that came back short, and
# * from time to time under load: at least every half second, unless full claims have become so slow that this would
# take more than a twentieth of the time.


_START: Final = (datetime(1970, 1, 1, tzinfo=UTC), 0)
_SLOW: Final = 0.05  # seconds: full claims this slow, three in a row, walk over dead entries: they are run sparingly
_SUSTAINED: Final = 2  # filled claims in a row, of at least so many events each:
_LARGE: Final = 20
_PRIORITIES: Final = 3


class ClaimWatermark:
    """How far one process has claimed one stream."""

    def __init__(self) -> None:
        self._marks = [_START] * _PRIORITIES
        self._filled = 0  # large claims in a row that were filled to their limit
        self._costs = deque([0.0] * 3, maxlen=3)  # seconds the last full claims took
        self._next_full = 0.0

    def usable(self) -> bool:
        """Whether a claim behind the mark is worth trying first."""
        return (self._filled >= _SUSTAINED or min(self._costs) > _SLOW) and time.monotonic() < self._next_full

    def must_look_before(self, found: int, limit: int) -> bool:
        """Whether a claim behind the mark that found this much must be followed by a full one."""
        return found == 0 or (found < limit and min(self._costs) <= _SLOW)

    def arrays(self) -> tuple[list[datetime], list[int]]:
        """The mark as the parameters of claim_fast.sql."""
        return [mark[0] for mark in self._marks], [mark[1] for mark in self._marks]

    def claimed(self, rows: list[Any], limit: int) -> None:
        """Note what a claim returned."""
        self._filled = self._filled + 1 if limit >= _LARGE and len(rows) >= limit else 0
        for row in rows:
            position = (row["next_retry_at"], row["id"])
            if position > self._marks[row["priority"]]:
                self._marks[row["priority"]] = position

    def full_claim_took(self, seconds: float) -> None:
        """Note the cost of a full claim, and when the next one is due at the latest."""
        self._costs.append(seconds)
        self._next_full = time.monotonic() + max(0.5, 20 * seconds)
