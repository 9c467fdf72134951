"""A transport in this process's memory, for tests and demos. Nothing is durable.

Each bus on ``memory:`` has a store of its own. Buses on ``memory:NAME`` share one, which lives until the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

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
from kingdom.bus.envelope import Envelope, new_event_id
from kingdom.bus.errors import NotSetUp, TransactionMismatch
from kingdom.bus.stream_entry import LEASE_EXPIRED, EventEntry, new_entry, utc_datetime
from kingdom.bus.stream_state import StreamStateMachine

if TYPE_CHECKING:
    from kingdom.bus.transport import TransportOptions

_shared: Final[dict[str, MemoryStore]] = {}


def open(url: str, options: TransportOptions) -> MemoryTransport:  # noqa: A001
    """Return the transport of a ``memory:`` URL."""
    name = url.partition(":")[2].partition("?")[0]
    return MemoryTransport(_shared.setdefault(name, MemoryStore()) if name else MemoryStore(), url, options)


class StoredEnvelope(NamedTuple):
    """A published event in its JSON form, so that deliveries are copies and never the publisher's own object."""

    text: str
    routing: dict[str, Any]

    @classmethod
    def of(cls, envelope: Envelope, max_bytes: int) -> Self:
        """Encode an envelope, or raise ``InvalidEnvelope``."""
        names = ("aggregate_type", "aggregate_id", "priority", "not_before")
        return cls(envelope.to_json(max_bytes), {name: getattr(envelope, name) for name in names})

    def envelope(self) -> Envelope:
        """Return a new copy of the envelope."""
        return Envelope.from_json(self.text, **self.routing)


class DoneEntry(NamedTuple):
    """An event that is DONE."""

    entry: EventEntry
    outcome: str | None


@dataclass
class MemoryStream:
    """One stream: active events in ``state``, DONE ones in ``done`` in the order they ended."""

    options: StreamOptions | None = None  # None: not declared
    state: StreamStateMachine = field(default_factory=StreamStateMachine)
    stored: dict[str, StoredEnvelope] = field(default_factory=dict)
    done: dict[str, DoneEntry] = field(default_factory=dict)
    published: int = 0
    wakers: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = field(default_factory=list)

    def wake(self) -> None:
        """Wake the subscribers, each in its own loop."""
        for loop, wake in list(self.wakers):
            with contextlib.suppress(RuntimeError):  # the loop closed without unsubscribing
                loop.call_soon_threadsafe(wake)

    def finish(self, entry: EventEntry, now: float, outcome: str | None) -> None:
        self.state.remove(entry)
        entry.ended_at = now
        self.done[entry.event_id] = DoneEntry(entry, outcome)

    def take(self, now: float, limit: int, types: Sequence[str] | None, ids: Sequence[str] | None) -> list[EventEntry]:
        """Take up to ``limit`` claimable events, of these types and with these ids, if given."""
        if ids is None:
            return self.state.take(now, limit, types)
        return self.state.take_named(now, ids, limit, types)

    def deliver(self, name: str, entry: EventEntry) -> Delivery:
        assert entry.token is not None
        assert entry.worker is not None
        return Delivery(name, self.stored[entry.event_id].envelope(), entry.attempts, entry.token, entry.worker)


class HeldEntry(NamedTuple):
    """A delivery whose lease still holds."""

    stream: MemoryStream
    entry: EventEntry


class HeldEntries(dict[Delivery, HeldEntry]):
    """The deliveries of one call that are still held, and those that are not."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: list[Delivery] = []


class MemoryStore:
    """A store that buses share, with one lock for buses in several threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ready = False
        self.streams: dict[str, MemoryStream] = {}


