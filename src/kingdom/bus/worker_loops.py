"""The loops of a worker: claim, renew, settle; and the deliveries they share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from kingdom.base.backoff import backoff
from kingdom.bus.errors import StorageFull, TransportUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kingdom.bus.delivery import DeadVerdict, Delivery, RetryVerdict
    from kingdom.bus.eventbus import EventBus
    from kingdom.bus.metrics import WorkerStats

_PREFETCH_SECONDS: Final = 0.25  # of work to hold in advance
_MAX_TURN_EVENTS: Final = 32
_WARM_UP_SECONDS: Final = 1.0  # a new worker runs one event at a time for so long, unless a handler ends sooner
_LINGER_SECONDS: Final = 0.02  # a verdict may wait this long for others while there is more work

log = logging.getLogger("kingdom.bus.worker")


class HeldDeliveries:
    """The deliveries of a worker: waiting (claimed, not started), running, and leased (not settled yet)."""

    def __init__(self) -> None:
        self.waiting: deque[Delivery] = deque()
        self.running: set[Delivery] = set()
        self.leased: set[Delivery] = set()
        self._valid_until: dict[Delivery, float] = {}  # by the monotonic clock, of what waits or runs
        self._takers: deque[asyncio.Future[None]] = deque()

    @property
    def unfinished(self) -> int:
        """How many deliveries wait or run."""
        return len(self.waiting) + len(self.running)

    def add(self, deliveries: Iterable[Delivery], valid_until: float = math.inf) -> None:
        """Queue what was claimed; its lease holds at least until then, by the monotonic clock of this process."""
        new = list(deliveries)
        self.waiting.extend(new)
        self.leased.update(new)
        self._valid_until.update(dict.fromkeys(new, valid_until))
        for _ in new:
            if not self._wake_one():
                break

    def renewed(self, deliveries: Iterable[Delivery], valid_until: float) -> None:
        """Record that the leases were renewed."""
        known = [delivery for delivery in deliveries if delivery in self._valid_until]
        self._valid_until.update(dict.fromkeys(known, valid_until))

    def is_doubtful(self, delivery: Delivery) -> bool:
        """Return whether the lease may have ended: its renewals have failed for longer than the lease."""
        return time.monotonic() >= self._valid_until.get(delivery, math.inf)

    def next(self) -> Delivery | None:
        """Return the next delivery to run, if one waits."""
        if not self.waiting:
            return None
        delivery = self.waiting.popleft()
        self.running.add(delivery)
        return delivery

    async def take(self) -> Delivery:
        """Return the next delivery to run; wait for one."""
        while (delivery := self.next()) is None:
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled() and self.waiting:
                    self._wake_one()  # pass the wake-up on to another taker
                raise
        return delivery

    def finish(self, delivery: Delivery) -> None:
        """Record that the handler of a delivery has ended."""
        self.running.discard(delivery)
        self._valid_until.pop(delivery, None)

    def drop_waiting(self) -> list[Delivery]:
        """Remove and return everything that was not started."""
        dropped = list(self.waiting)
        self.waiting.clear()
        self.leased.difference_update(dropped)
        for delivery in dropped:
            self._valid_until.pop(delivery, None)
        return dropped

    def forget(self, lost: Iterable[Delivery]) -> None:
        """Stop renewing leases that were lost, and do not start their events."""
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


class Prefetch:
    """Decides how many events to claim ahead: what the handlers finish in a quarter of a second.

    That is at most two batches: one to work on while the other is on its way. Fast handlers then always find work
    waiting, and slow ones (an agent that runs for minutes) do not hold events that another worker could start now.

    A worker that has just started claims one event and waits until its handler has ended, or :meth:`warmed_up` is
    called. An event that kills its worker comes first again after each restart: it then goes DEAD alone, and does not
    use up the attempts of others that were held with it.
    """

    def __init__(self, concurrency: int, batch: int) -> None:
        self._concurrency = concurrency
        self._batch = batch
        self._mean: float | None = None  # seconds per handled event, exponentially weighted
        self._cold = True

    def handled(self, seconds: float) -> None:
        """Record how long a handler took."""
        self._cold = False
        self._mean = seconds if self._mean is None else self._mean * 0.9 + seconds * 0.1

    def warmed_up(self) -> None:
        """Claim normally from now on."""
        self._cold = False

    def ask(self, unfinished: int) -> int:
        """Return how many events to claim now, with this many waiting or running; 0 if it is too early."""
        if self._cold:
            return 0 if unfinished else 1
        ahead = 0
        if self._mean is not None:
            ahead = min(2 * self._batch, int(_PREFETCH_SECONDS * self._concurrency / max(self._mean, 1e-9)))
        room = self._concurrency + ahead - unfinished
        # A whole batch at a time, or as much as there will ever be room for: otherwise each event would cost a
        # statement.
        if room >= min(self._batch, max(1, ahead)) or unfinished < self._concurrency:
            return max(0, min(self._batch, room))
        return 0


class LoopTurn:
    """Counts the events that end in one turn of the event loop.

    Handlers that never wait for anything would finish a whole batch in one turn. The next claim would then be sent
    after the batch instead of during it, and other tasks of the loop would have to wait.
    """

    def __init__(self) -> None:
        self._ended = 0

    def is_over(self) -> bool:
        """Count one event; return whether its handler task should yield to the loop now."""
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._begin)
        self._ended += 1
        return self._ended >= _MAX_TURN_EVENTS

    def _begin(self) -> None:
        self._ended = 0


class Outage:
    """Back-off while the store is away. Logs once when an outage begins and once when it ends."""

    def __init__(self, what: str, *, first: float = 0.1, cap: float = 5.0) -> None:
        self._what = what
        self._first = first
        self._cap = cap
        self._failures = 0

    async def wait(self, error: Exception) -> None:
        """Count a failure and wait: 0.1 s, 0.2 s, … up to 5 s, with jitter so that workers do not return together."""
        if self._failures == 0:
            log.warning("cannot %s, trying again until the store answers: %s", self._what, error)
        delay = backoff(self._failures, self._first, self._cap, jitter=0.2)
        self._failures += 1
        await asyncio.sleep(delay)

    def over(self) -> None:
        """Record a success."""
        if self._failures:
            log.warning("can %s again after %d failed tries", self._what, self._failures)
            self._failures = 0


class Claimer:
    """Claims events ahead of the handlers. Sleeps until the bus, a due retry or the poll interval wakes it.

    ``claim`` returns deliveries and the time until which their leases hold at least. ``blocked`` returns whether too
    many verdicts wait to be written. ``is_over`` is called when nothing was claimed; if it returns True, the loop ends.
    """

    def __init__(
        self,
        claim: Callable[[int], Awaitable[tuple[list[Delivery], float]]],
        held: HeldDeliveries,
        pace: Prefetch,
        poll: float,
        blocked: Callable[[], bool],
        is_over: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._claim = claim
        self._held = held
        self._pace = pace
        self._poll = poll
        self._blocked = blocked
        self._is_over = is_over
        self._due_soon = 0.0  # when the last retry falls due that is not worth ending for, by the time of the loop
        self._wake = asyncio.Event()
        self._room = asyncio.Event()

    def wake(self) -> None:
        """Claim soon: events may have become claimable."""
        self._wake.set()

    def finished(self) -> None:
        """Record that a handler has ended: there may be room."""
        self._room.set()

    def flushed(self, due_in: list[float]) -> None:
        """Record that verdicts were written, among them retries that are due after so many seconds.

        The store wakes no subscriber when a retry falls due, so the worker sets a timer of its own.
        """
        self._room.set()
        if self._is_over is not None:
            self.wake()  # it may be over now
        loop = asyncio.get_running_loop()
        for delay in {one + 0.002 for one in due_in}:  # rather late than early
            loop.call_later(delay, self.wake)
            if delay <= self._poll:
                self._due_soon = max(self._due_soon, loop.time() + delay)

    async def run(self) -> None:
        """Claim until cancelled, or until ``is_over`` returns True."""
        outage = Outage("claim events")
        warming = asyncio.get_running_loop().call_later(_WARM_UP_SECONDS, self._warmed_up)
        try:
            await self._claim_all(outage)
        finally:
            warming.cancel()

    def _warmed_up(self) -> None:
        self._pace.warmed_up()
        self._room.set()

    async def _claim_all(self, outage: Outage) -> None:
        while True:
            self._room.clear()
            ask = 0 if self._blocked() else self._pace.ask(self._held.unfinished)
            if not ask:
                await self._room.wait()
                continue
            self._wake.clear()  # before the claim: what is published during it must not be missed
            try:
                claimed, valid_until = await self._claim(ask)
                outage.over()
                if not claimed and await self._ends():
                    return
            except (TransportUnavailable, StorageFull) as error:
                await outage.wait(error)
                continue
            self._held.add(claimed, valid_until)
            if len(claimed) < ask:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll * random.uniform(0.8, 1.2)):  # noqa: S311
                        await self._wake.wait()

    async def _ends(self) -> bool:
        soon = asyncio.get_running_loop().time() < self._due_soon
        return self._is_over is not None and not soon and await self._is_over()


class LeaseRenewer:
    """Renews every lease held, three times per lease, until the worker has settled or released all of them."""

    def __init__(self, bus: EventBus, held: HeldDeliveries, lease: float, stats: WorkerStats) -> None:
        self._bus = bus
        self._held = held
        self._lease = lease
        self._stats = stats

    async def run(self) -> None:
        """Renew until cancelled. It runs while the worker drains: handlers that finish late keep their lease."""
        while True:
            await asyncio.sleep(self._lease / 3)
            leased = list(self._held.leased)
            if leased:
                try:
                    await self.renew(leased)
                except (TransportUnavailable, StorageFull) as error:
                    log.warning("leases could not be renewed: %s", error)

    async def renew(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Renew leases; forget and return those that were lost."""
        started = time.monotonic()
        lost = await self._bus.extend(deliveries, self._lease)
        self._held.renewed(deliveries, started + self._lease)
        # What was settled during the renewal is not lost.
        lost = [delivery for delivery in lost if delivery in self._held.leased]
        self.give_up(lost)
        return lost

    def give_up(self, lost: list[Delivery]) -> None:
        """Forget leases that were lost."""
        if lost:
            self._held.forget(lost)
            self._stats.lease_lost(len(lost))
            for delivery in lost:
                log.warning("lease lost while the event was held", extra=delivery.log_fields())


