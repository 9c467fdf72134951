"""Writes rows of an outbox to topics, in order.

A producer of its own: one request at a time is under way for each broker, and after a record that cannot be written
none follows. So what is in a partition is always a beginning of what was sent to it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from kingdom.bus.envelope import PRIORITIES
from kingdom.bus.errors import BusError, InvalidEnvelope
from kingdom.bus.relay_debezium import EventRouter
from kingdom.bus.relay_port import OutboxRow, RelayOutcome, RelayRecord
from kingdom.bus.transports.kafka._clients import CLIENT_LOG, PRODUCER, KafkaClients
from kingdom.bus.transports.kafka._records import event_headers
from kingdom.bus.transports.kafka._routing import shard_of
from kingdom.bus.transports.kafka._topics import LEDGER_MAX_BYTES, topics_of

_SEND_SECONDS: Final = 10.0  # for one batch; a relay's lease is longer
_FLUSH_SECONDS: Final = 0.5  # between two looks whether the relay stops meanwhile
# Errors of records that were not tried, or may go next time.
_NOT_TRIED: Final = (
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._FATAL,
    KafkaError._GAPLESS_GUARANTEE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)


class KafkaRelaySender:
    """See :class:`kingdom.bus.relay_port.RelaySender`. ``create`` creates the topics of a stream, and returns
    how many shards it has.
    """

    def __init__(
        self, clients: KafkaClients, create: Callable[[str], Awaitable[int]], router: EventRouter | None
    ) -> None:
        self._clients = clients
        self._create = create
        self._router = router
        self._known: set[str] = set()  # topics of a router
        self._shards: dict[str, int] = {}  # of streams
        self._writing = asyncio.Lock()
        self._producer: Any = None
        self._closing = threading.Event()

    async def close(self) -> None:
        self._closing.set()
        self._producer = None

    async def send(self, rows: Sequence[OutboxRow]) -> RelayOutcome:
        if self._router is None:
            for stream in {row.stream for row in rows} - set(self._shards):
                self._shards[stream] = await self._create(stream)
        records, failed = self._records(rows)
        if self._router is not None:
            await self._have_topics(records)
        errors = await self._write(records)
        sent = [row.id for row, _ in records if row.id not in errors]
        suspects = {row.id: error for row, _ in records if (error := errors.get(row.id)) and _was_tried(error)}
        if len(suspects) > 1:  # records that went in one request share its error: find out whose it is
            first = {row.aggregate: (row, record) for row, record in reversed(records) if row.id in suspects}
            for row, record in first.values():
                alone = (await self._write([(row, record)])).get(row.id)
                if alone is None:
                    sent.append(row.id)
                elif _was_tried(alone):
                    failed[row.id] = self._clients.translated(alone, f"write to {record.topic}")
        else:
            failed |= {key: self._clients.translated(error, "write the record") for key, error in suspects.items()}
        if errors and not sent and not failed:
            raise self._clients.translated(next(iter(errors.values())), f"write to {records[0][1].topic}")
        return RelayOutcome(sent, failed)

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _records(self, rows: Sequence[OutboxRow]) -> tuple[list[tuple[OutboxRow, RelayRecord]], dict[int, BusError]]:
        """Return the records, without those of aggregates of which one cannot be made."""
        records: list[tuple[OutboxRow, RelayRecord]] = []
        failed: dict[int, BusError] = {}
        stopped: set[str] = set()
        for row in rows:
            if row.aggregate in stopped:
                continue
            try:
                record = self._of_stream(row) if self._router is None else self._router.record(row)
            except InvalidEnvelope as error:
                failed[row.id] = error
                stopped.add(row.aggregate)
            else:
                records.append((row, record))
        return records, failed

    def _of_stream(self, row: OutboxRow) -> RelayRecord:
        """Return the record that the bus on Kafka would have written for this event."""
        headers = event_headers(
            event_id=row.event_id,
            event_type=row.event_type,
            source=f"/kingdom/{row.stream}".encode(),
            aggregate_type=row.aggregate_type,
            aggregate_id=row.aggregate_id,
            priority=PRIORITIES[row.priority],
            not_before=row.not_before,
        )
        topic = topics_of(self._clients.settings.prefix, row.stream).data
        key = (row.aggregate_id or "").encode() or None
        shard = shard_of(row.event_id, row.aggregate_type, row.aggregate_id, self._shards[row.stream])
        return RelayRecord(topic, key, row.payload_json.encode(), [*headers], shard)

    async def _have_topics(self, records: Sequence[tuple[OutboxRow, RelayRecord]]) -> None:
        wanted = {record.topic for _, record in records} - self._known
        missing = wanted and wanted - await self._clients.topics()
        if missing:
            await self._clients.create_topics({topic: {} for topic in missing}, partitions=-1)
        self._known |= wanted

    # ── write ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _write(self, records: Sequence[tuple[OutboxRow, RelayRecord]]) -> dict[int, KafkaError]:
        """Write records; return the errors of those that were not written, or may not have been."""
        if not records:
            return {}
        async with self._writing:  # flush() waits for all records of a producer, whose callbacks any thread may run
            return await self._clients.in_thread(lambda: self._write_now(records))

    def _write_now(self, records: Sequence[tuple[OutboxRow, RelayRecord]]) -> dict[int, KafkaError]:
        producer = self._producer = self._producer or self._new_producer()
        deadline = time.monotonic() + _SEND_SECONDS
        unwritten = dict.fromkeys((row.id for row, _ in records), KafkaError(KafkaError._PURGE_QUEUE))
        stopped: set[str] = set()
        broken = False

        def delivered(key: int, error: KafkaError | None, message: Any) -> None:
            nonlocal broken
            if error is None:
                del unwritten[key]
            else:
                unwritten[key], broken = error, True

        for row, record in records:
            if row.aggregate in stopped:
                continue
            try:
                self._produce(producer, record, partial(delivered, row.id), deadline)
            except BufferError:  # the queue stayed full
                broken = True
                break
            except KafkaException as error:
                unwritten[row.id] = error.args[0]
                stopped.add(row.aggregate)
        if not self._flush(producer, max(0.1, deadline - time.monotonic())):
            producer.purge(in_queue=True, in_flight=True, blocking=True)
            self._flush(producer, 1.0)
            broken = True
        if broken:  # it writes nothing more; what it sent last may still arrive
            self._producer = None
        return unwritten

    def _flush(self, producer: Any, seconds: float) -> bool:
        """Wait until all records are written; return whether they are, or were refused one by one."""
        end = time.monotonic() + seconds
        try:
            while producer.flush(max(0.0, min(_FLUSH_SECONDS, end - time.monotonic()))):
                if self._closing.is_set() or time.monotonic() >= end:
                    return False
        except (KafkaException, SystemError):  # a fatal error; it is raised through a callback that has run
            return False
        return True

    @staticmethod
    def _produce(producer: Any, record: RelayRecord, delivered: Callable[..., None], deadline: float) -> None:
        place = {} if record.partition is None else {"partition": record.partition}
        while True:
            try:
                producer.produce(
                    record.topic, record.value, record.key, on_delivery=delivered, headers=record.headers, **place
                )
            except BufferError:
                if time.monotonic() > deadline:
                    raise
                producer.poll(0.05)
            else:
                return

    def _new_producer(self) -> Any:
        settings = self._clients.settings
        config = {
            **settings.client(),
            **PRODUCER,
            "max.in.flight.requests.per.connection": 1,
            "linger.ms": 5,
            "enable.gapless.guarantee": True,
            "partitioner": "murmur2_random",  # that of Java, which Debezium uses
            "message.timeout.ms": 300_000,  # longer than we wait: what is not written by then is purged
            "message.max.bytes": max(LEDGER_MAX_BYTES, settings.max_bytes + (1 << 16)),
        }
        return Producer(config, logger=CLIENT_LOG)


def _was_tried(error: KafkaError) -> bool:
    return error.code() not in _NOT_TRIED and not error.fatal()
