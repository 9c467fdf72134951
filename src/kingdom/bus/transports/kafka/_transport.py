"""The Kafka transport: opens streams on demand, and turns calls into operations of their ledgers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from concurrent.futures import Future as ConcurrentFuture
from functools import partial
from itertools import islice
from typing import Any, Final
from uuid import uuid4

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
from kingdom.bus.errors import BusError, InvalidEnvelope, NotSetUp, SchemaTooNew, TransactionMismatch
from kingdom.bus.mirror import TopicFollower
from kingdom.bus.relay_debezium import EventRouter
from kingdom.bus.relay_port import RelaySender
from kingdom.bus.stream_entry import utc_datetime
from kingdom.bus.transport import TransportOptions
from kingdom.bus.transports.kafka import _operations as operations
from kingdom.bus.transports.kafka._clients import KafkaClients, ProducedRecord, log
from kingdom.bus.transports.kafka._doctor import examine
from kingdom.bus.transports.kafka._operations import ClaimedEvent
from kingdom.bus.transports.kafka._reader import TopicReader
from kingdom.bus.transports.kafka._records import EventText, headers_of, key_of
from kingdom.bus.transports.kafka._settings import Settings
from kingdom.bus.transports.kafka._shard import Shard
from kingdom.bus.transports.kafka._topics import (
    SCHEMA,
    marker_topic,
    streams_in,
    topic_settings,
    topics_of,
    versions_in,
)

_INVALID: Final = "INVALID_ENVELOPE"


class _FirstPublications:
    """Events that are being published for the first time, in any thread of this process.

    Such a publish does not ask which ids were accepted. A second one of the same event must not overtake it.
    """

    def __init__(self) -> None:
        self._running: dict[str, ConcurrentFuture[None]] = {}

    @contextlib.contextmanager
    def of(self, ids: Sequence[str]) -> Iterator[None]:
        done: ConcurrentFuture[None] = ConcurrentFuture()
        self._running.update(dict.fromkeys(ids, done))
        try:
            yield
        finally:
            for event_id in ids:
                self._running.pop(event_id, None)
            done.set_result(None)

    async def ended(self, ids: Sequence[str]) -> None:
        for running in {self._running[event_id] for event_id in ids if event_id in self._running}:
            await asyncio.wrap_future(running)


_first_publications: Final = _FirstPublications()


class KafkaTransport:
    """See :class:`kingdom.bus.transport.Transport`."""

    def __init__(self, settings: Settings, options: TransportOptions) -> None:
        self._settings = settings
        self._clock = options.clock or time.time
        self._own_clock = options.clock is not None
        self._clients = KafkaClients(settings)
        self._reader = TopicReader(settings)
        self._shards: dict[str, asyncio.Task[Shard]] = {}
        self._created: set[str] = set()  # streams whose topics exist
        self._ready = False  # the bus was set up
        self._tasks: set[asyncio.Task[Any]] = set()

    # ── life cycle ────────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Connect, and refuse topics that a newer version has set up."""
        self._reader.open()
        self._check_version(await self._clients.open())

    async def close(self) -> None:
        opening = list(self._shards.values())
        self._shards.clear()
        for task in [*opening, *self._tasks]:
            if not task.done():
                task.cancel()
        for task in opening:
            with contextlib.suppress(BusError, asyncio.CancelledError):
                await (await task).close()
        await self._reader.close()
        self._clients.close()

    async def setup(self) -> list[str]:
        """Create the topic that marks the version. Those of a stream are created when it is first used."""
        if not self._ready:
            self._check_version(await self._clients.topics())
        created = [] if self._ready else await self._clients.create_topics({marker_topic(self._settings.prefix): {}})
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

    async def _create(self, stream: str) -> None:
        """Create the topics of a stream, unless they exist."""
        await self._check_ready()
        if stream in self._created:
            return
        topics = topics_of(self._settings.prefix, stream)
        await self._clients.create_topics(
            {
                topics.data: topic_settings(self._settings, ledger=False, own_clock=self._own_clock),
                topics.ledger: topic_settings(self._settings, ledger=True, own_clock=self._own_clock),
                topics.snapshot: topic_settings(self._settings, ledger=True, own_clock=self._own_clock),
            }
        )
        await self._clients.know([topics.data, topics.ledger])
        self._created.add(stream)

    async def _shard(self, stream: str) -> Shard:
        """Return the shard of a stream, opened."""
        task = self._shards.get(stream)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._shards[stream] = asyncio.create_task(self._open_shard(stream))
        return await asyncio.shield(task)

    async def _open_shard(self, stream: str) -> Shard:
        await self._create(stream)
        topics = topics_of(self._settings.prefix, stream)
        shard = Shard(self._clients, self._reader, topics, self._clock, self._own_clock)
        await shard.open()
        return shard

    async def _existing(self, stream: str | None = None) -> dict[str, Shard]:
        """Return the shards of all streams, or of one if it exists, as they are at this moment."""
        await self._check_ready()
        if stream is not None and stream in self._shards:
            names = [stream]
        else:
            known = streams_in(self._settings.prefix, await self._clients.topics())
            names = [name for name in known if stream in (None, name)]
        shards = await asyncio.gather(*(self._shard(name) for name in names))
        return dict(zip(names, shards, strict=True))

    async def _observed(self, stream: str | None = None) -> dict[str, tuple[Shard, float]]:
        """Return shards, with all that was written before this call, and the time by their clock."""
        shards = await self._existing(stream)
        times = await asyncio.gather(*(shard.observe() for shard in shards.values()))
        return {name: (shard, now) for (name, shard), now in zip(shards.items(), times, strict=True)}

    async def declare(self, stream: str, options: StreamOptions) -> None:
        await (await self._shard(stream)).submit(operations.declare(options))

    # ── publish ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(self, stream: str, envelopes: Sequence[Envelope], tx: Any | None) -> list[str]:
        if tx is not None:
            raise TransactionMismatch(
                "tx= was given, but Kafka cannot join a transaction of a database: publish with tx= to a bus in that "
                "database, and let a relay carry it to Kafka (kingdom bus relay --from postgresql://…)"
            )
        texts = [envelope.to_json(self._settings.max_bytes).encode() for envelope in envelopes]
        fresh = all(envelope.own_id for envelope in envelopes)  # then no stream has these ids
        for envelope in envelopes:
            envelope.mark_stored()  # before anything is awaited: another publish of the same event is not the first
        batch = None if fresh and len(envelopes) == 1 else uuid4().hex
        mark = None if batch is None else f"{batch} {len(envelopes)}".encode()
        source = f"/kingdom/{stream}".encode()
        records = [
            ProducedRecord(key_of(envelope), text, headers_of(envelope, source, mark))
            for envelope, text in zip(envelopes, texts, strict=True)
        ]
        ids = [envelope.event_id for envelope in envelopes]
        topic = topics_of(self._settings.prefix, stream).data
        if fresh:
            with _first_publications.of(ids):
                await self._create(stream)
                await self._clients.produce(topic, records, self._timestamp())
            return ids
        assert batch is not None
        await _first_publications.ended(ids)
        shard = await self._shard(stream)
        return await shard.published(batch, partial(self._clients.produce, topic, records, self._timestamp()))

    def _timestamp(self) -> float | None:
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
        shard = await self._shard(stream)
        await shard.catch_up()
        if not shard.has_claimable():
            return []
        token = new_event_id()
        operation = operations.claim(token, worker, limit, lease, types, ids, max_attempts)
        claimed: list[ClaimedEvent] = await shard.submit(operation)
        return await self._deliver(stream, shard, worker, token, claimed)

    async def recall(self, stream: str, *, worker: str, lease: float) -> list[Delivery]:
        shard = await self._shard(stream)
        await shard.catch_up()
        token = new_event_id()
        claimed = await shard.submit({"op": "recall", "worker": worker, "token": token, "lease": lease})
        return await self._deliver(stream, shard, worker, token, claimed)

    async def _deliver(
        self, stream: str, shard: Shard, worker: str, token: str, claimed: list[ClaimedEvent]
    ) -> list[Delivery]:
        texts = await shard.texts([event.offset for event in claimed])
        found, unreadable = [], []
        for event in claimed:
            try:
                envelope = _readable(event, texts)
            except InvalidEnvelope as error:  # of another program: it must not block the rest
                lost = Envelope.unreadable(event.event_id, "unreadable", "")
                unreadable.append(
                    DeadVerdict(Delivery(stream, lost, event.attempt, token, worker), _INVALID, str(error))
                )
            else:
                found.append(Delivery(stream, envelope, event.attempt, token, worker))
        if unreadable:
            await shard.submit(operations.settle((), (), unreadable, self._settings.remember))
        return found

    async def settle(
        self, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]
    ) -> list[Delivery]:
        streams = dict.fromkeys(item.delivery.stream for verdicts in (done, retry, dead) for item in verdicts)
        lost = []
        for stream in streams:
            shard = await self._shard(stream)
            good = [item for item in done if item.delivery.stream == stream]
            for verdict in good:
                if verdict.outcome is not None:
                    (shard.state.options or StreamOptions()).check_outcome(stream, verdict.outcome)
            again = [item for item in retry if item.delivery.stream == stream]
            ended = [item for item in dead if item.delivery.stream == stream]
            refused = await shard.submit(operations.settle(good, again, ended, self._settings.remember))
            if refused:
                deliveries = [item.delivery for verdicts in (good, again, ended) for item in verdicts]
                lost += _of(deliveries, refused)
        return lost

    async def extend(self, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
        return await self._on_held(deliveries, lambda held: operations.extend(held, lease))

    async def release(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        return await self._on_held(deliveries, operations.release)

    async def _on_held(
        self, deliveries: Sequence[Delivery], operation: Callable[[list[Delivery]], dict[str, Any]]
    ) -> list[Delivery]:
        lost = []
        for stream in dict.fromkeys(delivery.stream for delivery in deliveries):
            theirs = [delivery for delivery in deliveries if delivery.stream == stream]
            lost += _of(theirs, await (await self._shard(stream)).submit(operation(theirs)))
        return lost

    # ── look ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def peek(self, stream: str, limit: int, types: Sequence[str] | None, skip: Container[str]) -> list[Record]:
        for shard, now in (await self._observed(stream)).values():
            unknown = (entry for entry in shard.state.machine.line(now, types) if entry.event_id not in skip)
            entries = list(islice(unknown, limit))
            envelopes = await self._envelopes(shard, [entry.seq for entry in entries])
            return [entry.record(stream, envelopes[entry.seq]) for entry in entries if entry.seq in envelopes]
        return []

    async def _envelopes(self, shard: Shard, offsets: list[int]) -> dict[int, Envelope]:
        return {offset: text.shown() for offset, text in (await shard.texts(offsets)).items()}

    async def depth(self) -> dict[str, Depth]:
        return {
            name: shard.state.machine.depth(now)
            for name, (shard, now) in (await self._observed()).items()
            if shard.state.options or len(shard.state.machine)
        }

    async def pending_types(self, stream: str) -> dict[str, int]:
        for shard, now in (await self._observed(stream)).values():
            return shard.state.machine.pending_types(now)
        return {}

    async def dead(self, stream: str, limit: int) -> list[DeadLetter]:
        for shard, _ in (await self._observed(stream)).values():
            letters = [
                (entry.seq, entry.event_id, entry.attempts, entry.error_code, entry.error_message, entry.ended_at or 0)
                for entry in shard.state.machine.dead(limit)
            ]
            envelopes = await self._envelopes(shard, [letter[0] for letter in letters])
            return [
                DeadLetter(event_id, envelopes[offset], attempts, code, message, utc_datetime(ended_at))
                for offset, event_id, attempts, code, message, ended_at in letters
                if offset in envelopes
            ]
        return []

    async def find(self, event_id: str) -> Record | None:
        for name, (shard, _) in (await self._observed()).items():
            entry, done = shard.state.machine.get(event_id), shard.state.done.get(event_id)
            if entry is not None or done is not None:
                offset = entry.seq if entry is not None else done.offset if done is not None else 0
                envelopes = await self._envelopes(shard, [offset])
                envelope = envelopes.get(offset) or Envelope.unreadable(event_id, "unreadable", "")
                if entry is not None:
                    return entry.record(name, envelope)
                assert done is not None
                return done.record(name, envelope)
        return None

    # ── operate ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def requeue(
        self, stream: str, ids: Sequence[str] | None, *, event_type: str | None, error_code: str | None
    ) -> int:
        moved = 0
        wanted = None if ids is None else list(ids)
        for shard in (await self._existing(stream)).values():
            await shard.catch_up()
            moved += await shard.submit({"op": "requeue", "ids": wanted, "type": event_type, "code": error_code})
        return moved

    async def purge(self, older_than: float, *, stream: str | None, dead: bool, keep: Collection[str]) -> int:
        purged = 0
        for shard in (await self._existing(stream)).values():
            await shard.catch_up()
            purged += await shard.submit({"op": "purge", "older": older_than, "dead": dead, "keep": sorted(keep)})
        return purged

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
        opened = {name: task for name, task in self._shards.items() if task.done() and not task.cancelled()}
        shards = {name: task.result() for name, task in opened.items() if task.exception() is None}
        return await examine(self._clients, self._own_clock, shards)

    def subscribe(self, stream: str, wake: Callable[[], None]) -> Callable[[], None]:
        async def add() -> None:
            try:
                (await self._shard(stream)).wakers.append(wake)
            except BusError as error:  # the worker's own claims fail too, and say so
                log.debug("no wake-ups for %s: %s", stream, error)

        task = asyncio.create_task(add())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def undo() -> None:
            task.cancel()
            opened = self._shards.get(stream)
            if opened is not None and opened.done() and not opened.cancelled() and not opened.exception():
                with contextlib.suppress(ValueError):
                    opened.result().wakers.remove(wake)

        return undo


def _readable(event: ClaimedEvent, texts: dict[int, EventText]) -> Envelope:
    if event.offset not in texts:
        raise InvalidEnvelope(f"record {event.offset} of event {event.event_id} was deleted from its topic")
    return texts[event.offset].envelope()


def _of(deliveries: Sequence[Delivery], lost: set[tuple[str, str]]) -> list[Delivery]:
    return [delivery for delivery in deliveries if (delivery.event_id, delivery.token) in lost]
