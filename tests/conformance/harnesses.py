"""How each of our transports is put under test."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from kingdom.bus import Envelope, EventBus
from kingdom.bus.testing import Harness
from kingdom.bus.transport import ShardedTransport
from kingdom.bus.transports.kafka._routing import shard_of

# Every stored time that the bus compares with the present. Moving them back is, seen from the store, the same as
# waiting.
_SHIFT = """
UPDATE outbox_event
SET next_retry_at = next_retry_at - moved.span, created_at = created_at - moved.span,
    updated_at = updated_at - moved.span, locked_until = locked_until - moved.span,
    last_attempt_at = last_attempt_at - moved.span, processed_at = processed_at - moved.span
FROM (SELECT make_interval(secs => $1) AS span) AS moved
"""


def memory_url() -> str:
    """A store in memory that several buses can share."""
    return f"memory:{uuid4().hex}"


class StoreHarness(Harness):
    """What the state machine needs beyond the suite's."""

    #: Whether a claim that follows a filled one may leave for later what became ready late.
    hurries = False

    async def forget(self, stream: str) -> None:
        """Remove a stream's events where that is cheap, so that a store shared by many examples stays small."""

    def lane(self, envelope: Envelope) -> str:
        """What shares an order with this event: its aggregate, or all without one that are in its shard."""
        if envelope.aggregate_id is not None or self.shards == 1:
            return envelope.aggregate_id or ""
        return f"shard {self.shard(envelope)}"

    def shard(self, envelope: Envelope) -> int:
        """The shard of this event."""
        return shard_of(envelope.event_id, envelope.aggregate_type, envelope.aggregate_id, self.shards)

    @property
    def shards(self) -> int:
        """Over how many shards the events of a stream are spread."""
        return self.bus.transport.shards if isinstance(self.bus.transport, ShardedTransport) else 1


class PostgresHarness(StoreHarness):
    """PostgreSQL has a clock of its own: time passes by moving what is stored into the past."""

    hurries = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._buses: list[Any] = []
        self._connection: Any = None

    async def open(self) -> EventBus:
        bus = await super().open()
        self._buses.append(bus)
        return bus

    async def advance(self, seconds: float) -> None:
        connection = await self._connected()
        await connection.execute(_SHIFT, float(seconds))
        for bus in self._buses:  # watermarks are times too; they are hints that are good for half a second
            bus.transport._claims._marks.clear()

    async def forget(self, stream: str) -> None:
        connection = await self._connected()
        await connection.execute("DELETE FROM outbox_event WHERE stream = $1", stream)

    async def _connected(self) -> Any:
        if self._connection is None:
            import asyncpg

            url, _, schema = self.url.rpartition("schema=")
            self._connection = await asyncpg.connect(url.rstrip("?&"), server_settings={"search_path": schema})
            self._opened.push_async_callback(self._connection.close)
        return self._connection
