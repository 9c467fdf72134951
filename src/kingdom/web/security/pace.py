"""How often somebody may ask."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_MOST: Final = 4096  # addresses remembered; whoever was not seen for longest is forgotten first


class Pace:
    """A token bucket for each key: so many at once, then so many a second."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> int:
        """Take one. 0: go on; else the whole seconds after which there will be one again."""
        now = self._clock()
        left, since = self._buckets.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        short = left < 1
        self._buckets[key] = (left if short else left - 1, now)
        while len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)
        return max(1, math.ceil((1 - left) / self._per_second)) if short else 0
