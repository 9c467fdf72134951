"""What is known of one active event."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus.delivery import Record
from kingdom.bus.envelope import PRIORITIES

if TYPE_CHECKING:
    from kingdom.bus.delivery import Status
    from kingdom.bus.envelope import Envelope
    from kingdom.bus.stream_state._lines import Heap

NORMAL: Final = PRIORITIES.index("normal")  # priorities are kept as their place in the order they are claimed
LEASE_EXPIRED: Final = "LEASE_EXPIRED"  # the error code of an event whose worker died on its last attempt


class Entry:
    """One active event: where it stands and what is known of it. Changed by :class:`StreamState` only."""

    __slots__ = (
        "aggregate",
        "attempts",
        "created_at",
        "ended_at",
        "error_code",
        "error_message",
        "event_id",
        "expired",
        "heap",
        "in_lane",
        "item",
        "priority",
        "ready_at",
        "seq",
        "status",
        "token",
        "type",
        "until",
        "worker",
    )

    def __init__(
        self,
        event_id: str,
        type: str,  # noqa: A002
        *,
        seq: int,
        created_at: float,
        ready_at: float,
        aggregate: str = "",
        priority: int = NORMAL,
    ) -> None:
        self.event_id = event_id
        self.type = type
        self.aggregate = aggregate
        self.priority = priority
        self.seq = seq  # the place in publish order
        self.created_at = created_at
        self.ready_at = ready_at  # since when it may be claimed; a lease that ends leaves it as it was
        self.status: Status = "PENDING"
        self.attempts = 0
        self.token: str | None = None
        self.worker: str | None = None
        self.until = 0.0  # the end of the lease
        self.expired = False  # the lease ended without a verdict
        self.error_code: str | None = None
        self.error_message: str | None = None
        self.ended_at: float | None = None  # when it went DEAD
        self.heap: Heap | None = None
        self.item: list[Any] | None = None
        self.in_lane = False

    @property
    def place(self) -> tuple[int, float, int]:
        """Orders it among others that can be claimed."""
        return self.priority, self.ready_at, self.seq

    @property
    def due(self) -> float:
        """When it becomes ready. What was to be ready at once is, also when the clock is set back behind its time."""
        return self.ready_at if self.ready_at != self.created_at else 0.0

    @property
    def claimable(self) -> bool:
        """Whether it counts as pending: PENDING, or held under a lease that ended."""
        return self.expired or self.status == "PENDING"

    @property
    def epitaph(self) -> str:
        """The error message of an event that dies because its last lease ended."""
        return f"the lease of {self.worker} ended without a verdict on attempt {self.attempts}, the last one"

    def spent(self, max_attempts: int) -> bool:
        """Whether its lease ended on its last attempt, so that it must not be delivered again."""
        return self.expired and self.attempts >= max_attempts

    def record(self, stream: str, envelope: Envelope) -> Record:
        """What ``bus.find`` shows of it."""
        held = self.status == "PROCESSING"
        return Record(
            stream=stream,
            envelope=envelope,
            status=self.status,
            attempts=self.attempts,
            created_at=moment(self.created_at),
            next_retry_at=moment(self.ready_at) if self.status == "PENDING" else None,
            locked_by=self.worker if held else None,
            locked_until=moment(self.until) if held else None,
            error_code=self.error_code,
            error_message=self.error_message,
            finished_at=None if self.ended_at is None else moment(self.ended_at),
        )


def new_entry(envelope: Envelope, *, seq: int, now: float) -> Entry:
    """The entry of an event that is published now."""
    not_before = 0.0 if envelope.not_before is None else envelope.not_before.timestamp()
    return Entry(
        envelope.event_id,
        envelope.type,
        seq=seq,
        created_at=now,
        ready_at=max(not_before, now),
        aggregate=aggregate_key(envelope),
        priority=PRIORITIES.index(envelope.priority),
    )


def aggregate_key(envelope: Envelope) -> str:
    """What orders an event among others; events without an aggregate share one key."""
    if envelope.aggregate_type is None and envelope.aggregate_id is None:
        return ""
    return f"{envelope.aggregate_type or ''}\x1f{envelope.aggregate_id or ''}"


def moment(seconds: float) -> datetime:
    """A time of the clock as a datetime in UTC."""
    return datetime.fromtimestamp(seconds, UTC)
