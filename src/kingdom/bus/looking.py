"""What operators look at, as plain dictionaries with stable camelCase keys: the command line and the web show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kingdom.bus.envelope import format_time

if TYPE_CHECKING:
    from datetime import datetime

    from kingdom.bus.delivery import Check, DeadLetter, Depth, Record
    from kingdom.bus.eventbus import EventBus


def depth_document(stream: str, depth: Depth) -> dict[str, Any]:
    """How full one stream is."""
    return {
        "stream": stream,
        "pending": depth.pending,
        "processing": depth.processing,
        "dead": depth.dead,
        "oldestPendingSeconds": round(depth.oldest_pending_seconds, 3),
    }


def dead_document(letter: DeadLetter) -> dict[str, Any]:
    """One dead letter."""
    return {
        "eventId": letter.event_id,
        "type": letter.envelope.type,
        "aggregateType": letter.envelope.aggregate_type,
        "aggregateId": letter.envelope.aggregate_id,
        "attempts": letter.attempts,
        "errorCode": letter.error_code,
        "errorMessage": letter.error_message,
        "deadAt": moment(letter.dead_at),
        "envelope": letter.envelope.to_dict(),
    }


def record_document(record: Record) -> dict[str, Any]:
    """Everything known of one event."""
    envelope = record.envelope
    return {
        "eventId": envelope.event_id,
        "stream": record.stream,
        "type": envelope.type,
        "status": record.status,
        "attempts": record.attempts,
        "aggregateType": envelope.aggregate_type,
        "aggregateId": envelope.aggregate_id,
        "priority": envelope.priority,
        "notBefore": moment(envelope.not_before),
        "createdAt": moment(record.created_at),
        "nextRetryAt": moment(record.next_retry_at),
        "lockedBy": record.locked_by,
        "lockedUntil": moment(record.locked_until),
        "finishedAt": moment(record.finished_at),
        "errorCode": record.error_code,
        "errorMessage": record.error_message,
        "outcome": record.outcome,
        "envelope": envelope.to_dict(),
    }


def check_document(check: Check) -> dict[str, Any]:
    """One finding of the doctor."""
    return {"name": check.name, "level": check.level, "message": check.message, "hint": check.hint}


def moment(when: datetime | None) -> str | None:
    """A time in the form envelopes use, or None."""
    return None if when is None else format_time(when)


async def matching_letters(
    bus: EventBus, stream: str, limit: int, event_type: str | None, code: str | None
) -> list[DeadLetter]:
    """The latest dead letters of a type and an error code, where given; asks for more until enough of them match."""
    ask = limit
    while True:
        letters = await bus.dead(stream, ask)
        found = [
            letter
            for letter in letters
            if event_type in (None, letter.envelope.type) and code in (None, letter.error_code)
        ]
        if len(found) >= limit or len(letters) < ask:
            return found[:limit]
        ask *= 4
