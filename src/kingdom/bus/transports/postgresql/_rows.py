"""What rows mean, and which deliveries they answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kingdom.bus.delivery import Delivery, DoneVerdict, Record
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.outbox import PRIORITY


def envelope(row: Any) -> Envelope:
    """The envelope of a row, or :class:`InvalidEnvelope`."""
    priority = PRIORITY[row["priority"]]
    return Envelope.from_store(row["payload_json"], row["aggregate_type"], row["aggregate_id"], priority)


def readable(row: Any) -> Envelope:
    """The envelope of a row, or one that shows what cannot be read."""
    try:
        return envelope(row)
    except InvalidEnvelope:
        return Envelope.unreadable(row["event_id"], row["event_type"], row["payload_json"])


def record(row: Any) -> Record:
    """One row, whole."""
    return Record(
        stream=row["stream"],
        envelope=readable(row),
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


def missing(deliveries: Iterable[Delivery], rows: Iterable[Any]) -> list[Delivery]:
    """The deliveries for which nothing was written; two of one event differ by their token."""
    written = {(row[0], row[1]) for row in rows}
    return [delivery for delivery in deliveries if (delivery.handle, delivery.token) not in written]


def leases(deliveries: Iterable[Delivery]) -> list[tuple[list[int], str]]:
    """Row ids by claim, in order: two statements on the same rows then never wait in a circle."""
    claims: dict[str, list[int]] = {}
    for delivery in deliveries:
        claims.setdefault(delivery.token, []).append(delivery.handle)
    return sorted((sorted(ids), token) for token, ids in claims.items())


def outcomes(done: Iterable[DoneVerdict]) -> list[tuple[list[int], str, str]]:
    """Row ids by claim and outcome, in order, of the verdicts that have one."""
    claims: dict[tuple[str, str], list[int]] = {}
    for delivery, outcome in done:
        if outcome is not None:
            claims.setdefault((delivery.token, outcome), []).append(delivery.handle)
    return sorted((sorted(ids), token, outcome) for (token, outcome), ids in claims.items())
