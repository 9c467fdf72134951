"""Reads topics of other programs as a member of a consumer group, and makes events of their records."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kingdom.bus.envelope import MAX_ID_BYTES, Envelope, check_event_id
from kingdom.bus.errors import BusError, InvalidEnvelope, InvalidName
from kingdom.bus.mirror import MirroredRecord, TopicRead
from kingdom.bus.transports.kafka._clients import CLIENT_LOG, KafkaClients, log
from kingdom.bus.transports.kafka._records import UNREADABLE, header_text, read_record

T = TypeVar("T")
SESSION_SECONDS = 10.0  # after which others take over from a dead mirror
_MAX_LABEL_CHARS: Final = 200  # of an aggregate's id
_TYPE_HEADERS: Final = ("type", "eventType")  # beside "id", as the router of Debezium is usually set up
# The partitions were reassigned: the process that has this one now reads the records again.
_LOST: Final = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._NO_OFFSET,
)
_WATCH_SECONDS: Final = 5.0  # without a record, after which it is found out whether the brokers are there
_PERMANENT: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


class GroupFollower:
    """See :class:`kingdom.bus.mirror.TopicFollower`. The consumer is used in one thread only."""

    def __init__(self, clients: KafkaClients, topics: Sequence[str], group: str, event_type: str | None) -> None:
        self._clients = clients
        self._event_type = event_type
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="kingdom-mirror")
        self._read: dict[tuple[str, int], int] = {}  # the offsets to commit
        self._ended: set[tuple[str, int]] = set()  # partitions that were read to their end
        self._topics = list(topics)
        self._group = group
        self._consumer: Any = None
        self._heard_at = time.monotonic()  # when the last record came
        self._watching: asyncio.Task[None] | None = None

    async def open(self) -> None:
        missing = set(self._topics) - await self._clients.topics()
        if missing:
            raise BusError(f"kafka: there is no topic {', '.join(sorted(missing))} at {self._clients.settings.servers}")
        await self._in_thread(self._subscribe)
        self._watching = asyncio.create_task(self._watch(), name="kingdom-mirror-watch")

    def _subscribe(self) -> None:
        config = {
            **self._clients.settings.client(),
            "group.id": self._group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "fetch.wait.max.ms": 100,
            "session.timeout.ms": round(SESSION_SECONDS * 1000),
            "heartbeat.interval.ms": round(SESSION_SECONDS * 300),
        }
        self._consumer = Consumer(config, logger=CLIENT_LOG)
        self._consumer.subscribe(self._topics)

    async def read(self, limit: int, seconds: float) -> TopicRead:
        return await self._in_thread(lambda: self._read_now(limit, seconds))

    def _read_now(self, limit: int, seconds: float) -> TopicRead:
        found: list[MirroredRecord] = []
        first = self._consumer.poll(seconds)
        if first is not None:
            self._heard_at = time.monotonic()
        for message in (
            [] if first is None else [first, *self._consumer.consume(limit - 1, 0)] if limit > 1 else [first]
        ):
            place = message.topic(), message.partition()
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._ended.add(place)
                elif error.code() in _PERMANENT:
                    raise self._clients.translated(error, f"read {', '.join(self._topics)}")
                else:
                    log.debug("while mirroring: %s", error.str())
                continue
            self._ended.discard(place)
            self._read[place] = message.offset() + 1
            found.append(MirroredRecord(event_of(message, self._event_type), *place, message.offset()))
        assigned = {(item.topic, item.partition) for item in self._consumer.assignment()}
        return TopicRead(found, bool(assigned) and assigned <= self._ended)

    async def _watch(self) -> None:
        """Log once when the brokers are away, and once when they are back.

        librdkafka connects again by itself: a poll says nothing of it, and a commit waits.
        """
        topics, away = ", ".join(self._topics), False
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            if not away and time.monotonic() - self._heard_at < _WATCH_SECONDS:
                continue
            try:
                await self._clients.topics()
            except BusError as error:
                if not away:
                    log.warning("%s is not mirrored until the brokers answer: %s", topics, error)
                away = True
            else:
                if away:
                    log.warning("%s is mirrored again", topics)
                away = False

    async def commit(self) -> None:
        await self._in_thread(self._commit)

    def _commit(self) -> None:
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in self._read.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
            self._read.clear()
        except KafkaException as error:
            code = error.args[0].code()
            if code in _LOST:
                self._read.clear()
            log.log(10 if code in _LOST else 30, "offsets were not committed: %s", error.args[0].str())

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._consumer is not None:
            await self._in_thread(self._consumer.close)
        self._executor.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except KafkaException as error:
            raise self._clients.translated(error.args[0], f"read {', '.join(self._topics)}") from None


# ── records ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def event_of(message: Any, event_type: str | None) -> Envelope:
    """Return the event that a record becomes, whatever it is."""
    text = read_record(message).text
    if text.type != UNREADABLE:
        try:
            envelope = text.envelope()
            return Envelope.from_dict(envelope.to_dict(), **_routing(envelope))  # now its fields are checked
        except (InvalidEnvelope, InvalidName):
            pass
    return _foreign(message, event_type)


def _routing(envelope: Envelope) -> dict[str, Any]:
    names = ("aggregate_type", "aggregate_id", "priority", "not_before")
    return {name: getattr(envelope, name) for name in names}


def _foreign(message: Any, event_type: str | None) -> Envelope:
    """Return the event of a record that is no event of ours: of Debezium's router, or of any program."""
    headers: dict[str, bytes] = {name: content or b"" for name, content in message.headers() or ()}
    value = _json_or_text(message.value())
    aggregate_id = _key(message.key())
    event_id = _event_id(header_text(headers.get("id")))
    if event_id is not None and isinstance(value, str):  # the router writes JSON as a string
        value = _json_or_text(value.encode())
    if isinstance(value, dict) and "eventId" in value and "occurredAt" in value:
        try:
            return Envelope.from_dict(value, aggregate_id=aggregate_id)
        except (InvalidEnvelope, InvalidName):
            pass
    kind = next((found for name in _TYPE_HEADERS if (found := header_text(headers.get(name)))), None)
    if isinstance(value, dict) and "specversion" in value and event_id is None:  # a CloudEvent in structured mode
        event_id, kind = _event_id(value.get("id")), value.get("type")
        value = value.get("data")
    fields: dict[str, Any] = {
        "payload": value if isinstance(value, dict) else {"value": value},
        "event_id": event_id or _place_id(message),
        "aggregate_id": aggregate_id,
        "occurred_at": datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC),
    }
    try:
        return Envelope(type=kind if isinstance(kind, str) else event_type or message.topic(), **fields)
    except InvalidEnvelope:  # its type
        return Envelope(type=event_type or message.topic()[:_MAX_LABEL_CHARS], **fields)


def _json_or_text(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _key(key: bytes | None) -> str | None:
    """Return the id of the aggregate: the key, as text. A key that is a JSON string counts without its quotes."""
    value = _json_or_text(key)
    if key is None or not key:
        return None
    text = value if isinstance(value, str) else key.decode(errors="replace")
    return text if 0 < len(text) <= _MAX_LABEL_CHARS else hashlib.sha256(key).hexdigest()


def _event_id(text: Any) -> str | None:
    try:
        return check_event_id(text)
    except InvalidName:
        return None


def _place_id(message: Any) -> str:
    place = f"{message.topic()}:{message.partition()}:{message.offset()}"
    return place if _event_id(place) else hashlib.sha256(place.encode()).hexdigest()[:MAX_ID_BYTES]
