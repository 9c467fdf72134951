"""FastStream on Kafka, with each of its clients: aiokafka and confluent-kafka.

An idempotent producer, ``acks=all``, its own batches. Offsets are committed after a handler ends (``AckPolicy.ACK``),
in the drain after each batch of 500: at least once, as ours, without leases, retries or dead letters.
"""

from __future__ import annotations

import asyncio
import importlib
from time import perf_counter
from typing import Any

from faststream import AckPolicy

from bench.bare.kafka import new_topic
from bench.harness import Figures
from bench.latency import Latencies
from bench.payload import chunks, encode, payload, payloads

_BATCH = 500


def _broker(client: str, servers: str) -> Any:
    """A broker of ``faststream.kafka`` (aiokafka) or ``faststream.confluent``."""
    module = importlib.import_module(f"faststream.{client}")
    batches = {"max_batch_size": 1 << 20} if client == "kafka" else {}  # aiokafka refuses larger ones
    return module.KafkaBroker(servers, acks="all", enable_idempotence=True, apply_types=False, logger=None, **batches)


async def _fill(broker: Any, topic: str, documents: list[dict[str, Any]], size: int) -> None:
    for some in chunks(documents, size):
        await broker.publish_batch(*(encode(document).encode() for document in some), topic=topic)


async def publish(client: str, servers: str, count: int, *, size: int) -> Figures:
    """Its own batch publish."""
    topic, broker = await new_topic(servers), _broker(client, servers)
    async with broker:
        await broker.start()
        await broker.publish(b"first", topic=topic)
        documents = payloads(count)
        started = perf_counter()
        await _fill(broker, topic, documents, size)
        return {"rate": count / (perf_counter() - started)}


async def drain(client: str, servers: str, count: int) -> Figures:
    """One subscriber of batches with a no-op handler, from its first batch (it joins its group before) to the last."""
    topic = await new_topic(servers)
    async with (filling := _broker(client, servers)):
        await filling.start()
        await _fill(filling, topic, payloads(count), 1000)
    broker, handled, first, started, done = _broker(client, servers), 0, 0, 0.0, asyncio.Event()

    @broker.subscriber(
        topic, group_id=topic, auto_offset_reset="earliest", batch=True, max_records=_BATCH, ack_policy=AckPolicy.ACK
    )
    async def handle(events: Any) -> None:
        nonlocal handled, first, started
        if not handled:
            first, started = len(events), perf_counter()
        handled += len(events)
        if handled >= count:
            done.set()

    async with broker:
        await broker.start()
        await done.wait()
        taken = perf_counter() - started
    assert handled == count, f"handled {handled} of {count}"
    return {"rate": (count - first) / taken}


async def latency(client: str, servers: str, count: int) -> Figures:
    """Publish and handle in one process."""
    topic, broker, latencies = await new_topic(servers), _broker(client, servers), Latencies(count)

    @broker.subscriber(topic, group_id=topic, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)
    async def handle(event: Any) -> None:
        latencies.arrived(event if isinstance(event, str) else encode(event))

    async def publish_one(number: int) -> None:
        document = encode(payload(number))
        latencies.sent(document)
        await broker.publish(document.encode(), topic=topic)

    async def consume() -> None:
        await broker.start()
        await asyncio.Event().wait()

    async with broker:
        await broker.publish(b"{}", topic=topic)
        return await latencies.measure(publish_one, consume(), ready=5.0)
