"""The bare loops on Kafka: confluent-kafka as its documentation uses it, durable, without leases or verdicts."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

from bench.harness import Figures
from bench.latency import Latencies
from bench.payload import chunks, encode, payload, payloads

_TOPIC = "bare"


async def publish(servers: str, count: int, *, size: int) -> Figures:
    """An idempotent producer, flushed after each ``size`` records."""
    topic = await new_topic(servers)
    producer = _producer(servers)
    documents = payloads(count)
    producer.produce(topic, b"first")
    producer.flush()
    started = perf_counter()
    for some in chunks(documents, size):
        for document in some:
            producer.produce(topic, encode(document).encode())
        producer.flush()
    return {"rate": count / (perf_counter() - started)}


async def drain(servers: str, count: int) -> Figures:
    """Consume 500 at a time, and commit after each."""
    topic = await new_topic(servers)
    producer = _producer(servers)
    for document in payloads(count):
        producer.produce(topic, encode(document).encode())
    producer.flush()
    consumer = _consumer(servers, topic)
    started, read = perf_counter(), 0
    while read < count:
        messages = consumer.consume(500, 1.0)
        read += sum(message.error() is None for message in messages)
        if messages:
            consumer.commit(asynchronous=False)
    taken = perf_counter() - started
    consumer.close()
    return {"rate": count / taken}


async def latency(servers: str, count: int) -> Figures:
    """Produce and flush, consume in a thread."""
    topic = await new_topic(servers)
    producer, consumer, latencies = _producer(servers), _consumer(servers, topic), Latencies(count)

    async def publish_one(number: int) -> None:
        latencies.sent(str(number))
        producer.produce(topic, encode(payload(number)).encode(), str(number))
        await asyncio.to_thread(producer.flush)

    async def consume() -> None:
        while True:
            message = await asyncio.to_thread(consumer.poll, 0.1)
            if message is not None and message.error() is None:
                latencies.arrived(message.key().decode())

    try:
        return await latencies.measure(publish_one, consume(), ready=3.0)
    finally:
        consumer.close()


async def new_topic(servers: str) -> str:
    """Make a topic with one partition; return its name."""
    from uuid import uuid4

    from confluent_kafka.admin import AdminClient, NewTopic

    topic = f"{_TOPIC}-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        await asyncio.wrap_future(future)
    return topic


def _producer(servers: str) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "acks": "all", "compression.type": "lz4"}
    )


def _consumer(servers: str, topic: str) -> Any:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    return consumer
