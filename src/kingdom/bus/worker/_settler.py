"""Writes verdicts in batches."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from kingdom.bus.errors import StorageFull, TransportUnavailable
from kingdom.bus.worker._loop import Outage, log

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.bus.delivery import DeadVerdict, Delivery, RetryVerdict
    from kingdom.bus.eventbus import EventBus
    from kingdom.bus.observe import Stats
    from kingdom.bus.worker._held import Held

_LINGER = 0.02  # seconds a verdict may wait for company while there is more work


class Settler:
    """Collects verdicts and flushes them together.

    While one flush is under way the next batch gathers, so that a slow store is asked less often, not more. A flush
    starts as soon as nothing else is left to do, so that the last event of a burst is not kept waiting.
    """

    def __init__(
        self, bus: EventBus, held: Held, batch: int, stats: Stats, on_flush: Callable[[list[float]], None]
    ) -> None:
        self._bus = bus
        self._held = held
        self._batch = batch
        self._stats = stats
        self._on_flush = on_flush
        self._done: list[Delivery] = []
        self._retry: list[RetryVerdict] = []
        self._dead: list[DeadVerdict] = []
        self._some = asyncio.Event()  # there is a verdict
        self._now = asyncio.Event()  # enough of them to flush without lingering
        self._finishing = False

    @property
    def backlog(self) -> int:
        """How many verdicts wait to be written."""
        return len(self._done) + len(self._retry) + len(self._dead)

    def done(self, delivery: Delivery) -> None:
        """The handler returned."""
        self._done.append(delivery)
        self._added()

    def retry(self, verdict: RetryVerdict) -> None:
        """The handler failed and the event shall be tried again."""
        self._retry.append(verdict)
        self._added()

    def dead(self, verdict: DeadVerdict) -> None:
        """The event can never succeed, or its attempts are spent."""
        self._dead.append(verdict)
        self._added()

    def _added(self) -> None:
        self._some.set()
        if not self._held.waiting or len(self._done) >= self._batch or self.backlog >= self._batch:
            self._now.set()

    def finish(self) -> None:
        """Write what is left, then end :meth:`run`. A flush under way is never cut off: it may have landed already."""
        self._finishing = True
        self._some.set()
        self._now.set()

    async def run(self) -> None:
        """Flush until told to finish."""
        outage = Outage("settle events")
        while not self._finishing or self.backlog:
            await self._some.wait()
            if not self._now.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LINGER):
                        await self._now.wait()
            try:
                await self.flush()
                outage.over()
            except (TransportUnavailable, StorageFull) as error:
                if self._finishing:
                    log.warning("%d verdicts were not written, their leases will end: %s", self.backlog, error)
                    return
                await outage.wait(error)

    async def flush(self) -> None:
        """Write everything gathered so far. When the store fails, the verdicts are kept for the next try."""
        self._some.clear()
        self._now.clear()
        done, retry, dead = self._done, self._retry, self._dead
        if not (done or retry or dead):
            return
        self._done, self._retry, self._dead = [], [], []
        settled = False
        try:
            lost = await self._bus.settle(done=done, retry=retry, dead=dead)
            settled = True
        finally:
            if not settled:
                self._done, self._retry, self._dead = (
                    done + self._done,
                    retry + self._retry,
                    dead + self._dead,
                )
                self._added()
        self._held.leased.difference_update(done)
        self._held.leased.difference_update(item.delivery for item in retry)
        self._held.leased.difference_update(item.delivery for item in dead)
        if lost:
            self._stats.lease_lost(len(lost))
            for delivery in lost:
                log.warning("lease lost before the verdict was written", extra=delivery.log_fields())
        self._on_flush([item.after for item in retry])
