"""The Kafka transport: opens streams on demand, and turns calls into operations of their ledgers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Container, Coroutine, Iterable, Sequence
from typing import Any, Final

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
from kingdom.bus.errors import BusError, InvalidEnvelope, NotSetUp, SchemaTooNew, TransactionMismatch
from kingdom.bus.mirror import TopicFollower
from kingdom.bus.relay_debezium import EventRouter
from kingdom.bus.relay_port import RelaySender
from kingdom.bus.transport import TransportOptions
from kingdom.bus.transports.kafka import _inspection as inspection
from kingdom.bus.transports.kafka import _operations as operations
from kingdom.bus.transports.kafka._clients import KafkaClients, log
from kingdom.bus.transports.kafka._doctor import examine
from kingdom.bus.transports.kafka._operations import ClaimedEvent
from kingdom.bus.transports.kafka._publishing import Publisher
from kingdom.bus.transports.kafka._reader import TopicReader
from kingdom.bus.transports.kafka._records import EventText
from kingdom.bus.transports.kafka._settings import Settings
from kingdom.bus.transports.kafka._shard import Shard
from kingdom.bus.transports.kafka._stream import ClaimedInShard, KafkaStream, ObservedShard, create_topics
from kingdom.bus.transports.kafka._topics import SCHEMA, marker_topic, streams_in, topics_of, versions_in

_SWEEP_SECONDS: Final = 5.0  # between looks for shards that are not used
_INVALID: Final = "INVALID_ENVELOPE"


class KafkaTransport:
    """See :class:`kingdom.bus.transport.Transport`."""

    def __init__(self, settings: Settings, options: TransportOptions) -> None:
        self._settings = settings
        self._clock = options.clock or time.time
        self._own_clock = options.clock is not None
        self._clients = KafkaClients(settings)
        self._reader = TopicReader(settings)
        self._streams: dict[str, KafkaStream] = {}
        self._created: dict[str, int] = {}  # streams whose topics exist, and how many shards each has
        self._publisher = Publisher(self._clients, self._create, self._stream, self._timestamp)
        self._sweeping: asyncio.Task[None] | None = None
        self._ready = False  # the bus was set up
        self._subscribing: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def shards(self) -> int:
        """How many shards a stream gets when it is created."""
        return self._settings.shards

    # ── life cycle ────────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Connect, and refuse topics that a newer version has set up."""
        self._reader.open()
        self._check_version(await self._clients.open())

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        for task in self._subscribing:
            task.cancel()
        if self._leaving:
            await asyncio.wait(self._leaving)
        streams = list(self._streams.values())
        self._streams.clear()
        await asyncio.gather(*(stream.close() for stream in streams))
        await self._reader.close()
        await self._clients.close()

    async def setup(self) -> list[str]:
        """Create the topic that marks the version. Those of a stream are created when it is first used."""
        if not self._ready:
            self._check_version(await self._clients.topics())
        if self._ready:
            return []
        marker = marker_topic(self._settings.prefix)
        created = await self._clients.create_topics({marker: {}})
        await self._clients.until_known([marker])
        self._ready = True
        return ["001_topics"] if created else []

    def _check_version(self, topics: set[str]) -> None:
        versions = versions_in(self._settings.prefix, topics)
        if versions and max(versions) > SCHEMA:
            raise SchemaTooNew(
                f"kafka: the topics {self._settings.prefix}… at {self._settings.servers} were set up by a newer "
                f"version of kingdom (schema {max(versions)}, known is {SCHEMA}): upgrade this process"
            )
        self._ready = bool(versions)

    async def _check_ready(self) -> None:
        if not self._ready:
            self._check_version(await self._clients.topics())
        if not self._ready:
            raise NotSetUp(
                f"kafka: {self._settings.servers} has no topics with the prefix {self._settings.prefix!r}: "
                "await bus.setup() first"
            )

    # ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _create(self, stream: str) -> int:
        """Create the topics of a stream, unless they exist; return how many shards it has."""
        await self._check_ready()
        if stream not in self._created:
            topics = topics_of(self._settings.prefix, stream)
            self._created[stream] = await create_topics(self._clients, topics, own_clock=self._own_clock)
        return self._created[stream]

    async def _stream(self, name: str) -> KafkaStream:
        count = await self._create(name)
        stream = self._streams.get(name)
        if stream is None:
            topics = topics_of(self._settings.prefix, name)
            stream = KafkaStream(self._clients, self._reader, topics, count, self._clock, self._own_clock)
            self._streams[name] = stream
            if count > 1 and self._sweeping is None:
                self._sweeping = asyncio.create_task(self._close_unused_shards())
        return stream

    async def _close_unused_shards(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for stream in list(self._streams.values()):
                await stream.close_unused()

    async def _existing(self, stream: str | None = None) -> dict[str, KafkaStream]:
        """Return all streams, or one if it exists."""
        await self._check_ready()
        if stream is not None and stream in self._streams:
            names = [stream]
        else:
            known = streams_in(self._settings.prefix, await self._clients.topics())
            names = [name for name in known if stream in (None, name)]
        return {name: await self._stream(name) for name in names}

    async def _observed(self, stream: str | None = None) -> dict[str, list[ObservedShard]]:
        """Return the shards of streams, with all that was written before this call, and the time by their clocks."""
        streams = await self._existing(stream)
        found = await asyncio.gather(*(one.observed() for one in streams.values()))
        return dict(zip(streams, found, strict=True))

    async def declare(self, stream: str, options: StreamOptions) -> None:
        await (await self._stream(stream)).submit_to_all(operations.declare(options))

    # ── publish ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(self, stream: str, envelopes: Sequence[Envelope], tx: Any | None) -> list[str]:
        if tx is not None:
            raise TransactionMismatch(
                "tx= was given, but Kafka cannot join a transaction of a database: publish with tx= to a bus in that "
                "database, and let a relay carry it to Kafka (kingdom bus relay --from postgresql://…)"
            )
        return await self._publisher.publish(stream, envelopes)

    def _timestamp(self) -> float | None:
        """Return the time that records carry; None if the broker sets it."""
        return self._clock() if self._own_clock else None

    # ── consume ───────────────────────────────────────────────────────────────────────────────────────────────────

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
        found = await self._stream(stream)

        def make(token: str, share: int) -> dict[str, Any]:
            return operations.claim(token, worker, share, lease, types, ids, max_attempts)

        return await self._deliver(stream, worker, await found.claim(make, worker, limit, types, ids))

    async def recall(self, stream: str, *, worker: str, lease: float) -> list[Delivery]:
        found = await self._stream(stream)

        def make(token: str) -> dict[str, Any]:
            return {"op": "recall", "worker": worker, "token": token, "lease": lease}

        return await self._deliver(stream, worker, await found.recall(make))

    async def _deliver(self, stream: str, worker: str, claimed: Sequence[ClaimedInShard]) -> list[Delivery]:
        offsets: dict[Shard, list[int]] = {}
        for shard, _, event in claimed:
            offsets.setdefault(shard, []).append(event.offset)
        texts = dict(
            zip(offsets, await asyncio.gather(*(shard.texts(some) for shard, some in offsets.items())), strict=True)
        )
        found: list[Delivery] = []
        unreadable: dict[Shard, list[DeadVerdict]] = {}
        for shard, token, event in claimed:
            try:
                envelope = _readable(event, texts[shard])
            except InvalidEnvelope as error:  # of another program: it must not block the rest
                lost = Envelope.unreadable(event.event_id, "unreadable", "")
                delivery = Delivery(stream, lost, event.attempt, token, worker)
                unreadable.setdefault(shard, []).append(DeadVerdict(delivery, _INVALID, str(error)))
            else:
                found.append(Delivery(stream, envelope, event.attempt, token, worker))
        for shard, letters in unreadable.items():
            await shard.submit(operations.settle((), (), letters, self._settings.remember))
        return found

    async def settle(
        self, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]
    ) -> list[Delivery]:
        deliveries = [item.delivery for verdicts in (done, retry, dead) for item in verdicts]
        parts = await self._parts(deliveries)
        for verdict in done:
            if verdict.outcome is not None:
                [shard] = [shard for shard, theirs in parts.items() if verdict.delivery in theirs]
                (shard.state.options or StreamOptions()).check_outcome(verdict.delivery.stream, verdict.outcome)

        async def settle_in(shard: Shard, theirs: dict[Delivery, None]) -> list[Delivery]:
            verdicts: tuple[Sequence[DoneVerdict], Sequence[RetryVerdict], Sequence[DeadVerdict]] = done, retry, dead
            if len(parts) > 1:
                verdicts = (
                    [item for item in done if item.delivery in theirs],
                    [item for item in retry if item.delivery in theirs],
                    [item for item in dead if item.delivery in theirs],
                )
            return _of(theirs, await shard.submit(operations.settle(*verdicts, self._settings.remember)))

        return await _lost(deliveries, (settle_in(shard, theirs) for shard, theirs in parts.items()))

    async def extend(self, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
        return await self._on_held(deliveries, lambda held: operations.extend(held, lease))

    async def release(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        return await self._on_held(deliveries, operations.release)

    async def _on_held(
        self, deliveries: Sequence[Delivery], operation: Callable[[Iterable[Delivery]], dict[str, Any]]
    ) -> list[Delivery]:
        async def act_in(shard: Shard, theirs: dict[Delivery, None]) -> list[Delivery]:
            return _of(theirs, await shard.submit(operation(theirs)))

        parts = await self._parts(deliveries)
        return await _lost(deliveries, (act_in(shard, theirs) for shard, theirs in parts.items()))

    async def _parts(self, deliveries: Iterable[Delivery]) -> dict[Shard, dict[Delivery, None]]:
        """Return deliveries by the shard that they were claimed in."""
        shards: dict[tuple[str, str], Shard] = {}  # many events have one token
        parts: dict[Shard, dict[Delivery, None]] = {}
        for delivery in deliveries:
            claim = delivery.stream, delivery.token
            if (shard := shards.get(claim)) is None:
                stream = await self._stream(delivery.stream)
                shard = shards[claim] = await stream.shard(stream.shard_of_token(delivery.token))
            parts.setdefault(shard, {})[delivery] = None
        return parts

    # ── look ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def peek(self, stream: str, limit: int, types: Sequence[str] | None, skip: Container[str]) -> list[Record]:
        return await inspection.peek(stream, await self._shards_of(stream), limit, types, skip)

    async def depth(self) -> dict[str, Depth]:
        found = {name: inspection.depth(shards) for name, shards in (await self._observed()).items()}
        return {name: depth for name, depth in found.items() if depth is not None}

    async def pending_types(self, stream: str) -> dict[str, int]:
        return inspection.pending_types(await self._shards_of(stream))

    async def dead(self, stream: str, limit: int) -> list[DeadLetter]:
        return await inspection.dead(await self._shards_of(stream), limit)

    async def find(self, event_id: str) -> Record | None:
        for name, shards in (await self._observed()).items():
            if record := await inspection.find(name, shards, event_id):
                return record
        return None

    async def _shards_of(self, stream: str) -> list[ObservedShard]:
        return (await self._observed(stream)).get(stream, [])

    # ── operate ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def requeue(
        self, stream: str, ids: Sequence[str] | None, *, event_type: str | None, error_code: str | None
    ) -> int:
        wanted = None if ids is None else list(ids)
        operation = {"op": "requeue", "ids": wanted, "type": event_type, "code": error_code}
        return sum([sum(await one.submit_to_all(operation)) for one in (await self._existing(stream)).values()])

    async def purge(
        self, older_than: float, *, stream: str | None, dead: bool, keep: Collection[str], only: Collection[str] | None
    ) -> int:
        operation = {"op": "purge", "older": older_than, "dead": dead, "keep": sorted(keep)}
        if only is not None:
            operation["only"] = sorted(only)
        return sum([sum(await one.submit_to_all(operation)) for one in (await self._existing(stream)).values()])

    async def relay_sender(self, router: EventRouter | None) -> RelaySender:
        """Return what a relay writes with (:mod:`kingdom.bus.relay`)."""
        from kingdom.bus.transports.kafka._relay import KafkaRelaySender

        if router is None:
            await self._check_ready()
        return KafkaRelaySender(self._clients, self._create, router)

    async def follow(self, topics: Sequence[str], group: str, event_type: str | None) -> TopicFollower:
        """Return what a mirror reads with (:mod:`kingdom.bus.mirror`)."""
        from kingdom.bus.transports.kafka._mirror import GroupFollower

        follower = GroupFollower(self._clients, topics, group, event_type)
        await follower.open()
        return follower

    async def doctor(self) -> list[Check]:
        return await examine(self._clients, self._own_clock, self._streams)

    def subscribe(
        self, stream: str, wake: Callable[[], None], types: Collection[str] | None = None
    ) -> Callable[[], None]:
        async def add() -> None:
            try:
                found = await self._stream(stream)
                await found.subscribe(wake)
            except BusError as error:  # the worker's own claims fail too, and say so
                log.debug("no wake-ups for %s: %s", stream, error)

        adding = _start(add(), self._subscribing)

        def undo() -> None:
            adding.cancel()
            if stream in self._streams:
                _start(self._streams[stream].unsubscribe(wake), self._leaving)

        return undo


def _start(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


def _readable(event: ClaimedEvent, texts: dict[int, EventText]) -> Envelope:
    if event.offset not in texts:
        raise InvalidEnvelope(f"record {event.offset} of event {event.event_id} was deleted from its topic")
    return texts[event.offset].envelope()


async def _lost(deliveries: Iterable[Delivery], calls: Iterable[Coroutine[Any, Any, list[Delivery]]]) -> list[Delivery]:
    """Return the deliveries that the calls name as lost, in their own order."""
    lost = {delivery for some in await asyncio.gather(*calls) for delivery in some}
    return [delivery for delivery in deliveries if delivery in lost] if lost else []


def _of(deliveries: Iterable[Delivery], lost: set[tuple[str, str]]) -> list[Delivery]:
    return [delivery for delivery in deliveries if (delivery.event_id, delivery.token) in lost] if lost else []
