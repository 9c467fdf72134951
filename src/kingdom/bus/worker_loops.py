"""The loops of a worker: claim, renew, settle."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from typing import TYPE_CHECKING, Final

from kingdom.bus.errors import StorageFull, TransportUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kingdom.bus.delivery import DeadVerdict, Delivery, RetryVerdict
    from kingdom.bus.eventbus import EventBus
    from kingdom.bus.metrics import WorkerStats


# The deliveries a worker holds, and the queue between claiming and handling them.


class HeldDeliveries:
    """Waiting (claimed, not started), running, and everything not settled yet (whose lease must be renewed)."""

    def __init__(self) -> None:
        self.waiting: deque[Delivery] = deque()
        self.running: set[Delivery] = set()
        self.leased: set[Delivery] = set()
        self._takers: deque[asyncio.Future[None]] = deque()

    @property
    def unfinished(self) -> int:
        """How many deliveries wait or run."""
        return len(self.waiting) + len(self.running)

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """Queue what was just claimed."""
        before = len(self.waiting)
        self.waiting.extend(deliveries)
        new = list(self.waiting)[before:] if before else list(self.waiting)
        self.leased.update(new)
        for _ in new:
            if not self._wake_one():
                break

    def next(self) -> Delivery | None:
        """The next delivery to run, if one waits."""
        if not self.waiting:
            return None
        delivery = self.waiting.popleft()
        self.running.add(delivery)
        return delivery

    async def take(self) -> Delivery:
        """The next delivery to run; waits for one."""
        while (delivery := self.next()) is None:
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled() and self.waiting:
                    self._wake_one()  # hand the wake-up on: it was meant for whoever can take
                raise
        return delivery

    def drop_waiting(self) -> list[Delivery]:
        """Take back everything that was not started."""
        dropped = list(self.waiting)
        self.waiting.clear()
        self.leased.difference_update(dropped)
        return dropped

    def forget(self, lost: Iterable[Delivery]) -> None:
        """Stop renewing leases that are somebody else's now, and do not start what has not been started."""
        gone = set(lost)
        self.leased -= gone
        if any(delivery in gone for delivery in self.waiting):
            kept = [delivery for delivery in self.waiting if delivery not in gone]
            self.waiting.clear()
            self.waiting.extend(kept)

    def _wake_one(self) -> bool:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return True
        return False


# How far ahead a worker claims.


_HORIZON = 0.25  # seconds of work to hold in advance


class Prefetch:
    """Claims ahead what the handlers will get through in a quarter of a second, never more than two batches:
    one to be worked on while the other is on its way.

    Fast handlers so always find work waiting, while slow ones (an agent that runs for minutes) do not sit on events
    that another worker could start now.

    A worker that has just started takes one event and waits until a handler has ended, or :meth:`warmed_up` is called.
    An event that kills its worker comes first again after each restart: it then dies alone, and does not spend the
    attempts of others that were merely held with it.
    """

    def __init__(self, concurrency: int, batch: int) -> None:
        self._concurrency = concurrency
        self._batch = batch
        self._mean: float | None = None  # seconds per handled event, exponentially weighted
        self._cold = True

    def handled(self, seconds: float) -> None:
        """Note how long one handler took."""
        self._cold = False
        self._mean = seconds if self._mean is None else self._mean * 0.9 + seconds * 0.1

    def warmed_up(self) -> None:
        """The worker has been alive for a while."""
        self._cold = False

    def ask(self, unfinished: int) -> int:
        """How many events to claim now, with this many waiting or running; 0 when it is too early."""
        if self._cold:
            return 0 if unfinished else 1
        ahead = 0
        if self._mean is not None:
            ahead = min(2 * self._batch, int(_HORIZON * self._concurrency / max(self._mean, 1e-9)))
        room = self._concurrency + ahead - unfinished
        # A whole batch at a time, or as much as there will ever be room for: refilling by ones would cost a statement
        # for each event.
        if room >= min(self._batch, max(1, ahead)) or unfinished < self._concurrency:
            return max(0, min(self._batch, room))
        return 0


# How long handlers may keep the event loop to themselves.


_LONGEST: Final = 32  # events


