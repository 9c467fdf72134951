"""Measuring latency: events trickle in, and the time from publishing one to the start of its handler is taken."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine
from time import perf_counter
from typing import Any, Final

from bench.harness import Figures
from bench.stats import percentile

PERIOD: Final = 0.05  # seconds between two events: 20 a second
WARM_UP: Final = 5  # events before the ones that count: plans, caches, first imports


class Latencies:
    """Notes when each event was sent and when its handler started; both in one process, so by one clock."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._sent: dict[str, float] = {}
        self._taken: list[float] = []
        self._all = asyncio.Event()

    def sent(self, event_id: str) -> None:
        """To be called just before publishing."""
        self._sent[event_id] = perf_counter()

    def arrived(self, event_id: str) -> None:
        """To be called first thing in the handler."""
        if (sent := self._sent.pop(event_id, None)) is not None:  # a second delivery does not count
            self._taken.append(perf_counter() - sent)
            if len(self._taken) == self._count + WARM_UP:
                self._all.set()

    async def measure(
        self, publish: Callable[[int], Awaitable[Any]], consumer: Coroutine[Any, Any, None], *, ready: float = 0.5
    ) -> Figures:
        """Run ``consumer``, publish at 20 events/s, return p50 and p99 in milliseconds.

        The pauses vary a little, so that they do not fall into step with somebody's polling.
        """
        consuming = asyncio.create_task(consumer)
        pauses = random.Random(1)
        try:
            await asyncio.sleep(ready)  # until the consumer waits for events
            for number in range(self._count + WARM_UP):
                await publish(number)
                await asyncio.sleep(PERIOD * pauses.uniform(0.8, 1.2))
                if consuming.done():
                    break
            waiting = asyncio.create_task(self._all.wait())
            done, _ = await asyncio.wait({waiting, consuming}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            if waiting not in done:
                waiting.cancel()
                if consuming in done:
                    consuming.result()
                raise TimeoutError(f"{len(self._taken)} of {self._count + WARM_UP} events arrived")
        finally:
            consuming.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await consuming
        taken = [seconds * 1000 for seconds in self._taken[WARM_UP:]]
        return {"p50": percentile(taken, 50), "p99": percentile(taken, 99)}
