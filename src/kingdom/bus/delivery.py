"""What the bus hands out: deliveries, verdicts on them, and what operators see."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kingdom.bus.errors import InvalidOption

if TYPE_CHECKING:
    from datetime import datetime

    from kingdom.bus.document_form import DocumentForm
    from kingdom.bus.envelope import Envelope

Status = Literal["PENDING", "PROCESSING", "DONE", "DEAD"]
DeadHead = Literal["go-on", "park"]


@dataclass(slots=True, eq=False)
class Delivery:
    """One claim of one event: the lease, held by ``worker`` under a ``token`` that no other claim shares."""

    stream: str
    envelope: Envelope
    attempt: int  # 1 for the first delivery; crashes and expired leases count
    token: str  # fences: only the claim that holds the event now may settle it
    worker: str
    handle: Any = None  # the transport's own reference (a row id, a file name)

    @property
    def event_id(self) -> str:
        """The id of the event delivered."""
        return self.envelope.event_id

    def log_fields(self) -> dict[str, Any]:
        """The fields every log line about this event carries."""
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
    """How full one stream is.

    ``pending`` counts events that wait (for a worker, for their retry, or for their ``not_before``) and those whose
    lease ended without a verdict: the next claim takes them. ``oldest_pending_seconds`` is how long the oldest event
    that could be claimed right now has been waiting; 0 when there is none.
    """

    pending: int = 0
    processing: int = 0
    dead: int = 0
    oldest_pending_seconds: float = 0.0


class Depths(dict[str, Depth]):
    """Depths by stream. A stream with nothing unfinished or dead may be missing; asked for by name, it is empty."""

    def __missing__(self, stream: str) -> Depth:
        return Depth()


class DeadLetter(NamedTuple):
    """An event in DEAD, with why."""

    event_id: str
    envelope: Envelope
    attempts: int
    error_code: str | None
    error_message: str | None
    dead_at: datetime


@dataclass(frozen=True, slots=True)
class Record:
    """Everything a store knows of one event (``bus.find``, ``kingdom bus show``)."""

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
    outcome: str | None = None  # what it was settled as DONE with


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How one stream behaves, kept in the store so that every process agrees on it.

    ``ordered``: events of one aggregate are handled one at a time, in publish order. Events without an aggregate
    count as one aggregate. ``dead_head``: when the first event of an aggregate goes DEAD, its followers ``go-on`` or
    stay ``park``-ed until an operator requeues or purges it. ``states``: the names of the stream's own states, for
    transports whose states are seen from outside (directories). ``document``: its events are documents of their own.
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
        """Raise :class:`InvalidOption` unless events of the stream these are the options of may end so."""
        known = () if self.document is None else self.document.outcomes
        if outcome is not None and outcome not in known:
            has = f"its outcomes are {', '.join(known)}" if known else "it was declared without outcomes"
            raise InvalidOption(f"settle(done): {stream} has no outcome {outcome!r:.80}; {has}")


class Check(NamedTuple):
    """One finding of ``doctor``: ``ok``, ``warning`` (look at it) or ``error`` (something is wrong now)."""

    name: str
    level: Literal["ok", "warning", "error"]
    message: str
    hint: str = ""
