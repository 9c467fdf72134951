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
    """What one measurement found."""

    stream: str
    events: int
    size: int
    publish_rate: float = 0.0
    drain_rate: float = 0.0
    latencies: list[float] = field(default_factory=list)  # seconds, one per single event
    published: int = 0
    removed: int = 0

    def latency(self, percentile: int) -> float:
        """The latency in milliseconds that ``percentile`` percent of the single events did not exceed."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, len(ordered) * percentile // 100)]

    def document(self) -> dict[str, Any]:
        """The form for programs."""
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
    """Measure the bus in a stream of its own, and leave nothing of it behind, also when interrupted."""
    measured = BenchResult(f"kingdom.bench.{secrets.token_hex(6)}", events, size)
    try:
        await _measure_throughput(bus, measured, concurrency)
        await _measure_latency(bus, measured, singles)
    finally:
        measured.removed = await _remove(bus, measured)
    return measured


async def _measure_throughput(bus: EventBus, measured: BenchResult, concurrency: int) -> None:
    started = perf_counter()
    for first in range(0, measured.events, _PUBLISH_BATCH):
        await _publish(bus, measured, min(_PUBLISH_BATCH, measured.events - first))
    measured.publish_rate = measured.events / (perf_counter() - started)

    left = measured.events
    worker = Worker(bus, measured.stream, name="bench", concurrency=concurrency, signals=False)

    @worker.on(_EVENT_TYPE)
    async def drain(event: Envelope) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            worker.stop()

    started = perf_counter()
    await worker.run()  # returns once every verdict is written
    measured.drain_rate = measured.events / (perf_counter() - started)


async def _measure_latency(bus: EventBus, measured: BenchResult, singles: int) -> None:
    arrived = asyncio.Event()
    worker = Worker(bus, measured.stream, name="bench", signals=False)

    @worker.on(_EVENT_TYPE)
    async def arrive(event: Envelope) -> None:
        arrived.set()

    async with asyncio.TaskGroup() as group:  # should the worker fail, nobody waits for it
        group.create_task(worker.run())
        for number in range(singles + 1):
            arrived.clear()
            started = perf_counter()
            await _publish(bus, measured, 1)
            await arrived.wait()
            if number:  # the first one also waits for the worker to start
                measured.latencies.append(perf_counter() - started)
            await asyncio.sleep(_PAUSE_SECONDS)
        worker.stop()


async def _publish(bus: EventBus, measured: BenchResult, count: int) -> None:
    envelopes = [Envelope(type=_EVENT_TYPE, payload={"fill": "x" * measured.size}) for _ in range(count)]
    publishing = asyncio.ensure_future(bus.publish(measured.stream, envelopes))
    try:
        accepted = await asyncio.shield(publishing)
    except asyncio.CancelledError:
        await publishing  # it must be there before it can be removed
        raise
    measured.published += len(accepted)


async def _remove(bus: EventBus, measured: BenchResult) -> int:
    """Finish what an interruption left unhandled, then forget all of it; return how many were forgotten."""
    while held := await bus.claim(measured.stream, worker="bench-cleaner", limit=500, lease=10):
        await bus.settle(done=held)
    removed = await bus.purge(0, stream=measured.stream, dead=True)
    for _ in range(100):  # what ended in this very instant has not ended *before* now
        if removed >= measured.published:
            break
        await asyncio.sleep(_PAUSE_SECONDS)
        removed += await bus.purge(0, stream=measured.stream, dead=True)
    return removed
