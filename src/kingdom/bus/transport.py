"""The port between the bus and its transports.

A transport is one module (or package) ``kingdom.bus.transports.<scheme>`` with a function ``open(url, options)``, or an
entry point of another distribution in the group ``kingdom.bus.transports``. The bus, the worker, the command line and
the conformance suite (:mod:`kingdom.bus.testing`) use this protocol only.

Every transport keeps these promises (the conformance suite checks them):

* ``publish`` returns when the events are durable. All envelopes of one call are stored, or none; nothing half-written
  is ever visible.
* States move PENDING → PROCESSING → DONE | PENDING | DEAD. DONE and DEAD move only by ``requeue``.
* ``claim`` takes PENDING events whose time has come and PROCESSING events whose lease ended, the highest priority
  first, then by the time they became ready, then in publish order, until it has ``limit`` of them. An event whose
  lease ended keeps its position. Each claim counts an attempt. An event whose lease ended on its last attempt
  (``max_attempts``) is not delivered again: it goes DEAD with the code ``LEASE_EXPIRED``. Under a sustained backlog a
  transport may delay events that became ready late for a moment.
* ``settle``, ``extend`` and ``release`` act on a delivery only while the event is held under its token; they return
  the deliveries that they refused.
* In an ordered stream only the first unfinished event of each aggregate can be claimed.
* All times are those of the store's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from kingdom.bus.envelope import DEFAULT_MAX_BYTES

if TYPE_CHECKING:
    from kingdom.bus.delivery import (
        Check,
        DeadLetter,
        DeadVerdict,
        Delivery,
        Depth,
        DoneVerdict,
        Record,
        RetryVerdict,
        StreamOptions,
    )
    from kingdom.bus.envelope import Envelope

Clock = Callable[[], float]  # seconds since the epoch, as time.time


CONNECT_SECONDS: Final = 15.0  # to retry a store that is away
INTERACTIVE_CONNECT_SECONDS: Final = 5.0  # the same while a person waits: give up early


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """The options that ``connect`` passes to a transport."""

    max_bytes: int = DEFAULT_MAX_BYTES  # of one envelope's JSON form
    clock: Clock | None = None  # for transports without a clock of their own; None: time.time
    connect_timeout: float = CONNECT_SECONDS
    query: Mapping[str, str] = field(default_factory=dict)  # the query part of the URL


class Transport(Protocol):
    """A store of events. All methods but ``subscribe`` are coroutines; names and ids were validated."""

    async def open(self) -> None:
        """Open connections or handles. Raises ``TransportUnavailable`` after back-off."""

    async def close(self) -> None:
        """Close everything. Safe to call twice."""

    async def setup(self) -> list[str]:
        """Create or migrate the store; safe to repeat and to run from several processes at once.

        Returns the names of the migrations applied now.
        """

    async def declare(self, stream: str, options: StreamOptions) -> None:
        """Store the options of a stream."""

    async def publish(self, stream: str, envelopes: Sequence[Envelope], tx: Any | None) -> list[str]:
        """Store the envelopes (in the caller's transaction ``tx``, if given); return the ids accepted now."""

    async def claim(
        self,
        stream: str,
        *,
        worker: str,
        limit: int,
        lease: float,
        types: Sequence[str] | None,
        ids: Sequence[str] | None,
        max_attempts: int,
    ) -> list[Delivery]:
        """Claim up to ``limit`` events for ``lease`` seconds, only of these types and with these ids, if given."""

    async def recall(self, stream: str, *, worker: str, lease: float) -> list[Delivery]:
        """Hold everything that ``worker`` holds under a new token and lease; attempts stay as they are."""

    async def peek(self, stream: str, limit: int, types: Sequence[str] | None, skip: Container[str]) -> list[Record]:
        """Return what could be claimed now, of these types, in claim order, without the ids in ``skip``."""

    async def settle(
        self, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]
    ) -> list[Delivery]:
        """Write verdicts; return the deliveries whose lease was lost, for which nothing was written."""

    async def extend(self, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
        """Set the leases to end ``lease`` seconds from now; return the deliveries whose lease was lost."""

    async def release(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return events unharmed: claimable at once, the attempt not counted. Returns those whose lease was lost."""

    async def depth(self) -> dict[str, Depth]:
        """Count the events of every stream that has unfinished or dead events or was declared."""

    async def pending_types(self, stream: str) -> dict[str, int]:
        """Count the waiting events of ``stream`` by type."""

    async def dead(self, stream: str, limit: int) -> list[DeadLetter]:
        """Return the latest dead letters, newest first."""

    async def find(self, event_id: str) -> Record | None:
        """Return everything known about one event."""

    async def requeue(
        self, stream: str, ids: Sequence[str] | None, *, event_type: str | None, error_code: str | None
    ) -> int:
        """Move DEAD events (and DONE ones named in ``ids``) back to PENDING with a fresh count of attempts.

        ``ids=None`` means every DEAD event; ``event_type`` and ``error_code`` narrow it. Returns how many moved.
        """

    async def purge(
        self, older_than: float, *, stream: str | None, dead: bool, keep: Collection[str], only: Collection[str] | None
    ) -> int:
        """Delete DONE (and, with ``dead``, DEAD) events that ended more than ``older_than`` seconds ago.

        Events whose ids are in ``keep`` stay; unless ``only`` is None, so do all that are not in it.
        """

    async def doctor(self) -> list[Check]:
        """Check the store for common problems."""

    def subscribe(
        self, stream: str, wake: Callable[[], None], types: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Call ``wake`` (in the event loop) whenever events may have become claimable; return the undo.

        A hint only: workers poll as well, so a transport without wake-ups may return a no-op. With ``types``, events of
        other types need not wake; a transport may ignore it.
        """


@runtime_checkable
class TransactionalTransport(Protocol):
    """A transport in a database: it can join the caller's transaction."""

    async def consume(self, stream: str, event_id: str, tx: Any) -> bool:
        """Settle an event as DONE in the caller's transaction if it can be claimed now; otherwise write nothing."""


@runtime_checkable
class ShardedTransport(Protocol):
    """A transport that may keep a stream in several shards, each with an order of its own.

    Events of one aggregate share a shard, so an ordered stream keeps their order. These promises hold in each shard,
    and not across shards: the order of claims; that all envelopes of one ``publish`` are stored or none; that events of
    an ordered stream without an aggregate wait for each other; that an id is accepted once, if its aggregate differs.
    """

    @property
    def shards(self) -> int:
        """How many shards a stream gets when it is created."""


@runtime_checkable
class ListingTransport(Protocol):
    """A transport that can list all events of a stream."""

    async def records(
        self, stream: str, *, ids: str, within: float | None, after: Any, limit: int
    ) -> tuple[list[Record], Any]:
        """Return up to ``limit`` events of a stream in publish order, finished ones too, and the next ``after``.

        ``ids``: a pattern in which ``*`` matches anything. ``within``: only events that were published or changed their
        state in the last so many seconds by the store's clock. ``after`` is None for the first page, and returned as
        None with the last one.
        """


@runtime_checkable
class BatchFindingTransport(Protocol):
    """A transport that finds many events at the cost of one call of ``find``."""

    async def find_many(self, event_ids: Sequence[str]) -> dict[str, Record]:
        """Return what ``find`` returns for each of these ids, without those that are not known."""


@runtime_checkable
class DirectTransport(Protocol):
    """A transport that serves synchronous callers in their own thread, without an event loop.

    No other method is called on such an object, not even ``open``.
    """

    def publish_now(self, stream: str, envelopes: Sequence[Envelope]) -> list[str]:
        """Publish, durable on return. What it opens stays open for the next call; any thread may call it."""

    def close_now(self) -> None:
        """Close what ``publish_now`` opened. Safe to call twice."""
