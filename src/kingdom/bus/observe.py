"""What a worker counts while it works. Plain numbers: the hot path takes no lock and no label look-up."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, Literal

Result = Literal["done", "retry", "dead", "released"]
BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Histogram:
    """Handler durations of one event type."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class Stats:
    """The counters of one worker."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.processed: dict[Result, int] = {"done": 0, "retry": 0, "dead": 0, "released": 0}
        self.durations: dict[str, Histogram] = {}
        self.leases_lost = 0

    def handled(self, event_type: str, result: Result, seconds: float) -> None:
        """A handler ended."""
        self.processed[result] += 1
        histogram = self.durations.get(event_type)
        if histogram is None:
            histogram = self.durations[event_type] = Histogram()
        histogram.observe(seconds)

    def released(self, count: int) -> None:
        """Events were given back unharmed."""
        self.processed["released"] += count

    def lease_lost(self, count: int) -> None:
        """Leases ended before the verdict could be written."""
        self.leases_lost += count