class Settler:
    """Collects verdicts and writes them together.

    While one flush is under way the next batch gathers, so a slow store gets fewer calls, not more. A flush starts as
    soon as nothing else is left to do, so that the last event of a burst does not wait.
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
        """Settle as DONE with the next flush."""
        self._done.append(delivery)
        self._added()

    def retry(self, verdict: RetryVerdict) -> None:
        """Settle as PENDING with the next flush."""
        self._retry.append(verdict)
        self._added()

    def dead(self, verdict: DeadVerdict) -> None:
        """Settle as DEAD with the next flush."""
        self._dead.append(verdict)
        self._added()

    def _added(self) -> None:
        self._some.set()
        if not self._held.waiting or len(self._done) >= self._batch or self.backlog >= self._batch:
            self._now.set()

    def finish(self) -> None:
        """Write what is left, then end :meth:`run`. A flush under way is not cancelled: it may have succeeded."""
        self._finishing = True
        self._some.set()
        self._now.set()

    async def run(self) -> None:
        """Flush until :meth:`finish` is called."""
        outage = Outage("settle events")
        while not self._finishing or self.backlog:
            await self._some.wait()
            if not self._now.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LINGER_SECONDS):
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
        """Write the verdicts gathered so far. If the store fails, they are kept for the next try."""
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
                self._done, self._retry, self._dead = done + self._done, retry + self._retry, dead + self._dead
                self._added()
        self._held.leased.difference_update(done)
        self._held.leased.difference_update(item.delivery for item in retry)
        self._held.leased.difference_update(item.delivery for item in dead)
        if lost:
            self._stats.lease_lost(len(lost))
            for delivery in lost:
                log.warning("lease lost before the verdict was written", extra=delivery.log_fields())
        self._on_flush([item.after for item in retry])
