"""What a relay reads and writes: rows of an outbox, records of topics, and the ports to both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from kingdom.bus.errors import BusError
    from kingdom.bus.relay_debezium import EventRouter


class OutboxRow(NamedTuple):
    """A row of ``outbox_event`` that is to be relayed."""

    id: int
    stream: str
    event_id: str
    event_type: str
    aggregate_type: str | None
    aggregate_id: str | None
    payload_json: str  # the whole envelope
    priority: int  # 0 high, 1 normal, 2 low
    not_before: datetime | None
    created_at: datetime
    held: bool  # it cannot be relayed now, and nothing that follows it in its aggregate

    @property
    def aggregate(self) -> str:
        """The key of its aggregate; rows without an aggregate share one."""
        return f"{self.aggregate_type or ''}\x1f{self.aggregate_id or ''}"


class RelayRecord(NamedTuple):
    """A record to be written to a topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None = None  # None: by the key


class RelayOutcome(NamedTuple):
    """What became of rows. A row in neither was not sent, and goes with the next batch."""

    sent: list[int]
    failed: dict[int, BusError]  # an InvalidEnvelope: no repetition helps


class RelayShards(NamedTuple):
    """The shards of a stream that a relay holds, and how many it should hold."""

    held: list[int]
    due: int


class Outbox(Protocol):
    """The side of a database."""

    def subscribe(self, stream: str | None, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` whenever events of a stream, or of any, may have been published; return the undo."""

    async def prepare(self) -> None:
        """Create what relays need and nobody else does. Raises ``NotSetUp`` without the tables of the bus."""

    async def streams(self) -> list[str]:
        """Return the streams that have unfinished events."""

    async def share(self, stream: str, holder: str, lease: float) -> RelayShards:
        """Renew the leases on shards, take what is free, and give up what others should hold."""

    async def leave(self, stream: str, holder: str) -> None:
        """Give up all shards."""

    async def read(
        self, stream: str, shards: Sequence[int], *, limit: int, after: int, without: Sequence[str]
    ) -> list[OutboxRow]:
        """Return the first unfinished rows of shards after a row, in publish order for each aggregate."""

    async def mark(self, stream: str, holder: str, shards: Sequence[int], ids: Sequence[int]) -> int:
        """Mark rows as relayed, unless their shard was lost; return how many."""

    async def fail(self, stream: str, holder: str, shards: Sequence[int], failed: dict[int, BusError]) -> None:
        """Write down why rows could not be relayed; those for which no repetition helps go DEAD."""


class RelaySender(Protocol):
    """The side of the topics."""

    async def send(self, rows: Sequence[OutboxRow]) -> RelayOutcome:
        """Write rows in this order, and return when they are durable.

        After a row that was not written, none of its aggregate is. Raises ``TransportUnavailable`` if nothing was
        written and a repetition may help.
        """

    async def close(self) -> None:
        """Close."""


@runtime_checkable
class OutboxTransport(Protocol):
    """A transport whose streams can be relayed."""

    def outbox(self) -> Outbox:
        """Return the outbox."""


@runtime_checkable
class RelayTarget(Protocol):
    """A transport to which streams can be relayed."""

    async def relay_sender(self, router: EventRouter | None) -> RelaySender:
        """Return a sender that writes to the streams of the transport, or to the topics that a router names."""