class MemoryTransport:
    """See :class:`kingdom.bus.transport.Transport`."""

    def __init__(self, store: MemoryStore, url: str, options: TransportOptions) -> None:
        self._store = store
        self._url = url
        self._max_bytes = options.max_bytes
        self._clock = options.clock or time.time

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def setup(self) -> list[str]:
        with self._store.lock:
            fresh, self._store.ready = not self._store.ready, True
        return ["001_memory"] if fresh else []

    async def declare(self, stream: str, options: StreamOptions) -> None:
        with self._using(stream) as found:
            found.options = options
            found.state.configure(ordered=options.ordered, dead_head=options.dead_head)
            found.wake()

    async def publish(self, stream: str, envelopes: Sequence[Envelope], tx: Any | None) -> list[str]:
        if tx is not None:
            raise TransactionMismatch(
                f"tx= was given, but {self._url} is not a database: there is no transaction to join"
            )
        new = [(envelope, StoredEnvelope.of(envelope, self._max_bytes)) for envelope in envelopes]
        accepted = []
        with self._using(stream) as found:
            now = self._clock()
            for envelope, stored in new:
                if envelope.event_id in found.stored:
                    continue
                found.published += 1
                found.stored[envelope.event_id] = stored
                found.state.add(new_entry(envelope, seq=found.published, now=now))
                accepted.append(envelope.event_id)
            found.wake()
        return accepted

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
        with self._using(stream) as found:
            now, token, state = self._clock(), new_event_id(), found.state
            chosen: list[EventEntry] = []
            while len(chosen) < limit and (taken := found.take(now, limit - len(chosen), types, ids)):
                for entry in taken:
                    if entry.spent(max_attempts):
                        state.bury(entry, LEASE_EXPIRED, entry.expiry_message, now)
                    else:
                        chosen.append(entry)
            claimed = []
            for entry in sorted(
                chosen, key=lambda entry: entry.place
            ):  # an event that goes DEAD may make another claimable
                state.hold(entry, token, worker, now + lease)
                claimed.append(found.deliver(stream, entry))
            return claimed

    async def recall(self, stream: str, *, worker: str, lease: float) -> list[Delivery]:
        with self._using(stream) as found:
            until, token = self._clock() + lease, new_event_id()
            held = found.state.held_by(worker)
            for entry in held:
                found.state.recall(entry, token, until)
            return [found.deliver(stream, entry) for entry in held]

    async def peek(self, stream: str, limit: int, types: Sequence[str] | None, skip: Container[str]) -> list[Record]:
        with self._using(stream) as found:
            unknown = (entry for entry in found.state.line(self._clock(), types) if entry.event_id not in skip)
            return [entry.record(stream, found.stored[entry.event_id].envelope()) for entry in islice(unknown, limit)]

    async def settle(
        self, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]
    ) -> list[Delivery]:
        with self._acting([item.delivery for verdicts in (done, retry, dead) for item in verdicts]) as held:
            now = self._clock()
            for good in done:
                if good.outcome is not None:
                    options = self._store.streams[good.delivery.stream].options or StreamOptions()
                    options.check_outcome(good.delivery.stream, good.outcome)
            for good in done:
                if found := held.pop(good.delivery, None):
                    found.stream.finish(found.entry, now, good.outcome)
            for again in retry:
                if found := held.pop(again.delivery, None):
                    found.stream.state.retry(found.entry, now + again.after, again.code, again.message)
            for end in dead:
                if found := held.pop(end.delivery, None):
                    found.stream.state.bury(found.entry, end.code, end.message, now)
            return held.lost

    async def extend(self, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
        with self._acting(deliveries) as held:
            until = self._clock() + lease
            for found in held.values():
                found.stream.state.extend(found.entry, until)
            return held.lost

    async def release(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        with self._acting(deliveries) as held:
            for found in held.values():
                found.stream.state.release(found.entry)
            return held.lost

    async def depth(self) -> dict[str, Depth]:
        with self._locked():
            now = self._clock()
            return {
                name: found.state.depth(now)
                for name, found in self._store.streams.items()
                if found.options or len(found.state)
            }

    async def pending_types(self, stream: str) -> dict[str, int]:
        with self._using(stream) as found:
            return found.state.pending_types(self._clock())

    async def dead(self, stream: str, limit: int) -> list[DeadLetter]:
        with self._using(stream) as found:
            return [
                DeadLetter(
                    entry.event_id,
                    found.stored[entry.event_id].envelope(),
                    entry.attempts,
                    entry.error_code,
                    entry.error_message,
                    utc_datetime(entry.ended_at or 0),
                )
                for entry in found.state.dead(limit)
            ]

    async def find(self, event_id: str) -> Record | None:
        with self._locked():
            for name, found in self._store.streams.items():
                if entry := found.state.get(event_id):
                    return entry.record(name, found.stored[event_id].envelope())
                if done := found.done.get(event_id):
                    record = done.entry.record(name, found.stored[event_id].envelope())
                    return replace(record, outcome=done.outcome)
        return None

    async def requeue(
        self, stream: str, ids: Sequence[str] | None, *, event_type: str | None, error_code: str | None
    ) -> int:
        with self._using(stream) as found:
            now, moved = self._clock(), 0
            finished = {entry.event_id: entry for entry in found.state.dead()}
            if ids is not None:
                finished.update((item, found.done[item].entry) for item in ids if item in found.done)
                finished = {item: finished[item] for item in ids if item in finished}
            for event_id, entry in finished.items():
                if event_type not in (None, entry.type) or error_code not in (None, entry.error_code):
                    continue
                found.done.pop(event_id, None)
                found.state.requeue(entry, now)
                moved += 1
            found.wake()
            return moved

    async def purge(
        self, older_than: float, *, stream: str | None, dead: bool, keep: Collection[str], only: Collection[str] | None
    ) -> int:
        purged = 0
        with self._locked():
            before = self._clock() - older_than
            for name, found in self._store.streams.items():
                if stream not in (None, name):
                    continue
                for entry in [*(item.entry for item in found.done.values()), *(found.state.dead() if dead else ())]:
                    if (entry.ended_at or 0) >= before or entry.event_id in keep:
                        continue
                    if only is not None and entry.event_id not in only:
                        continue
                    if not found.done.pop(entry.event_id, None):
                        found.state.remove(entry)
                    del found.stored[entry.event_id]
                    purged += 1
                found.wake()
        return purged

    async def doctor(self) -> list[Check]:
        """Warn that nothing is durable."""
        return [Check("durability", "warning", "events are kept in memory only", "use files:, sqlite: or postgresql:")]

    def subscribe(
        self, stream: str, wake: Callable[[], None], types: Collection[str] | None = None
    ) -> Callable[[], None]:
        waker = (asyncio.get_running_loop(), wake)
        with self._store.lock:
            wakers = self._store.streams.setdefault(stream, MemoryStream()).wakers
            wakers.append(waker)

        def undo() -> None:
            with contextlib.suppress(ValueError):
                wakers.remove(waker)

        return undo

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._store.lock:
            if not self._store.ready:
                raise NotSetUp(f"{self._url} was not set up: await bus.setup() first")
            yield

    @contextlib.contextmanager
    def _using(self, stream: str) -> Iterator[MemoryStream]:
        with self._locked():
            yield self._store.streams.setdefault(stream, MemoryStream())

    @contextlib.contextmanager
    def _acting(self, deliveries: Sequence[Delivery]) -> Iterator[HeldEntries]:
        """Yield the deliveries that are still held; wake the subscribers of their streams afterwards."""
        with self._locked():
            held = HeldEntries()
            for delivery in deliveries:
                stream = self._store.streams.setdefault(delivery.stream, MemoryStream())
                entry = stream.state.held(delivery.event_id, delivery.token)
                if entry is None:
                    held.lost.append(delivery)
                else:
                    held[delivery] = HeldEntry(stream, entry)
            streams = {delivery.stream for delivery in held}
            yield held
            for name in streams:
                self._store.streams[name].wake()