class LoopTurn:
    """Counts the events that end while the loop comes to nothing else.

    Handlers that never wait for anything would go through a whole batch in one step of the loop. The next claim would
    be sent when they are through with it rather than while they are at it, and whoever else is in the loop would wait.
    """

    def __init__(self) -> None:
        self._ended = 0

    def is_over(self) -> bool:
        """Count one event; whether whoever handled it should let others run now."""
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._begin)
        self._ended += 1
        return self._ended >= _LONGEST

    def _begin(self) -> None:
        self._ended = 0


# What a worker's loops share: surviving a store that is away.


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


# Claims events ahead of the handlers.


_WARM_UP = 1.0  # seconds a new worker runs one event at a time, unless a handler ends sooner


class Claimer:
    """Keeps the handlers supplied; sleeps until the bus, a due retry or the poll interval wakes it."""

    def __init__(
        self,
        claim: Callable[[int], Awaitable[list[Delivery]]],
        held: HeldDeliveries,
        pace: Prefetch,
        poll: float,
        blocked: Callable[[], bool],
    ) -> None:
        self._claim = claim
        self._held = held
        self._pace = pace
        self._poll = poll
        self._blocked = blocked
        self._wake = asyncio.Event()
        self._room = asyncio.Event()

    def wake(self) -> None:
        """Something may be claimable."""
        self._wake.set()

    def finished(self) -> None:
        """A handler ended: there may be room."""
        self._room.set()

    def flushed(self, due_in: list[float]) -> None:
        """Verdicts were written, among them retries due after so many seconds.

        The store wakes nobody when a retry falls due, so we do: a little late is better than a little early.
        """
        self._room.set()
        for delay in set(due_in):
            asyncio.get_running_loop().call_later(delay + 0.002, self.wake)

    async def run(self) -> None:
        """Claim until cancelled."""
        outage = Outage("claim events")
        warming = asyncio.get_running_loop().call_later(_WARM_UP, self._warmed_up)
        try:
            await self._claim_for_ever(outage)
        finally:
            warming.cancel()

    def _warmed_up(self) -> None:
        self._pace.warmed_up()
        self._room.set()

    async def _claim_for_ever(self, outage: Outage) -> None:
        while True:
            self._room.clear()
            ask = 0 if self._blocked() else self._pace.ask(self._held.unfinished)
            if not ask:
                await self._room.wait()
                continue
            self._wake.clear()  # before the claim: what is published during it must not be missed
            try:
                claimed = await self._claim(ask)
                outage.over()
            except (TransportUnavailable, StorageFull) as error:
                await outage.wait(error)
                continue
            self._held.add(claimed)
            if len(claimed) < ask:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll * random.uniform(0.8, 1.2)):  # noqa: S311
                        await self._wake.wait()


# Keeps leases alive.


class LeaseRenewer:
    """Renews every lease held, three times per lease, until the worker has let go of all of them."""

    def __init__(self, bus: EventBus, held: HeldDeliveries, lease: float, stats: WorkerStats) -> None:
        self._bus = bus
        self._held = held
        self._lease = lease
        self._stats = stats

    async def run(self) -> None:
        """Renew until cancelled. It goes on while the worker drains: handlers that finish late keep their lease."""
        while True:
            await asyncio.sleep(self._lease / 3)
            leased = list(self._held.leased)
            if not leased:
                continue
            try:
                lost = await self._bus.extend(leased, self._lease)
            except (TransportUnavailable, StorageFull) as error:
                log.warning("leases could not be renewed: %s", error)
                continue
            # What was settled while the renewal was under way is not lost, merely no longer ours to renew.
            lost = [delivery for delivery in lost if delivery in self._held.leased]
            if lost:
                self._held.forget(lost)
                self._stats.lease_lost(len(lost))
                for delivery in lost:
                    log.warning("lease lost while the event was held", extra=delivery.log_fields())


# Writes verdicts in batches.


_LINGER = 0.02  # seconds a verdict may wait for company while there is more work


class Settler:
    """Collects verdicts and flushes them together.

    While one flush is under way the next batch gathers, so that a slow store is asked less often, not more. A flush
    starts as soon as nothing else is left to do, so that the last event of a burst is not kept waiting.
    """

    def __init__(
        self,
        bus: EventBus,
        held: HeldDeliveries,
        batch: int,
        stats: WorkerStats,
        on_flush: Callable[[list[float]], None],
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
