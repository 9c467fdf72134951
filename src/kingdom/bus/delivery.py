"""The values the bus hands out: deliveries, verdicts, stream options, records, and their JSON documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kingdom.bus.envelope import Envelope, check_event_id, format_time, parse_time
from kingdom.bus.errors import InvalidEnvelope, InvalidName, InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from kingdom.bus.eventbus import EventBus


@dataclass(frozen=True, slots=True)
class DocumentForm:
    """How the bus reads the documents of an application: which field is which.

    Where states are visible from outside (files), a document is stored as it is. Its fields ``id``, ``type``, ``time``
    and ``priority`` become those of the envelope, and the whole document is the payload. Its field ``status`` holds
    the name of its state or, once it is DONE, the one of ``outcomes`` with which it was settled. ``None`` for a field
    means that documents have none. Other stores keep the document as payload.
    """

    id: str = "id"
    type: str = "type"
    time: str | None = "created_at"
    priority: str | None = "priority"
    status: str | None = "status"
    outcomes: tuple[str, ...] = ()

    def envelope(self, document: Mapping[str, Any]) -> Envelope:
        """Return the envelope of a document, or raise :class:`InvalidEnvelope` with the reason."""
        more: dict[str, Any] = {}
        if self.time is not None and document.get(self.time) is not None:
            more["occurred_at"] = parse_time(document[self.time], self.time)
        if self.priority is not None and document.get(self.priority) is not None:
            more["priority"] = document[self.priority]
        try:
            event_id = check_event_id(self._text(document, self.id))
        except InvalidName as error:
            raise InvalidEnvelope(f"its {self.id}: {error}") from None
        return Envelope(type=self._text(document, self.type), payload=document, event_id=event_id, **more)

    @staticmethod
    def _text(document: Mapping[str, Any], field: str) -> str:
        value = document.get(field)
        if isinstance(value, str) and value:
            return value
        raise InvalidEnvelope(f"its {field!r} must be text, not {value!r:.60}" if value else f"it has no {field!r}")


Status = Literal["PENDING", "PROCESSING", "DONE", "DEAD"]
DeadHead = Literal["go-on", "park"]


@dataclass(slots=True, eq=False)
class Delivery:
    """One claim of one event: the lease, held by ``worker`` under a ``token`` that no other claim shares."""

    stream: str
    envelope: Envelope
    attempt: int  # 1 for the first delivery; crashes and expired leases count
    token: str  # fencing: only the claim that holds the event now may settle it
    worker: str
    handle: Any = None  # the transport's own reference (a row id, a file name)

    @property
    def event_id(self) -> str:
        """The id of the event delivered."""
        return self.envelope.event_id

    def log_fields(self) -> dict[str, Any]:
        """Return the fields of every log line about this event."""
        envelope = self.envelope
        return {
            "traceId": envelope.trace_id,
            "eventId": envelope.event_id,
            "stream": self.stream,
            "eventType": envelope.type,
            "aggregateType": envelope.aggregate_type,
            "aggregateId": envelope.aggregate_id,
            "attempt": self.attempt,
        }


class RetryVerdict(NamedTuple):
    """Settle as PENDING again, claimable ``after`` seconds from now by the store's clock."""

    delivery: Delivery
    after: float = 0.0
    code: str | None = None
    message: str | None = None


class DoneVerdict(NamedTuple):
    """Settle as DONE; ``outcome`` is one of the outcomes of the stream's :class:`DocumentForm`, or None."""

    delivery: Delivery
    outcome: str | None = None


class DeadVerdict(NamedTuple):
    """Settle as DEAD."""

    delivery: Delivery
    code: str = "REJECTED"
    message: str | None = None


class Depth(NamedTuple):
    """The number of events of one stream in each state.

    ``pending`` counts events that wait (for a worker, for their retry, or for their ``not_before``) and those whose
    lease ended without a verdict: the next claim takes them. ``oldest_pending_seconds`` is how long the oldest event
    that is claimable now has been waiting; 0 if there is none.
    """

    pending: int = 0
    processing: int = 0
    dead: int = 0
    oldest_pending_seconds: float = 0.0


class Depths(dict[str, Depth]):
    """Depths by stream. A stream with nothing to count may be missing; ``depths[name]`` is then all zeros."""

    def __missing__(self, stream: str) -> Depth:
        return Depth()


class DeadLetter(NamedTuple):
    """A DEAD event, with its last error."""

    event_id: str
    envelope: Envelope
    attempts: int
    error_code: str | None
    error_message: str | None
    dead_at: datetime


