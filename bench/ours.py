"""Kingdom, through its public surface only. The same functions measure every transport."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

from bench import idle, pg
from bench.harness import Figures
from bench.latency import Latencies
from bench.payload import STREAM, TYPE, chunks, payload, payloads
from bench.watch import Clock, Watch
from kingdom.bus import Envelope, EventBus, Relay, Worker, connect, publish_sync


def event(document: dict[str, Any]) -> Envelope:
    """An event, made as a caller makes it."""
    return Envelope(type=TYPE, payload=document)


async def fill(bus: EventBus, documents: list[dict[str, Any]], size: int = 1000) -> None:
    """Publish an event for each payload, ``size`` at a time."""
    for some in chunks(documents, size):
        await bus.publish(STREAM, [event(document) for document in some])


async def work_off(bus: EventBus, count: int, watch: Watch | None = None, *, leave: int = 0, **options: Any) -> Figures:
    """Handle ``count`` events with a no-op in one Worker, until the last verdict is written; ``leave`` so many."""
    watch = watch or Clock()
    worker = Worker(bus, STREAM, signals=False, **options)
    handled = 0

    @worker.on(TYPE)
    async def handle(_: Envelope) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            worker.stop()  # run() then writes the verdicts it still holds, and returns

    async with watch:
        await worker.run()
    assert handled == count, f"handled {handled} of {count}"
    depth = (await bus.depth()).get(STREAM)
    left = depth.pending + depth.processing + depth.dead if depth else 0
    assert left == leave, f"{left} events are not DONE"
    return watch.figures(count)


# ── PostgreSQL ────────────────────────────────────────────────────────────────────────────────────────────────────


def postgres_url(server: str, schema: str) -> str:
    """The URL of a bus in ``schema``."""
    return f"{server}{'&' if '?' in server else '?'}schema={schema}"


async def postgres_drain(server: str, count: int, *, hold: bool = False, **options: Any) -> Figures:
    """Fill a fresh table, then drain it with one Worker; with ``hold`` while somebody else keeps a snapshot."""
    async with pg.fresh_schema(server) as schema, connect(postgres_url(server, schema)) as bus:
        await bus.setup()
        await fill(bus, payloads(count))
        await pg.analyze(server, schema)
        async with pg.held_snapshot(server, hold=hold):
            return await work_off(bus, count, **options)


async def postgres_latency(server: str, count: int) -> Figures:
    async with pg.fresh_schema(server) as schema:
        return await latency(postgres_url(server, schema), count)


async def postgres_idle(server: str, seconds: float) -> Figures:
    async with pg.fresh_schema(server) as schema:
        return await idle_cpu(postgres_url(server, schema), seconds)


async def postgres_publish(server: str, count: int, *, size: int) -> Figures:
    """Into a fresh table."""
    async with pg.fresh_schema(server) as schema, connect(postgres_url(server, schema)) as bus:
        await bus.setup()
        return await publish(bus, count, size=size)


# ── Kafka ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def kafka_url(servers: str) -> str:
    """The URL of an empty bus."""
    return f"kafka://{servers}/?prefix={uuid4().hex}."


async def kafka_publish(servers: str, count: int, *, size: int) -> Figures:
    async with connect(kafka_url(servers)) as bus:
        await bus.setup()
        return await publish(bus, count, size=size)


async def kafka_drain(servers: str, count: int, **options: Any) -> Figures:
    """Fill fresh topics, then drain them with one Worker."""
    async with connect(kafka_url(servers)) as bus:
        await bus.setup()
        await fill(bus, payloads(count))
        return await work_off(bus, count, **options)


async def kafka_latency(servers: str, count: int) -> Figures:
    return await latency(kafka_url(servers), count)


async def relay(server: str, servers: str, count: int) -> Figures:
    """Fill a fresh outbox, then carry it to fresh topics."""
    async with (
        pg.fresh_schema(server) as schema,
        connect(postgres_url(server, schema)) as outbox,
        connect(kafka_url(servers)) as kafka,
    ):
        await outbox.setup()
        await kafka.setup()
        await Relay(outbox, kafka, [STREAM], signals=False).run(once=True)  # makes its index
        for some in chunks(payloads(count), 1000):
            events = [
                Envelope(type=TYPE, aggregate_id=str(item["orderAttemptId"] % 500), payload=item) for item in some
            ]
            await outbox.publish(STREAM, events)
        await pg.analyze(server, schema)
        carrying = Relay(outbox, kafka, [STREAM], signals=False)
        started = perf_counter()
        await carrying.run(once=True)
        taken = perf_counter() - started
        assert carrying.relayed == {STREAM: count}, f"relayed {carrying.relayed} of {count}"
        return {"rate": count / taken}


# ── every transport ───────────────────────────────────────────────────────────────────────────────────────────────


def local_url(scheme: str, folder: Path) -> str:
    """The URL of an empty bus in a new folder under ``folder``."""
    place = tempfile.mkdtemp(prefix="ours-", dir=folder)
    return f"{scheme}://{place}/{'bus.db' if scheme == 'sqlite' else 'queue'}"


async def publish(bus: EventBus, count: int, *, size: int) -> Figures:
    """From payloads to durable events, ``size`` for each call, one call after the other."""
    await fill(bus, payloads(size), size)  # plans and look-ups are made before the clock starts
    documents = payloads(count)
    started = perf_counter()
    if size == 1:
        for document in documents:
            await bus.publish(STREAM, event(document))
    else:
        await fill(bus, documents, size)
    return {"rate": count / (perf_counter() - started)}


async def local_publish(scheme: str, folder: Path, count: int, *, size: int) -> Figures:
    """The same on files or SQLite."""
    async with connect(local_url(scheme, folder)) as bus:
        await bus.setup()
        return await publish(bus, count, size=size)


async def local_publishers(scheme: str, folder: Path, count: int, *, publishers: int) -> Figures:
    """So many publishers at once on one bus, each publishing one event at a time."""
    async with connect(local_url(scheme, folder)) as bus:
        await bus.setup()
        await fill(bus, payloads(1))
        return {"rate": await _publish_together(bus, count, publishers)}


async def local_queue(scheme: str, folder: Path, count: int, *, publishers: int) -> Figures:
    """What embedded queues are measured by: put one by one, then get and acknowledge everything."""
    async with connect(local_url(scheme, folder)) as bus:
        await bus.setup()
        put = await _publish_together(bus, count, publishers)
        return {"put": put, "get": (await work_off(bus, count, batch=500))["rate"]}


async def local_queue_sync(scheme: str, folder: Path, count: int) -> Figures:
    """The same, published by code that has no event loop."""
    async with connect(local_url(scheme, folder)) as bus:
        await bus.setup()
        put = await asyncio.to_thread(_publish_sync, bus.url, payloads(count))
        return {"put": put, "get": (await work_off(bus, count + 1, batch=500))["rate"]}


def _publish_sync(url: str, documents: list[dict[str, Any]]) -> float:
    publish_sync(STREAM, event(documents[0]), url=url)  # connects
    started = perf_counter()
    for document in documents:
        publish_sync(STREAM, event(document), url=url)
    return len(documents) / (perf_counter() - started)


async def _publish_together(bus: EventBus, count: int, publishers: int) -> float:
    documents = iter(payloads(count))

    async def one() -> None:
        for document in documents:  # shared: each publisher takes the next one
            await bus.publish(STREAM, event(document))

    started = perf_counter()
    await asyncio.gather(*(one() for _ in range(publishers)))
    return count / (perf_counter() - started)


async def local_drain(scheme: str, folder: Path, count: int, **options: Any) -> Figures:
    """Fill, then drain with one Worker."""
    async with connect(local_url(scheme, folder)) as bus:
        await bus.setup()
        await fill(bus, payloads(count))
        return await work_off(bus, count, **options)


async def local_latency(scheme: str, folder: Path, count: int) -> Figures:
    return await latency(local_url(scheme, folder), count)


async def local_idle(scheme: str, folder: Path, seconds: float) -> Figures:
    return await idle_cpu(local_url(scheme, folder), seconds)


async def latency(url: str, count: int) -> Figures:
    """Publisher and worker in one process, so that one clock measures; on two buses, so that they share nothing."""
    async with connect(url) as publisher, connect(url) as consumer:
        await publisher.setup()
        latencies = Latencies(count)
        worker = Worker(consumer, STREAM, signals=False)

        @worker.on(TYPE)
        async def handle(received: Envelope) -> None:
            latencies.arrived(received.event_id)

        async def publish_one(number: int) -> None:
            envelope = event(payload(number))
            latencies.sent(envelope.event_id)
            await publisher.publish(STREAM, envelope)

        return await latencies.measure(publish_one, worker.run())


async def idle_cpu(url: str, seconds: float) -> Figures:
    """A worker with nothing to do."""
    async with connect(url) as bus:
        await bus.setup()
        worker = Worker(bus, STREAM, signals=False)

        @worker.on(TYPE)
        async def handle(_: Envelope) -> None:
            raise AssertionError("there is nothing to do")

        return await idle.cpu(worker.run(), seconds)
