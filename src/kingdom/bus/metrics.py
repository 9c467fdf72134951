"""Prometheus metrics of buses and workers.

::

    metrics = Metrics()
    metrics.watch(worker)                  # its counters, and the depth of its bus
    metrics.register()                     # into prometheus_client's registry; or serve metrics.render() yourself
    asyncio.create_task(metrics.run())     # samples the depth every 15 seconds

Workers count in plain numbers, without locks or label look-ups, and are read when Prometheus scrapes. Depths come
from the store, and a scrape must not wait for it: :meth:`Metrics.sample` fetches them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal

from kingdom.bus.delivery import Depth
from kingdom.bus.errors import BusError, InvalidOption
from kingdom.bus.eventbus import EventBus
from kingdom.bus.options import Seconds, positive_seconds

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

    from kingdom.bus.worker import Worker


HandlerResult = Literal["done", "retry", "dead", "released"]
BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Histogram:
    """Handler durations of one event type."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration in its bucket."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class WorkerStats:
    """The counters of one worker."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.processed: dict[HandlerResult, int] = {"done": 0, "retry": 0, "dead": 0, "released": 0}
        self.durations: dict[str, Histogram] = {}
        self.leases_lost = 0

    def handled(self, event_type: str, result: HandlerResult, seconds: float) -> None:
        """Count a handler that ended."""
        self.processed[result] += 1
        histogram = self.durations.get(event_type)
        if histogram is None:
            histogram = self.durations[event_type] = Histogram()
        histogram.observe(seconds)

    def released(self, count: int) -> None:
        """Count events that were released unharmed."""
        self.processed["released"] += count

    def lease_lost(self, count: int) -> None:
        """Count leases that ended before the verdict was written."""
        self.leases_lost += count


log = logging.getLogger("kingdom.bus.metrics")

_DEPTHS: Final = (
    ("pending", "Events that wait for a worker, their retry or their time"),
    ("processing", "Events held under a lease"),
    ("dead", "Events that failed for good and wait for an operator"),
    ("oldest_pending_seconds", "How long the oldest claimable event has been waiting"),
)
_LIMITS: Final = (*(str(limit) for limit in BUCKETS), "+Inf")


class Metrics:
    """Collects metrics of the workers and buses it watches; a custom collector of prometheus_client.

    ==================================================== ==========================================================
    ``{prefix}_outbox_pending{stream}``                  gauge; so are ``processing``, ``dead``,
                                                         ``oldest_pending_seconds``
    ``{prefix}_outbox_unhandled{stream,eventType}``      gauge: waiting events no watched worker of the stream handles
    ``{prefix}_outbox_processed_total{stream,result}``   counter: ``done``, ``retry``, ``dead``, ``released``
    ``{prefix}_outbox_handler_duration_seconds{…}``      histogram by ``stream`` and ``eventType``
    ``{prefix}_outbox_lease_lost_total{stream}``         counter
    ==================================================== ==========================================================
    """

    def __init__(self, prefix: str = "kingdom") -> None:
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", prefix):
            raise InvalidOption(f"Metrics(prefix={prefix!r}): letters, digits and _ only, not starting with a digit")
        self._prefix = f"{prefix}_outbox"
        self._workers: list[Worker] = []
        self._buses: dict[str, EventBus] = {}  # by URL: two connections to one store must not count twice
        self._depths: dict[str, dict[str, Depth]] = {}
        self._unhandled: dict[str, Counter[tuple[str, str]]] = {}

    def watch(self, *sources: Worker | EventBus) -> None:
        """Report on these workers, and on their buses; or on a bus alone."""
        for source in sources:
            if isinstance(source, EventBus):
                self._buses.setdefault(source.url, source)
            elif source not in self._workers:
                self._workers.append(source)
                self._buses.setdefault(source.bus.url, source.bus)

    async def sample(self) -> None:
        """Fetch the depths now.

        Raises when a store does not answer, after asking the others; its gauges are then absent rather than frozen at
        the last value, which would look healthy.
        """
        failure: BusError | None = None
        for url, bus in list(self._buses.items()):
            try:
                depths, unhandled = await bus.depth(), await self._find_unhandled(bus)
            except BusError as error:
                failure = error
                self._depths.pop(url, None)
                self._unhandled.pop(url, None)
            else:
                self._depths[url], self._unhandled[url] = depths, unhandled
        if failure is not None:
            raise failure

    async def run(self, every: Seconds = 15) -> None:
        """Sample until cancelled. A store that is away is logged once and retried."""
        interval = positive_seconds("Metrics.run(every)", every)
        away = False
        while True:
            try:
                await self.sample()
            except BusError as error:
                if not away:
                    log.warning("cannot sample the depth of the bus, trying again every %g s: %s", interval, error)
                away = True
            else:
                away = False
            await asyncio.sleep(interval)

    def register(self, registry: CollectorRegistry | None = None) -> None:
        """Add these metrics to a registry (default: prometheus_client's own)."""
        from prometheus_client import REGISTRY

        (REGISTRY if registry is None else registry).register(self)

    def render(self) -> bytes:
        """Return these metrics alone, in the text format of Prometheus."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families. prometheus_client calls it on each scrape, from any thread."""
        yield from self._collect_depths()
        yield from self._collect_counters()
        yield self._collect_durations()

    def _collect_depths(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        depths = _merged(self._depths)
        for field, text in _DEPTHS:
            gauge = GaugeMetricFamily(f"{self._prefix}_{field}", text, labels=["stream"])
            for stream, depth in depths.items():
                gauge.add_metric([stream], getattr(depth, field))
            yield gauge
        text = "Waiting events of a type that no watched worker of the stream handles"
        gauge = GaugeMetricFamily(f"{self._prefix}_unhandled", text, labels=["stream", "eventType"])
        for labels, count in sum(list(self._unhandled.values()), Counter()).items():
            gauge.add_metric(labels, count)
        yield gauge

    def _collect_counters(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        processed: Counter[tuple[str, str]] = Counter()
        lost: Counter[str] = Counter()
        for worker in self._workers:
            stats = worker.stats
            lost[stats.stream] += stats.leases_lost
            for result, count in stats.processed.items():
                processed[stats.stream, result] += count
        family = CounterMetricFamily(f"{self._prefix}_processed", "Deliveries by result", labels=["stream", "result"])
        for labels, count in processed.items():
            family.add_metric(labels, count)
        yield family
        family = CounterMetricFamily(
            f"{self._prefix}_lease_lost", "Leases that ended before the verdict was written", labels=["stream"]
        )
        for stream, count in lost.items():
            family.add_metric([stream], count)
        yield family

    def _collect_durations(self) -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(
            f"{self._prefix}_handler_duration_seconds", "How long handlers took", labels=["stream", "eventType"]
        )
        merged: dict[tuple[str, str], Histogram] = {}
        for worker in self._workers:
            # A copy: the loop of the worker may add a type while another thread scrapes.
            for event_type, histogram in list(worker.stats.durations.items()):
                total = merged.setdefault((worker.stream, event_type), Histogram())
                total.counts = [a + b for a, b in zip(total.counts, histogram.counts, strict=True)]
                total.total += histogram.total
        for labels, histogram in merged.items():
            buckets = list(zip(_LIMITS, accumulate(histogram.counts), strict=True))
            family.add_metric(labels, buckets, histogram.total)
        return family

    async def _find_unhandled(self, bus: EventBus) -> Counter[tuple[str, str]]:
        """Count waiting events without a handler; streams without a watched worker are left out."""
        handled: dict[str, set[str] | None] = {}
        for worker in self._workers:
            if worker.bus.url == bus.url:
                types, known = worker.dispatcher.types, handled.get(worker.stream, set())
                handled[worker.stream] = None if types is None or known is None else known | set(types)
        unhandled: Counter[tuple[str, str]] = Counter()
        for stream, known in handled.items():
            if known is not None:
                waiting = await bus.pending_types(stream)
                unhandled.update({(stream, kind): count for kind, count in waiting.items() if kind not in known})
        return unhandled


def _merged(samples: dict[str, dict[str, Depth]]) -> dict[str, Depth]:
    """Add up the depths of streams of the same name on several buses."""
    merged: dict[str, Depth] = {}
    for depths in list(samples.values()):
        for stream, depth in depths.items():
            one = merged.get(stream, Depth())
            merged[stream] = Depth(
                one.pending + depth.pending,
                one.processing + depth.processing,
                one.dead + depth.dead,
                max(one.oldest_pending_seconds, depth.oldest_pending_seconds),
            )
    return merged
