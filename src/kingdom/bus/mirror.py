"""The mirror: publishes the records of topics of other programs in a stream, on any transport.

A record becomes an event with an id of its own: that of an envelope, of a CloudEvent or of Debezium's outbox event
router, or else made of topic, partition and offset. Offsets are committed after the events are durable. What a kill
repeats has the same id, and is published once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from kingdom.base.backoff import backoff
from kingdom.bus.envelope import Envelope, check_stream
from kingdom.bus.errors import InvalidEnvelope, InvalidOption, StorageFull, TransportUnavailable
from kingdom.bus.eventbus import EventBus
from kingdom.bus.options import check_count
from kingdom.bus.urls import redact_url
from kingdom.bus.worker import on_stop_signal

log = logging.getLogger("kingdom.bus.mirror")
REFUSED: Final = "kingdom.mirror.refused"  # the type of the event that stands for a record that no event can hold
_READ_SECONDS: Final = 0.5  # that a read waits for a first record
_MAX_PAUSE_SECONDS: Final = 30.0


class MirroredRecord(NamedTuple):
    """A record of a topic, and the event that it becomes."""

    envelope: Envelope
    topic: str
    partition: int
    offset: int


class TopicRead(NamedTuple):
    """What a read returned, and whether that is all there is at the moment."""

    records: list[MirroredRecord]
    at_end: bool


class TopicFollower(Protocol):
    """Reads topics as a member of a group. What was read and not committed is read again by the next member."""

    async def read(self, limit: int, seconds: float) -> TopicRead:
        """Return up to ``limit`` records, in their order for each partition; wait for the first."""

    async def commit(self) -> None:
        """Commit everything that was read."""

    async def close(self) -> None:
        """Leave the group."""


@runtime_checkable
class TopicTransport(Protocol):
    """A transport whose topics can be mirrored."""

    async def follow(self, topics: Sequence[str], group: str, event_type: str | None) -> TopicFollower:
        """Read topics, from the start or from where the group has come to."""


class Mirror:
    """Publishes the records of topics in a stream until it is stopped.

    ``source``: a bus on Kafka, whose ``prefix`` does not count here. ``topics``: their whole names. ``target``: a bus
    on any transport. ``group``: the consumer group that keeps the offsets; mirrors of one group share the partitions.
    ``event_type``: the type of events of records that name none; the topic, unless given. ``batch``: records that are
    published at once. ``signals``: stop on SIGTERM and SIGINT (in the main thread).
    """

    def __init__(
        self,
        source: EventBus,
        topics: Iterable[str],
        target: EventBus,
        stream: str,
        *,
        group: str | None = None,
        event_type: str | None = None,
        batch: int = 500,
        signals: bool = True,
    ) -> None:
        if not isinstance(source.transport, TopicTransport):
            raise InvalidOption(f"a mirror reads from kafka://…, not from {redact_url(source.url)}")
        check_count("Mirror", "batch", batch)
        self.mirrored = 0  # events that were new to the stream
        self._source = source.transport
        self._topics = list(topics)
        if not self._topics:
            raise InvalidOption("a mirror needs the name of a topic, or of more")
        self._target = target
        self._stream = check_stream(stream)
        self._group = group or f"kingdom-mirror-{stream}"
        self._event_type = event_type
        self._batch = batch
        self._signals = signals
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def stop(self) -> None:
        """Make the mirror finish its batch and return from :meth:`run`. Safe from any thread, and before ``run``."""
        if self._loop is None:
            self._stopping.set()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def run(self, *, once: bool = False) -> None:
        """Mirror until cancelled, until :meth:`stop` is called or until SIGTERM arrives.

        With ``once``, return when everything that the topics have was published.
        """
        self._loop = asyncio.get_running_loop()
        undo_signals = on_stop_signal(self.stop) if self._signals else lambda: None
        follower = await self._source.follow(self._topics, self._group, self._event_type)
        try:
            while not self._stopping.is_set():
                read = await follower.read(self._batch, _READ_SECONDS)
                if read.records:
                    if await self._published(read.records):
                        await follower.commit()
                elif once and read.at_end:
                    return
        finally:
            await follower.close()
            undo_signals()
            self._loop = None

    async def _published(self, records: Sequence[MirroredRecord]) -> bool:
        """Publish, however long it takes; return False if the mirror was stopped before."""
        failures = 0
        while True:
            try:
                self.mirrored += len(await self._publish(records))
            except (TransportUnavailable, StorageFull) as error:
                if not failures:
                    log.warning("%s cannot be written, trying again: %s", self._stream, error)
                pause = backoff(failures, 0.2, _MAX_PAUSE_SECONDS, jitter=0.2)
                failures += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._stopping.wait()
                    return False
            else:
                if failures:
                    log.warning("%s can be written again after %d failed tries", self._stream, failures)
                return True

    async def _publish(self, records: Sequence[MirroredRecord]) -> list[str]:
        try:
            return await self._target.publish(self._stream, [record.envelope for record in records])
        except InvalidEnvelope as error:
            if len(records) > 1:  # all or none were accepted: find out which it is
                return [event_id for record in records for event_id in await self._publish([record])]
            return await self._target.publish(self._stream, _refused(records[0], str(error)))


def _refused(record: MirroredRecord, reason: str) -> Envelope:
    log.warning("record %d of %s [%d] is no event: %s", record.offset, record.topic, record.partition, reason)
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    return Envelope(type=REFUSED, event_id=record.envelope.event_id, payload={**place, "error": reason})
