"""The port between the bus and what carries it.

A transport is one module (or package) ``kingdom.bus.transports.<scheme>`` with a function ``open(url, options)``, or an
entry point of another distribution in the group ``kingdom.bus.transports``. Nothing else names it: the bus, the
worker, the command line and the conformance suite (:mod:`kingdom.bus.testing`) know this protocol only.

Promises every transport keeps (the conformance suite checks them):

* ``publish`` returns when the events are durable. Nothing half-written is ever visible; all envelopes of one call are
  stored, or none.
* States move PENDING → PROCESSING → DONE | PENDING | DEAD. DONE and DEAD move only by ``requeue``.
* ``claim`` takes PENDING events whose time has come and PROCESSING events whose lease ended, the highest priority
  first, then by the time they became ready, then in publish order, until it has ``limit`` of them. An event whose
  lease ended keeps its place: it counts as ready since it was before. Each claim counts an attempt. An event met on
  the way whose lease ended on its last attempt (``max_attempts``) is not delivered again: it goes DEAD with the code
  ``LEASE_EXPIRED``. Under a sustained backlog a transport may let what became ready late wait for a moment.
* ``settle``, ``extend`` and ``release`` act on a delivery only while its token is the one the event is held under;
  what they refused is returned.
* In an ordered stream only the first unfinished event of each aggregate can be claimed.
* All times are those of one clock, the store's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

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


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """What ``connect`` passes on to a transport."""

    max_bytes: int = DEFAULT_MAX_BYTES  # of one envelope's JSON form
    clock: Clock | None = None  # for transports that have no clock of their own; None: time.time
    connect_timeout: float = 15.0  # seconds to keep trying a store that is away, before giving up
    query: Mapping[str, str] = field(default_factory=dict)  # the query part of the URL


class Transport(Protocol):
    """What carries events. All methods but ``subscribe`` are coroutines; all names and ids they get were checked."""

    async def open(self) -> None:
        """Take what is needed to work (connections, handles). Raises ``TransportUnavailable`` after back-off."""

    async def close(self) -> None:
        """Give everything back. Safe to call twice."""

    async def setup(self) -> list[str]:
        """Make or migrate what is stored; safe to repeat and to run from two processes at once.

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
        """Take up to ``limit`` events for ``lease`` seconds, of these types and with these ids, if any are given."""

    async def recall(self, stream: str, *, worker: str, lease: float) -> list[Delivery]:
        """Hold anew, under a new token, everything ``worker`` holds; the attempts stay as they are."""

    async def peek(self, stream: str, limit: int, types: Sequence[str] | None, skip: Container[str]) -> list[Record]:
        """What could be claimed now (of these types), in the order of claims, but for the ids in ``skip``."""

    async def settle(
        self, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]
    ) -> list[Delivery]:
        """Write verdicts; return the deliveries whose lease was lost, for which nothing was written."""

    async def extend(self, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
        """Let the leases end ``lease`` seconds from now; return the deliveries whose lease was lost."""

    async def release(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Give events back untouched: claimable at once, the attempt not counted. Returns those already lost."""

    async def depth(self) -> dict[str, Depth]:
        """How full each stream is, for every stream that has unfinished or dead events or was declared."""

    async def pending_types(self, stream: str) -> dict[str, int]:
        """How many events of each type wait in ``stream``."""

    async def dead(self, stream: str, limit: int) -> list[DeadLetter]:
        """The latest dead letters, newest first."""

    async def find(self, event_id: str) -> Record | None:
        """Everything known of one event."""

    async def requeue(
        self, stream: str, ids: Sequence[str] | None, *, event_type: str | None, error_code: str | None
    ) -> int:
        """Move DEAD events (and DONE ones named in ``ids``) back to PENDING with a fresh count of attempts.

        ``ids=None`` means every DEAD event; ``event_type`` and ``error_code`` narrow it. Returns how many moved.
        """

    async def purge(self, older_than: float, *, stream: str | None, dead: bool, keep: Collection[str]) -> int:
        """Forget DONE (and, with ``dead``, DEAD) events that ended more than ``older_than`` seconds ago.

        Those whose ids are in ``keep`` stay.
        """

    async def doctor(self) -> list[Check]:
        """Check what tends to go wrong with this store."""

    def subscribe(self, stream: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` (in the event loop) whenever something may have become claimable; returns the undo.

        A hint only: workers poll as well, so a transport without wake-ups may return a no-op.
        """


@runtime_checkable
class TransactionalTransport(Protocol):
    """What a transport in a database can do besides."""

    async def consume(self, stream: str, event_id: str, tx: Any) -> bool:
        """End an event as DONE in the caller's transaction, if it can be claimed now; else write nothing."""


@runtime_checkable
class ListingTransport(Protocol):
    """What a transport can do besides whose store can be asked for everything in it."""

    async def records(
        self, stream: str, *, ids: str, within: float | None, after: Any, limit: int
    ) -> tuple[list[Record], Any]:
        """Up to ``limit`` events of a stream in publish order, finished ones too, and what to go on ``after``.

        ``ids``: a pattern in which ``*`` stands for anything. ``within``: only what was published or changed its state
        in the last so many seconds by the store's clock. ``after`` is None for the first page, and returned as None
        with the last one.
        """


@runtime_checkable
class DirectTransport(Protocol):
    """What a transport can do besides whose store needs no event loop: serve synchronous callers in their thread.

    None of the other methods is called on such an object, not even ``open``.
    """

    def publish_now(self, stream: str, envelopes: Sequence[Envelope]) -> list[str]:
        """As ``publish``. What it opens stays open for the next call; any thread may call it."""

    def close_now(self) -> None:
        """Give back what ``publish_now`` opened. Safe to call twice."""
