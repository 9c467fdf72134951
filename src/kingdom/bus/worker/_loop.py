"""What a worker's loops share: surviving a store that is away."""

from __future__ import annotations

import asyncio
import logging
import random

log = logging.getLogger("kingdom.bus.worker")


class Outage:
    """Back-off while the store is away; says so once when it begins and once when it ends, not every time."""

    def __init__(self, what: str, *, first: float = 0.1, cap: float = 5.0) -> None:
        self._what = what
        self._first = first
        self._cap = cap
        self._failures = 0

    async def wait(self, error: Exception) -> None:
        """Note a failure and wait: 0.1 s, 0.2 s, … up to 5 s, with jitter so that workers do not return together."""
        if self._failures == 0:
            log.warning("cannot %s, trying again until the store answers: %s", self._what, error)
        delay = min(self._cap, self._first * 2**self._failures) * random.uniform(0.8, 1.2)  # noqa: S311
        self._failures = min(self._failures + 1, 30)
        await asyncio.sleep(delay)

    def over(self) -> None:
        """Note a success."""
        if self._failures:
            log.warning("can %s again after %d failed tries", self._what, self._failures)
            self._failures = 0