@dataclass(frozen=True, slots=True)
class Record:
    """Everything a store knows about one event (``bus.find``, ``kingdom bus show``)."""

    stream: str
    envelope: Envelope
    status: Status
    attempts: int
    created_at: datetime
    next_retry_at: datetime | None = None
    locked_by: str | None = None
    locked_until: datetime | None = None
    error_code: str | None = None
    error_message: str | None = None
    finished_at: datetime | None = None
    outcome: str | None = None  # with which it was settled as DONE


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of one stream. They are kept in the store, so that all processes agree.

    ``ordered``: events of one aggregate are handled one at a time, in publish order. Events without an aggregate
    count as one aggregate. ``dead_head``: when the first event of an aggregate goes DEAD, its followers ``go-on`` or
    stay ``park``-ed until an operator requeues or purges it. ``states``: the stream's own names for its states, for
    transports whose states are visible from outside (directories). ``document``: its events are documents of the
    application.
    """

    ordered: bool = False
    dead_head: DeadHead = "go-on"
    states: dict[Status, str] = field(default_factory=dict)
    document: DocumentForm | None = None

    def __post_init__(self) -> None:
        if self.dead_head not in ("go-on", "park"):
            raise InvalidOption(f"dead_head must be 'go-on' or 'park', not {self.dead_head!r}")
        if unknown := set(self.states) - {"PENDING", "PROCESSING", "DONE", "DEAD"}:
            raise InvalidOption(f"states has no state {min(unknown)!r}: PENDING, PROCESSING, DONE, DEAD")

    def check_outcome(self, stream: str, outcome: str | None) -> None:
        """Raise :class:`InvalidOption` unless ``outcome`` is one of this stream's outcomes, or None."""
        known = () if self.document is None else self.document.outcomes
        if outcome is not None and outcome not in known:
            has = f"its outcomes are {', '.join(known)}" if known else "it was declared without outcomes"
            raise InvalidOption(f"settle(done): {stream} has no outcome {outcome!r:.80}; {has}")


class Check(NamedTuple):
    """One result of ``doctor``: ``ok``, ``warning`` (look at it) or ``error`` (something is wrong now)."""

    name: str
    level: Literal["ok", "warning", "error"]
    message: str
    hint: str = ""


# ── JSON documents for the command line and the web; their camelCase keys are stable ─────────────────────────────


def depth_document(stream: str, depth: Depth) -> dict[str, Any]:
    """Return the depth of one stream as a document."""
    return {
        "stream": stream,
        "pending": depth.pending,
        "processing": depth.processing,
        "dead": depth.dead,
        "oldestPendingSeconds": round(depth.oldest_pending_seconds, 3),
    }


def dead_document(letter: DeadLetter) -> dict[str, Any]:
    """Return one dead letter as a document."""
    return {
        "eventId": letter.event_id,
        "type": letter.envelope.type,
        "aggregateType": letter.envelope.aggregate_type,
        "aggregateId": letter.envelope.aggregate_id,
        "attempts": letter.attempts,
        "errorCode": letter.error_code,
        "errorMessage": letter.error_message,
        "deadAt": format_optional_time(letter.dead_at),
        "envelope": letter.envelope.to_dict(),
    }


def record_document(record: Record) -> dict[str, Any]:
    """Return everything known about one event as a document."""
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
        "notBefore": format_optional_time(envelope.not_before),
        "createdAt": format_optional_time(record.created_at),
        "nextRetryAt": format_optional_time(record.next_retry_at),
        "lockedBy": record.locked_by,
        "lockedUntil": format_optional_time(record.locked_until),
        "finishedAt": format_optional_time(record.finished_at),
        "errorCode": record.error_code,
        "errorMessage": record.error_message,
        "outcome": record.outcome,
        "envelope": envelope.to_dict(),
    }


def check_document(check: Check) -> dict[str, Any]:
    """Return one result of the doctor as a document."""
    return {"name": check.name, "level": check.level, "message": check.message, "hint": check.hint}


def format_optional_time(when: datetime | None) -> str | None:
    """Format a time as envelopes do; None stays None."""
    return None if when is None else format_time(when)


async def matching_letters(
    bus: EventBus, stream: str, limit: int, event_type: str | None, code: str | None
) -> list[DeadLetter]:
    """Return the latest dead letters of a type and an error code; fetch more until enough of them match."""
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
