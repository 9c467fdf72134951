"""The measurement behind ``kingdom bus bench``."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

from kingdom.bus import Envelope, EventBus, Worker

_EVENT_TYPE: Final = "BenchEvent"
_PUBLISH_BATCH: Final = 500  # events per publish
_PAUSE_SECONDS: Final = 0.01  # seconds between single events, so that the worker is idle when one arrives


@dataclass
class BenchResult:
    """The figures of one measurement."""

    stream: str
    events: int
    size: int
    publish_rate: float = 0.0
    drain_rate: float = 0.0
    latencies: list[float] = field(default_factory=list)  # seconds, one per single event
    published: int = 0
    removed: int = 0

    def latency(self, percentile: int) -> float:
        """Return a percentile of the latencies, in milliseconds."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, len(ordered) * percentile // 100)]

    def document(self) -> dict[str, Any]:
        """Return the figures as a JSON document."""
        return {
            "stream": self.stream,
            "events": self.events,
            "payloadBytes": self.size,
            "publishEventsPerSecond": round(self.publish_rate, 1),
            "drainEventsPerSecond": round(self.drain_rate, 1),
            "latencySamples": len(self.latencies),
            "latencyP50Ms": round(self.latency(50), 3),
            "latencyP99Ms": round(self.latency(99), 3),
            "removed": self.removed,
        }


async def measure(bus: EventBus, events: int, singles: int, size: int, concurrency: int) -> BenchResult:
    """Measure the bus in a stream of its own, and remove its events afterwards, also when interrupted."""
    result = BenchResult(f"kingdom.bench.{secrets.token_hex(6)}", events, size)
    try:
        await _measure_throughput(bus, result, concurrency)
        await _measure_latency(bus, result, singles)
    finally:
        result.removed = await _remove(bus, result)
    return result


async def _measure_throughput(bus: EventBus, result: BenchResult, concurrency: int) -> None:
    started = perf_counter()
    for first in range(0, result.events, _PUBLISH_BATCH):
        await _publish(bus, result, min(_PUBLISH_BATCH, result.events - first))
    result.publish_rate = result.events / (perf_counter() - started)

    left = result.events
    worker = Worker(bus, result.stream, name="bench", concurrency=concurrency, signals=False)

    @worker.on(_EVENT_TYPE)
    async def drain(event: Envelope) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            worker.stop()

    started = perf_counter()
    await worker.run()  # returns once every verdict is written
    result.drain_rate = result.events / (perf_counter() - started)


async def _measure_latency(bus: EventBus, result: BenchResult, singles: int) -> None:
    arrived = asyncio.Event()
    worker = Worker(bus, result.stream, name="bench", signals=False)

    @worker.on(_EVENT_TYPE)
    async def arrive(event: Envelope) -> None:
        arrived.set()

    async with asyncio.TaskGroup() as group:  # a worker that fails ends the wait
        group.create_task(worker.run())
        for number in range(singles + 1):
            arrived.clear()
            started = perf_counter()
            await _publish(bus, result, 1)
            await arrived.wait()
            if number:  # the first one also waits for the worker to start
                result.latencies.append(perf_counter() - started)
            await asyncio.sleep(_PAUSE_SECONDS)
        worker.stop()


async def _publish(bus: EventBus, result: BenchResult, count: int) -> None:
    envelopes = [Envelope(type=_EVENT_TYPE, payload={"fill": "x" * result.size}) for _ in range(count)]
    publishing = asyncio.ensure_future(bus.publish(result.stream, envelopes))
    try:
        accepted = await asyncio.shield(publishing)
    except asyncio.CancelledError:
        await publishing  # it must be stored before it can be removed
        raise
    result.published += len(accepted)


async def _remove(bus: EventBus, result: BenchResult) -> int:
    """Finish events that an interruption left unhandled, then purge all; return how many were purged."""
    while held := await bus.claim(result.stream, worker="bench-cleaner", limit=500, lease=10):
        await bus.settle(done=held)
    removed = await bus.purge(0, stream=result.stream, dead=True)
    for _ in range(100):  # an event that ended at this instant has not ended *before* now
        if removed >= result.published:
            break
        await asyncio.sleep(_PAUSE_SECONDS)
        removed += await bus.purge(0, stream=result.stream, dead=True)
    return removed
