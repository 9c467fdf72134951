"""Publishes events: each to its shard, and those of one shard together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future as ConcurrentFuture
from functools import partial
from typing import Final
from uuid import uuid4

from kingdom.bus.envelope import Envelope
from kingdom.bus.transports.kafka._clients import KafkaClients
from kingdom.bus.transports.kafka._records import headers_of, key_of
from kingdom.bus.transports.kafka._routing import PublishSequence, shard_of
from kingdom.bus.transports.kafka._stream import KafkaStream
from kingdom.bus.transports.kafka._topics import topics_of


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


# With its text, and its number; None: the stream has one shard, whose own order counts.
_OutgoingEvent = tuple[Envelope, bytes, int | None]


class Publisher:
    """Publishes for one bus. ``create`` returns how many shards a stream has, ``timestamp`` the time of records."""

    def __init__(
        self,
        clients: KafkaClients,
        create: Callable[[str], Awaitable[int]],
        stream: Callable[[str], Awaitable[KafkaStream]],
        timestamp: Callable[[], float | None],
    ) -> None:
        self._clients = clients
        self._create = create
        self._stream = stream
        self._timestamp = timestamp
        self._sequence = PublishSequence()

    async def publish(self, stream: str, envelopes: Sequence[Envelope]) -> list[str]:
        """Publish events; return the ids that the stream did not have."""
        max_bytes = self._clients.settings.max_bytes
        texts = [envelope.to_json(max_bytes).encode() for envelope in envelopes]
        fresh = all(envelope.own_id for envelope in envelopes)  # then no stream has these ids
        for envelope in envelopes:
            envelope.mark_stored()  # before anything is awaited: another publish of the same event is not the first
        ids = [envelope.event_id for envelope in envelopes]
        if fresh:
            with _first_publications.of(ids):
                await self._write(stream, envelopes, texts, fresh=True)
            return ids
        await _first_publications.ended(ids)
        accepted = await self._write(stream, envelopes, texts, fresh=False)
        return [event_id for event_id in dict.fromkeys(ids) if event_id in accepted]

    async def _write(
        self, stream: str, envelopes: Sequence[Envelope], texts: Sequence[bytes], *, fresh: bool
    ) -> set[str]:
        count = await self._create(stream)
        parts: dict[int, list[_OutgoingEvent]] = {}
        for envelope, text in zip(envelopes, texts, strict=True):
            shard = shard_of(envelope.event_id, envelope.aggregate_type, envelope.aggregate_id, count)
            sequence = None if count == 1 else self._sequence.next()
            parts.setdefault(shard, []).append((envelope, text, sequence))
        accepted = await asyncio.gather(
            *(self._write_part(stream, partition, part, fresh) for partition, part in parts.items())
        )
        return {event_id for some in accepted for event_id in some}

    async def _write_part(
        self, stream: str, partition: int, part: Sequence[_OutgoingEvent], fresh: bool
    ) -> Sequence[str]:
        """Write the events of one shard, which count when all have arrived."""
        batch = None if fresh and len(part) == 1 else uuid4().hex
        mark = None if batch is None else f"{batch} {len(part)}".encode()
        source = f"/kingdom/{stream}".encode()
        records = [
            (key_of(envelope), text, headers_of(envelope, source, mark, sequence)) for envelope, text, sequence in part
        ]
        topic = topics_of(self._clients.settings.prefix, stream).data
        produce = partial(self._clients.produce, topic, records, self._timestamp(), partition)
        if batch is None or fresh:
            await produce()
            return ()
        shard = await (await self._stream(stream)).shard(partition)
        return await shard.published(batch, produce)
