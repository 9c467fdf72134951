"""The relay: carries the streams of an outbox in PostgreSQL to Kafka, in publish order for each aggregate.

::

    outbox_event ──read──► RelaySender ──produce──► topic
          ▲                                           │
          └────────── mark as DONE ◄── acknowledged ──┘

A row is marked after its record is durable. A relay that is killed in between leaves rows that are sent once more: with
the same id, so a stream on Kafka drops them, and a consumer of a plain topic can. Nothing is lost, and the first
occurrences of the events of an aggregate are always in order: a relay sends a row only after all rows before it, and
another relay takes over only what was not marked.

The aggregates of a stream are dealt out to shards. Several relays share the shards of a stream by leases in the
database; only the holder of a shard marks its rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Final, TypeVar

from kingdom.base.backoff import backoff
from kingdom.bus.envelope import check_stream, check_worker
from kingdom.bus.errors import BusError, InvalidOption, StorageFull, TransportUnavailable
from kingdom.bus.eventbus import EventBus
from kingdom.bus.options import Seconds, check_count, positive_seconds
from kingdom.bus.relay_debezium import EventRouter
from kingdom.bus.relay_port import Outbox, OutboxRow, OutboxTransport, RelaySender, RelayTarget
from kingdom.bus.urls import redact_url
from kingdom.bus.worker import on_stop_signal, process_identity

log = logging.getLogger("kingdom.bus.relay")
_LANES: Final = 2  # batches under way at a time: one is written while the other is marked
_SHARE_SECONDS: Final = 3.0  # at most, before leases are renewed, and shards shared with relays that have come
_SHORT_OF_SHARDS_SECONDS: Final = 0.5  # before shards that others hold are asked for again
_HELD_SECONDS: Final = 1.0  # before a row that a worker holds, or that is parked, is looked at again
_FIRST_PAUSE_SECONDS: Final = 0.5  # before what failed is tried again
_MAX_PAUSE_SECONDS: Final = 30.0
# What a relay that is stopped waits for. A store that is away would be waited for far longer.
_SENDING_SECONDS: Final = 2.0  # batches under way, which would be sent again
_LOOKING_SECONDS: Final = 0.5  # a statement under way
_LEAVING_SECONDS: Final = (5.0, 1.0)  # giving up leases, which end by themselves: usually, and while the store is away
T = TypeVar("T")


class Relay:
    """Carries streams from one bus to another until it is stopped.

    ``source``: a bus in PostgreSQL. ``target``: a bus on Kafka. ``streams``: which; all, unless given. No worker may
    claim from them: the relay finishes their events. ``router``: write the records that Debezium's outbox event router
    would write, instead of those of the streams of ``target``. ``batch``: rows that are read, sent and marked at once.
    ``lease``: seconds after which the shards of a dead relay are taken over. ``poll``: seconds between looks when
    nothing wakes the relay. ``signals``: stop on SIGTERM and SIGINT (in the main thread).
    """

    def __init__(
        self,
        source: EventBus,
        target: EventBus,
        streams: Iterable[str] | None = None,
        *,
        router: EventRouter | None = None,
        name: str = "relay",
        batch: int = 1000,
        lease: Seconds = 30,
        poll: Seconds = 5,
        signals: bool = True,
    ) -> None:
        if not isinstance(source.transport, OutboxTransport):
            raise InvalidOption(f"a relay reads from postgresql://…, not from {redact_url(source.url)}")
        if not isinstance(target.transport, RelayTarget):
            raise InvalidOption(f"a relay writes to kafka://…, not to {redact_url(target.url)}")
        check_count("Relay", "batch", batch)
        self.relayed: dict[str, int] = {}  # events that this relay has carried, for each stream
        self._outbox = source.transport.outbox()
        self._target = target.transport
        self._streams = None if streams is None else [check_stream(stream) for stream in streams]
        self._router = router
        self._settings = _RelaySettings(
            holder=f"{process_identity(check_worker(name))}/{token_hex(4)}",
            batch=batch,
            lease=positive_seconds("Relay(lease)", lease),
            poll=positive_seconds("Relay(poll)", poll),
            stopping=asyncio.Event(),
        )
        self._stopping = self._settings.stopping
        self._signals = signals
        self._loop: asyncio.AbstractEventLoop | None = None

    def stop(self) -> None:
        """Make the relay finish its batches and return from :meth:`run`. Safe from any thread, and before ``run``.

        A batch that is not finished after two seconds, because a store is away, is sent again by the next relay.
        """
        if self._loop is None:
            self._stopping.set()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def run(self, *, once: bool = False) -> None:
        """Relay until cancelled, until :meth:`stop` is called or until SIGTERM arrives.

        With ``once``, return when nothing that can be relayed is left.
        """
        self._loop = asyncio.get_running_loop()
        undo_signals = on_stop_signal(self.stop) if self._signals else lambda: None
        new_stream = asyncio.Event()
        undo_wake = self._outbox.subscribe(None, new_stream.set)
        try:
            await _unless_stopped(self._stopping, self._outbox.prepare(), lambda: _LOOKING_SECONDS)
            async with asyncio.TaskGroup() as group:
                started: set[str] = set()
                while not self._stopping.is_set():
                    new_stream.clear()
                    wanted = await _unless_stopped(self._stopping, self._wanted(), lambda: _LOOKING_SECONDS)
                    for stream in [item for item in wanted or () if item not in started]:
                        started.add(stream)
                        group.create_task(self._relay(stream, once), name=f"relay-{stream}")
                    if once or self._streams is not None:
                        break
                    await _first_of(self._stopping, new_stream, timeout=self._settings.poll)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # one stream that cannot be relayed ends the others
        finally:
            undo_wake()
            undo_signals()
            self._loop = None

    async def _wanted(self) -> list[str]:
        if self._streams is not None:
            return self._streams
        try:
            return await self._outbox.streams()
        except TransportUnavailable as error:
            log.warning("streams cannot be read, trying again: %s", error)
            return []

    async def _relay(self, stream: str, once: bool) -> None:
        self.relayed.setdefault(stream, 0)
        opening = self._target.relay_sender(self._router)
        sender = await _unless_stopped(self._stopping, opening, lambda: _LOOKING_SECONDS)
        if sender is None:
            return
        try:
            await _StreamRelay(self._settings, self._outbox, sender, stream, self.relayed).run(once)
        finally:
            await sender.close()


@dataclass(frozen=True)
class _RelaySettings:
    """What the relays of all streams share."""

    holder: str  # the name under which leases are held
    batch: int
    lease: float
    poll: float
    stopping: asyncio.Event


class _HeldAggregates:
    """Aggregates that are held back for a while: one of their rows could not be sent."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    def hold(self, aggregate: str, seconds: float) -> None:
        self._until[aggregate] = time.monotonic() + seconds

    def tried(self, aggregates: set[str], failed: set[str]) -> None:
        """Hold back those that failed, longer each time."""
        self._failures = {item: count for item, count in self._failures.items() if item not in aggregates - failed}
        for aggregate in failed:
            failures = self._failures[aggregate] = self._failures.get(aggregate, -1) + 1
            self.hold(aggregate, backoff(failures, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, jitter=0.2))

    def now(self) -> list[str]:
        time_now = time.monotonic()
        self._until = {aggregate: until for aggregate, until in self._until.items() if until > time_now}
        return list(self._until)

    def next_end(self) -> float | None:
        """Return in how many seconds the first of them may be tried again."""
        return max(0.0, min(self._until.values()) - time.monotonic()) if self._until else None


