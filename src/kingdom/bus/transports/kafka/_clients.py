"""The clients of librdkafka behind coroutines: producing, creating topics, reading ranges.

Nothing here knows what records mean. librdkafka reconnects by itself; what does not succeed within the timeout of the
bus is a ``TransportUnavailable``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from kingdom.bus.errors import BusError, InvalidEnvelope, StorageFull, TransportUnavailable
from kingdom.bus.transports.kafka._offsets import OffsetReader, Place, delete_before
from kingdom.bus.transports.kafka._settings import Settings
from kingdom.bus.transports.kafka._topics import LEDGER_MAX_BYTES

T = TypeVar("T")
log = logging.getLogger("kingdom.bus.kafka")


class _ClientLog:
    """The logger of librdkafka, which reports each failed attempt to connect; the bus says what failed for good."""

    def log(self, level: int, message: str, *values: object) -> None:
        log.debug(message, *values)


CLIENT_LOG: Final = _ClientLog()
PRODUCER: Final[dict[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 0,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 200_000,
}
CONSUMER: Final[dict[str, Any]] = {
    "group.id": "kingdom",  # required, and not used: nothing is committed
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 100,  # a topic that is added waits for the fetch under way
    "fetch.error.backoff.ms": 50,
    "queued.max.messages.kbytes": 16384,
}


_STALE_SECONDS: Final = 1.0  # of errors, after which the consumer that asks for offsets is replaced
_FORGOTTEN_SECONDS: Final = 600.0  # partitions forget producers that do not write, by default after a day


# The end of a topic, or an offset whose record was deleted.
_NO_MORE: Final = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class ProducedRecord(NamedTuple):
    """A record to be produced. For many, plain tuples of the same are quicker to make."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]] = []  # noqa: RUF012 - never changed


_Records = Sequence[tuple[bytes | None, bytes, list[tuple[str, bytes]]]]