class _StreamRelay:
    """Carries one stream."""

    def __init__(
        self, settings: _RelaySettings, outbox: Outbox, sender: RelaySender, stream: str, relayed: dict[str, int]
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._sender = sender
        self._stream = stream
        self._relayed = relayed
        self._shards: list[int] = []
        self._leased_at = 0.0  # by the monotonic clock, before the database was asked
        self._share_again_at = 0.0
        self._held = _HeldAggregates()
        self._reached: dict[tuple[int, ...], int] = {}  # for each lane, the row after which to read
        self._sending = 0  # batches that are under way
        self._woken = asyncio.Event()

    async def run(self, once: bool) -> None:
        unsubscribe = self._outbox.subscribe(self._stream, self._woken.set)
        failures, away, stopping = 0, False, self._settings.stopping
        try:
            while not stopping.is_set():
                self._woken.clear()
                try:
                    more = await _unless_stopped(stopping, self._pass(), self._patience)
                    away = more is None
                except (TransportUnavailable, StorageFull) as error:
                    if not failures:
                        log.warning("%s is not relayed for now: %s", self._stream, error)
                    pause = backoff(failures, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, jitter=0.2)
                    failures, away = failures + 1, True
                    await _first_of(stopping, timeout=pause)
                    continue
                if failures:
                    log.warning("%s is relayed again after %d failed tries", self._stream, failures)
                    failures = 0
                if not more:
                    if once:
                        return
                    await _first_of(stopping, self._woken, timeout=self._pause())
        finally:
            unsubscribe()
            with contextlib.suppress(BusError, TimeoutError):
                async with asyncio.timeout(_LEAVING_SECONDS[away]):
                    await self._outbox.leave(self._stream, self._settings.holder)

    def _patience(self) -> float:
        return _SENDING_SECONDS if self._sending else _LOOKING_SECONDS

    def _pause(self) -> float:
        ends = [self._settings.poll, self._share_again_at - time.monotonic()]
        if (held := self._held.next_end()) is not None:
            ends.append(held)
        return max(0.01, min(ends))

    async def _pass(self) -> bool:
        """Relay a batch in each lane; return whether there may be more."""
        if time.monotonic() >= self._share_again_at:
            await self._share()
        lanes = [lane for number in range(_LANES) if (lane := self._shards[number::_LANES])]
        results = await asyncio.gather(*(self._relay_batch(lane) for lane in lanes), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return any(results)

    async def _share(self) -> None:
        started = time.monotonic()
        shares = await self._outbox.share(self._stream, self._settings.holder, self._settings.lease)
        if shares.held != self._shards:
            log.info("%s: this relay holds %d shards of %d", self._stream, len(shares.held), shares.due)
        self._shards, self._leased_at = shares.held, started
        short = len(shares.held) < shares.due
        pause = _SHORT_OF_SHARDS_SECONDS if short else _SHARE_SECONDS
        self._share_again_at = started + min(self._settings.lease / 3, pause)

    async def _relay_batch(self, shards: Sequence[int]) -> bool:
        lane = tuple(shards)
        after = self._reached.get(lane, 0)
        rows = await self._outbox.read(
            self._stream, shards, limit=self._settings.batch, after=after, without=self._held.now()
        )
        # Rows of transactions that committed late, and of aggregates that were held back, lie before this mark: a batch
        # that is not full is followed by one from the start.
        full = len(rows) >= self._settings.batch
        self._reached[lane] = max((row.id for row in rows), default=0) if full else 0
        ready = self._ready(rows)
        if (
            time.monotonic() > self._leased_at + self._settings.lease / 2
        ):  # the answer took long: the shards may be lost soon
            self._share_again_at = 0.0
            return True
        if ready and not self._settings.stopping.is_set():
            self._sending += 1
            try:
                await self._send(shards, ready)
            finally:
                self._sending -= 1
        return bool(rows) or after > 0

    def _ready(self, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """Return the rows that can be sent: none after one that cannot, in the same aggregate."""
        stopped: set[str] = set()
        ready = []
        for row in rows:
            if row.held:
                stopped.add(row.aggregate)
                self._held.hold(row.aggregate, _HELD_SECONDS)
            elif row.aggregate not in stopped:
                ready.append(row)
        return ready

    async def _send(self, shards: Sequence[int], rows: Sequence[OutboxRow]) -> None:
        sent, failed = await self._sender.send(rows)
        holder = self._settings.holder
        if sent:
            marked = await self._outbox.mark(self._stream, holder, shards, sent)
            self._relayed[self._stream] += marked
            if marked < len(sent):
                log.warning("%s: %d events may be sent again: shards were lost", self._stream, len(sent) - marked)
                self._share_again_at = 0.0
        if failed:
            await self._outbox.fail(self._stream, holder, shards, failed)
        for row in rows:
            if row.id in failed:
                log.warning("event %s of %s was not relayed: %s", row.event_id, self._stream, failed[row.id])
        self._held.tried({row.aggregate for row in rows}, {row.aggregate for row in rows if row.id in failed})


async def _unless_stopped(stopping: asyncio.Event, work: Awaitable[T], patience: Callable[[], float]) -> T | None:
    """Return what ``work`` does; None if it is not done when it is stopped, and as many seconds later."""
    doing, stop = asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({doing, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            await asyncio.wait({doing}, timeout=patience())
        return await doing if doing.done() else None
    finally:
        stop.cancel()
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)


async def _first_of(*events: asyncio.Event, timeout: float) -> None:  # noqa: ASYNC109 - one wait for all
    """Wait until one of the events is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