class KafkaClients:
    """The producer and the administrative client of one bus, and a thread for calls that block."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._admin: Any = None
        self._producer: Any = None
        self._closing = threading.Event()
        self._executor = ThreadPoolExecutor(4, thread_name_prefix="kingdom-kafka")
        self._last_error: KafkaError | None = None
        self._known_there: dict[tuple[str, int], float] = {}  # when the producer last wrote to a partition
        self._beginning: dict[tuple[str, int], asyncio.Lock] = {}
        self._ranges = threading.Lock()  # a consumer serves one caller at a time
        self._range_consumer: Any = None
        self._offset_reader = OffsetReader(
            partial(self._new_consumer, {"isolation.level": "read_uncommitted"}), settings.timeout
        )

    async def open(self) -> set[str]:
        """Connect, or raise ``TransportUnavailable``; return the names of all topics."""
        try:
            self._admin = self._new_admin()
            self._producer = self._new_producer()
        except KafkaException as error:
            raise self.translated(error.args[0], "connect") from None
        threading.Thread(target=self._poll, name="kingdom-kafka-producer", daemon=True).start()
        return await self.topics()

    def _new_admin(self) -> Any:
        """Return a client for administration. Keep a reference while an answer is awaited: otherwise it never comes."""
        config: dict[str, Any] = {**self.settings.client(), "error_cb": self._noted}
        return AdminClient(config, logger=CLIENT_LOG)

    def _new_producer(self) -> Any:
        return Producer(
            {
                **self.settings.client(),
                **PRODUCER,
                "message.max.bytes": max(LEDGER_MAX_BYTES, self.settings.max_bytes + (1 << 16)),
                "message.timeout.ms": max(1000, int(self.settings.timeout * 1000)),
                "error_cb": self._noted,
            },
            logger=CLIENT_LOG,
        )

    def _new_consumer(self, more: Mapping[str, Any]) -> Any:
        return Consumer({**self.settings.client(), **CONSUMER, **more}, logger=CLIENT_LOG)

    async def close(self) -> None:
        """Close. What was produced was waited for, so the thread of the producer ends when it comes to it."""
        self._closing.set()
        await self._offset_reader.close()
        self._producer = self._admin = self._range_consumer = None
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _poll(self) -> None:
        while (producer := self._producer) is not None and not self._closing.is_set():
            producer.poll(0.1)

    def _noted(self, error: KafkaError) -> None:
        self._last_error = error

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run a call that blocks."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except KafkaException as error:
            raise self.translated(error.args[0], "reach the brokers") from None

    # ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────

    def translated(self, error: KafkaError, what: str) -> BusError:
        """Return the bus's error for one of librdkafka."""
        code = error.code()
        if code == KafkaError.KAFKA_STORAGE_ERROR:
            return StorageFull(f"kafka: could not {what}: {error.str()}; look at the disks of the brokers")
        if code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
            return InvalidEnvelope(f"kafka: could not {what}: {error.str()}; raise max.message.bytes of the topic")
        cause = ""
        if self._last_error is not None and self._last_error.str() != error.str():
            cause = f" ({self._last_error.str()})"
        return TransportUnavailable(
            f"kafka: could not {what} at {self.settings.servers} within {self.settings.timeout:g} s: "
            f"{error.str()}{cause}; check that the brokers run, and addresses and credentials"
        )

    def timed_out(self, what: str) -> TransportUnavailable:
        cause = "" if self._last_error is None else f": {self._last_error.str()}"
        return TransportUnavailable(
            f"kafka: could not {what} at {self.settings.servers} within {self.settings.timeout:g} s{cause}; "
            "check that the brokers run, and addresses and credentials"
        )

    # ── produce ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def produce(self, topic: str, records: _Records, timestamp: float | None, partition: int = 0) -> None:
        """Produce records in this order; return when all are acknowledged.

        A partition that knows nothing of a producer takes any of its requests for the first. If two are under way and
        the first has to be repeated (the leader is not ready), it would be taken for a repetition and dropped, and
        librdkafka told that all is well. So the first record of a producer goes alone.
        """
        producer = self._producer
        if producer is None:
            raise TransportUnavailable("kafka: the bus is closed")
        now, place = time.monotonic(), (topic, partition)
        if now - self._known_there.get(place, -_FORGOTTEN_SECONDS) >= _FORGOTTEN_SECONDS:
            async with self._beginning.setdefault(place, asyncio.Lock()):
                if now - self._known_there.get(place, -_FORGOTTEN_SECONDS) >= _FORGOTTEN_SECONDS:
                    await self._produce(producer, topic, records[:1], timestamp, partition)
                    self._known_there[place] = now
                    records = records[1:]
        if records:
            await self._produce(producer, topic, records, timestamp, partition)
        self._known_there[place] = now

    async def _produce(
        self, producer: Any, topic: str, records: _Records, timestamp: float | None, partition: int
    ) -> None:
        loop = asyncio.get_running_loop()
        acknowledged: asyncio.Future[None] = loop.create_future()
        left, failure = len(records), list[KafkaError]()

        def delivered(error: KafkaError | None, message: Any) -> None:  # in the producer's thread
            nonlocal left
            left -= 1
            if error is not None:
                failure.append(error)
            if not left:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(_resolve, acknowledged)

        at = 0 if timestamp is None else round(timestamp * 1000)  # 0: now
        produce = producer.produce
        for key, value, headers in records:
            while True:
                try:
                    produce(topic, value, key, partition, on_delivery=delivered, timestamp=at, headers=headers or None)
                    break
                except BufferError:  # the queue of the producer is full
                    await asyncio.sleep(0.005)
                except KafkaException as error:
                    raise self._failed(producer, error.args[0], topic) from None
        await acknowledged
        if failure:
            raise self._failed(producer, failure[0], topic)

    def _failed(self, producer: Any, error: KafkaError, topic: str) -> BusError:
        if (error.fatal() or error.code() == KafkaError._FATAL) and producer is self._producer:
            # An idempotent producer that cannot know what was written refuses all that follows.
            log.warning("the producer failed for good, starting another: %s", error.str())
            self._producer = self._new_producer()
            self._known_there.clear()
        return self.translated(error, f"write to {topic}")

    # ── ask ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def topics(self) -> set[str]:
        """Return the names of all topics."""
        return set((await self.cluster()).topics)

    async def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """Return which of these topics exist, and how many partitions each has."""
        admin, found, wanted = self._admin, dict[str, int](), TopicCollection(list(topics))
        for name, future in admin.describe_topics(wanted, request_timeout=self.settings.timeout).items():
            try:
                found[name] = len((await asyncio.wrap_future(future)).partitions)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self.translated(error.args[0], f"describe the topic {name}") from None
        return found

    async def until_known(self, topics: Sequence[str]) -> dict[str, int]:
        """Return what ``partition_counts`` does, once these topics are there: brokers learn of new ones by and by."""
        deadline = time.monotonic() + self.settings.timeout
        while True:
            known = await self.partition_counts(topics)
            if all(known.get(topic) for topic in topics):
                return known
            if time.monotonic() > deadline:
                raise self.timed_out(f"find the topic {topics[0]}")
            await asyncio.sleep(0.02)

    async def know(self, topics: Iterable[str]) -> None:
        """Have the producer learn where topics are; it would find out by itself, later."""

        def learn(topic: str) -> None:
            self._producer.list_topics(topic, timeout=self.settings.timeout)

        await asyncio.gather(*(self.in_thread(partial(learn, topic)) for topic in topics))

    async def end_offsets(self, places: Sequence[Place]) -> list[int]:
        """Return the offset that the next record of each partition will have."""
        return await self._offsets(self._offset_reader.end, places)

    async def first_offsets(self, places: Sequence[Place]) -> list[int]:
        """Return the first offset of each partition that was not deleted."""
        return await self._offsets(self._offset_reader.first, places)

    async def _offsets(
        self, ask: Callable[[Sequence[Place]], Awaitable[list[int]]], places: Sequence[Place]
    ) -> list[int]:
        started = time.monotonic()
        while True:
            if self._closing.is_set():
                raise TransportUnavailable("kafka: the bus is closed")
            try:
                return await ask(places)
            except KafkaException as error:
                elapsed = time.monotonic() - started
                if elapsed > self.settings.timeout:
                    raise self.translated(error.args[0], f"ask for offsets of {places[0][0]}") from None
                if elapsed > _STALE_SECONDS:
                    self._offset_reader.renew()
                await asyncio.sleep(0.1)

    # ── administer ────────────────────────────────────────────────────────────────────────────────────────────────

    async def create_topics(self, configs: dict[str, dict[str, str]], partitions: int = 1) -> list[str]:
        """Create topics that do not exist; return those that were created now."""
        replicas = self.settings.replication
        new = [
            NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=config)
            for name, config in configs.items()
        ]
        created: list[str] = []
        deadline = time.monotonic() + self.settings.timeout
        admin = self._admin
        while new:
            fenced: set[str] = set()
            for name, future in admin.create_topics(new, operation_timeout=self.settings.timeout).items():
                try:
                    await asyncio.wrap_future(future)
                    created.append(name)
                except KafkaException as error:
                    if _is_starting(error.args[0]) and time.monotonic() < deadline:
                        fenced.add(name)
                    elif error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise self.translated(error.args[0], f"create the topic {name}") from None
            new = [topic for topic in new if topic.topic in fenced]
            if new:
                await asyncio.sleep(0.1)
        return created

    async def delete_before(self, offsets: dict[str, int], partition: int) -> None:
        """Delete the records in a partition of topics before an offset each.

        A failure is logged: it is tried again next time.
        """
        try:
            await self.in_thread(lambda: delete_before(self._new_admin(), offsets, partition, self.settings.timeout))
        except BusError as error:
            log.warning("old records could not be deleted: %s", error)

    async def describe(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings of topics."""
        admin = self._admin
        futures = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in topics])
        found = {}
        for resource, future in futures.items():
            try:
                entries = await asyncio.wrap_future(future)
            except KafkaException as error:
                raise self.translated(error.args[0], f"describe the topic {resource.name}") from None
            found[resource.name] = {name: entry.value for name, entry in entries.items()}
        return found

    async def describe_broker(self, broker: int) -> dict[str, str] | None:
        """Return the settings of a broker, or None if they may not be read."""
        admin = self._admin
        [future] = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(broker))]).values()
        try:
            return {name: entry.value for name, entry in (await asyncio.wrap_future(future)).items()}
        except KafkaException as error:
            if error.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                return None
            raise self.translated(error.args[0], f"describe broker {broker}") from None

    async def rights(self, topics: Sequence[str]) -> tuple[set[str], dict[str, set[str]]]:
        """Return what this client may do with the cluster, and with each topic: names such as ``READ``."""
        admin = self._admin
        ask = {"include_authorized_operations": True, "request_timeout": self.settings.timeout}
        try:
            whole = await asyncio.wrap_future(admin.describe_cluster(**ask))
            futures = admin.describe_topics(TopicCollection(list(topics)), **ask) if topics else {}
            found = {name: await asyncio.wrap_future(future) for name, future in futures.items()}
        except KafkaException as error:
            raise self.translated(error.args[0], "ask for access rights") from None
        return _names(whole), {name: _names(topic) for name, topic in found.items()}

    async def groups(self, is_wanted: Callable[[str], bool]) -> list[Any]:
        """Return descriptions of the consumer groups whose names are wanted."""
        admin = self._admin
        try:
            listed = await asyncio.wrap_future(admin.list_consumer_groups(request_timeout=self.settings.timeout))
            names = [found.group_id for found in listed.valid if is_wanted(found.group_id)]
            futures = admin.describe_consumer_groups(names) if names else {}
            return [await asyncio.wrap_future(future) for future in futures.values()]
        except KafkaException as error:
            raise self.translated(error.args[0], "describe consumer groups") from None

    async def cluster(self) -> Any:
        """Return what the brokers say about themselves and all topics."""
        return await self.in_thread(lambda: self._admin.list_topics(timeout=self.settings.timeout))

    async def read_range(self, topic: str, first: int, end: int, limit: int, partition: int = 0) -> list[Any]:
        """Read up to ``limit`` messages with offsets from ``first`` to ``end``."""
        return await self.in_thread(lambda: self._read_range(topic, first, end, limit, partition))

    def _read_range(self, topic: str, first: int, end: int, limit: int, partition: int) -> list[Any]:
        with self._ranges:
            if self._range_consumer is None:
                self._range_consumer = self._new_consumer({"fetch.wait.max.ms": 10})
            consumer = self._range_consumer
            consumer.assign([TopicPartition(topic, partition, first)])
            try:
                return self._read_assigned(consumer, topic, end, limit)
            finally:
                consumer.unassign()

    def _read_assigned(self, consumer: Any, topic: str, end: int, limit: int) -> list[Any]:
        found: list[Any] = []
        deadline = time.monotonic() + self.settings.timeout
        while len(found) < limit:
            message = consumer.poll(1.0)
            if time.monotonic() > deadline:
                raise self.timed_out(f"read {topic}")
            if message is None:
                continue
            if error := message.error():
                if error.code() in _NO_MORE:
                    break
                continue
            if message.offset() >= end:
                break
            found.append(message)
            if message.offset() == end - 1:
                break
        return found


def _names(described: Any) -> set[str]:
    return {operation.name for operation in described.authorized_operations or ()}


def _is_starting(error: KafkaError) -> bool:
    """Return whether brokers have only just started. The same code says that there are too few for the replicas."""
    return error.code() == KafkaError.INVALID_REPLICATION_FACTOR and "fenced" in error.str()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
