"""The worker: claims events of one stream, runs their handlers, and writes the verdicts.

::

    bus.claim ──► Claimer ──► HeldDeliveries ──► handlers ──► Settler ──► bus.settle
                                     └────── LeaseRenewer ──────┘ bus.extend

A worker stops in this order. Each step needs the following ones to be still running:

1. the claimer stops: nothing new is claimed;
2. what was claimed but not started is released, so that others can claim it at once;
3. running handlers finish within ``grace`` while their leases are renewed;
4. what still runs is cancelled and released unharmed;
5. the last verdicts are written, then the renewer stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar
from weakref import WeakKeyDictionary

from kingdom.base.interrupts import InterruptHandler
from kingdom.bus.delivery import DeadVerdict, Delivery, RetryVerdict
from kingdom.bus.envelope import check_stream, check_worker
from kingdom.bus.errors import BusError, InvalidOption, Reject, Retry, StorageFull, TransportUnavailable
from kingdom.bus.eventbus import EventBus
from kingdom.bus.handlers import Classifier, Dispatcher, RetryPolicy, classify_failure, current_delivery_var
from kingdom.bus.metrics import WorkerStats
from kingdom.bus.options import Seconds, check_count, positive_seconds
from kingdom.bus.worker_loops import Claimer, HeldDeliveries, LeaseRenewer, LoopTurn, Prefetch, Settler, log

H = TypeVar("H", bound=Callable[..., object])
_LAST_FLUSH_SECONDS = 20.0  # that the last verdicts may take when the worker stops
_MAX_ERROR_CHARS = 4000  # of an error that is kept with the event


class Worker:
    """Handles the events of one stream until it is stopped.

    ``concurrency``: handlers at a time. ``batch``: events per claim and per settle. ``lease``: seconds after which the
    events of a dead worker are claimable again (renewed while handlers run). ``grace``: seconds that running handlers
    get to finish when the worker stops. ``poll``: seconds between claims when nothing wakes the worker. ``classify``:
    called with each exception first; returns ``"retry"``, ``"dead"`` or None for the default. ``signals``: drain on
    SIGTERM and SIGINT (in the main thread). ``rng``: the source of the retry jitter.
    """

    def __init__(
        self,
        bus: EventBus,
        stream: str,
        *,
        name: str = "worker",
        concurrency: int = 8,
        batch: int = 100,
        lease: Seconds = 30,
        grace: Seconds = 30,
        retry: RetryPolicy | None = None,
        poll: Seconds = 1.0,
        classify: Classifier | None = None,
        dispatcher: Dispatcher | None = None,
        signals: bool = True,
        rng: random.Random | None = None,
    ) -> None:
        if isinstance(bus, str):
            raise InvalidOption("Worker takes an open bus, not its URL: async with connect(url) as bus: Worker(bus, …)")
        check_count("Worker", "concurrency", concurrency)
        check_count("Worker", "batch", batch)
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise InvalidOption(f"Worker(retry={retry!r}): must be a RetryPolicy, as RetryPolicy(max_attempts=5)")
        if classify is not None and not callable(classify):
            raise InvalidOption(f"Worker(classify={classify!r}): must be a function of the exception")
        self.bus = bus
        self.stream = check_stream(stream)
        self.name = check_worker(name)
        self.retry_policy = retry or RetryPolicy()
        self.stats = WorkerStats(stream)
        self.dispatcher = dispatcher or Dispatcher()
        self._identity = process_identity(name)
        self._concurrency = concurrency
        self._batch = batch
        self._lease = positive_seconds("Worker(lease)", lease)
        self._grace = 0.0 if grace == 0 else positive_seconds("Worker(grace)", grace)
        self._poll = positive_seconds("Worker(poll)", poll)
        self._classify = classify
        self._signals = signals
        self._rng = rng
        self._held = HeldDeliveries()
        self._pace = Prefetch(concurrency, batch)
        self._stopping: asyncio.Event | None = None
        self._stop_asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._executor: ThreadPoolExecutor | None = None

    def on(self, *types: str) -> Callable[[H], H]:
        """Register a handler for event types: ``@worker.on("CreateOrderAttempt")``; ``"*"`` for all others."""
        return self.dispatcher.on(*types)

    def stop(self) -> None:
        """Make the worker drain and return from :meth:`run`. Safe from any thread, and before ``run``."""
        self._stop_asked = True
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None:
            with contextlib.suppress(RuntimeError):  # the loop has closed, so the worker has stopped
                loop.call_soon_threadsafe(stopping.set)

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until cancelled, until :meth:`stop` is called or until SIGTERM arrives; then drain.

        With ``until_idle`` it also ends when nothing that it could claim is left, for a scheduled job or a test.
        Events that wait for their time, or for a retry later than in ``poll`` seconds, stay for the next worker.
        """
        if self._loop is not None:
            raise InvalidOption("this worker is running already: create another one to run beside it")
        if self.dispatcher.types == []:
            raise InvalidOption("this worker has no handler: register one with @worker.on('EventType')")
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        if self._stop_asked:
            self._stopping.set()
        # Its threads start on demand: async handlers need none. The name shows in stack dumps.
        self._executor = ThreadPoolExecutor(self._concurrency, thread_name_prefix=f"kingdom-{self.name}")
        undo_signals = on_stop_signal(self.stop) if self._signals else lambda: None
        try:
            await self._work(self._stopping, until_idle)
        finally:
            undo_signals()
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._loop, self._stopping, self._executor, self._stop_asked = None, None, None, False

    # ── run ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _work(self, stopping: asyncio.Event, until_idle: bool) -> None:
        held, turn = self._held, LoopTurn()
        is_over = self._is_idle if until_idle else None
        claimer = Claimer(
            self._claim, held, self._pace, self._poll, lambda: settler.backlog >= 10 * self._batch, is_over
        )
        settler = Settler(self.bus, held, self._batch, self.stats, claimer.flushed)
        renewer = LeaseRenewer(self.bus, held, self._lease, self.stats)
        unsubscribe = self.bus.subscribe(self.stream, claimer.wake, types=self.dispatcher.types)
        handlers = [
            asyncio.create_task(self._handle_all(settler, claimer, renewer, turn), name=f"{self.name}-handler-{number}")
            for number in range(self._concurrency)
        ]
        claiming = asyncio.create_task(claimer.run(), name=f"{self.name}-claimer")
        settling = asyncio.create_task(settler.run(), name=f"{self.name}-settler")
        renewing = asyncio.create_task(renewer.run(), name=f"{self.name}-renewer")
        asked = asyncio.create_task(stopping.wait(), name=f"{self.name}-stop")
        everything = [claiming, settling, renewing, *handlers]
        try:
            await asyncio.wait([asked, *everything], return_when=asyncio.FIRST_COMPLETED)
            unstarted = held.drop_waiting()  # first: stopping the claimer may take as long as a claim under way
            await _end(claiming)
            await self._release(unstarted + held.drop_waiting())
            await self._finish_running(handlers, everything)
        finally:
            unsubscribe()
            asked.cancel()
            # Also when run() itself is cancelled: the same steps without grace.
            await _shielded(self._let_go(claiming, handlers, settling, renewing, settler))
        for task in everything:  # a loop that failed must not look like a clean stop
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error

    async def _finish_running(self, handlers: list[asyncio.Task[None]], everything: list[asyncio.Task[None]]) -> None:
        failed = any(task.done() and not task.cancelled() for task in everything)
        deadline = asyncio.get_running_loop().time() + (0 if failed else self._grace)
        while self._held.running and (left := deadline - asyncio.get_running_loop().time()) > 0:
            idle = asyncio.get_running_loop().create_future()
            self._on_idle = idle
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await idle

    _on_idle: asyncio.Future[None] | None = None

    async def _let_go(
        self,
        claiming: asyncio.Task[None],
        handlers: list[asyncio.Task[None]],
        settling: asyncio.Task[None],
        renewing: asyncio.Task[None],
        settler: Settler,
    ) -> None:
        await _end(claiming)
        unharmed = self._held.drop_waiting() + list(self._held.running)
        for task in handlers:
            task.cancel()
        await asyncio.wait(handlers, timeout=1.0)  # a handler that ignores its cancellation is abandoned
        settler.finish()
        await asyncio.wait([settling], timeout=_LAST_FLUSH_SECONDS)
        await _end(settling)
        await self._release([item for item in unharmed if item in self._held.leased])
        await _end(renewing)
        self._held.running.clear()
        self._held.leased.clear()

    async def _release(self, deliveries: list[Delivery]) -> None:
        if deliveries:
            with contextlib.suppress(BusError):
                await self.bus.release(deliveries)
            self._held.leased.difference_update(deliveries)
            self.stats.released(len(deliveries))

    async def _claim(self, limit: int) -> tuple[list[Delivery], float]:
        """Claim events; return them and the time until which their leases hold at least."""
        started = time.monotonic()
        claimed = await self._claim_whole(limit)
        if claimed and time.monotonic() - started > self._lease / 2:
            # The answer took so long that the leases may end before the renewer gets to them.
            with contextlib.suppress(TransportUnavailable, StorageFull):
                started, lost = time.monotonic(), await self.bus.extend(claimed, self._lease)
                self.stats.lease_lost(len(lost))
                claimed = [delivery for delivery in claimed if delivery not in lost]
        return claimed, started + self._lease

    async def _claim_whole(self, limit: int) -> list[Delivery]:
        claimed = asyncio.ensure_future(
            self.bus.claim(
                self.stream,
                worker=self._identity,
                limit=limit,
                lease=self._lease,
                types=self.dispatcher.types,
                max_attempts=self.retry_policy.max_attempts,
            )
        )
        try:
            return await asyncio.shield(claimed)
        except asyncio.CancelledError:
            # An interrupted claim would hold its events until the leases end: let it finish and release them.
            with contextlib.suppress(BusError):
                await self._release(await claimed)
            raise

    async def _is_idle(self) -> bool:
        """Whether nothing is left to claim or to settle. An empty claim is no proof: Kafka may assign shards later."""
        if self._held.leased:
            return False
        return not await self.bus.peek(self.stream, limit=1, types=self.dispatcher.types)

    # ── one event ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _handle_all(self, settler: Settler, claimer: Claimer, renewer: LeaseRenewer, turn: LoopTurn) -> None:
        held, task = self._held, asyncio.current_task()
        assert task is not None
        while not task.cancelling():  # a handler may have ignored a cancellation that was meant for this task
            delivery = held.next() or await held.take()
            try:
                if not held.is_doubtful(delivery) or await self._holds(delivery, renewer):
                    await self._handle(delivery, settler)
            finally:
                held.finish(delivery)
            claimer.finished()
            if self._on_idle is not None and not held.running and not self._on_idle.done():
                self._on_idle.set_result(None)
            if turn.is_over():
                await asyncio.sleep(0)

    async def _holds(self, delivery: Delivery, renewer: LeaseRenewer) -> bool:
        """Return whether the lease still holds, after an outage that was longer than the lease.

        The handler must not start otherwise: another worker may have claimed the event.
        """
        try:
            return not await renewer.renew([delivery])
        except (TransportUnavailable, StorageFull):
            renewer.give_up([delivery])
            return False

    async def _handle(self, delivery: Delivery, settler: Settler) -> None:
        envelope = delivery.envelope
        mark = current_delivery_var.set(delivery)
        started = perf_counter()
        try:
            await self.dispatcher.dispatch(envelope, self._executor)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the worker stops; it releases the event
            failure: BaseException | None = asyncio.CancelledError("the handler cancelled itself")
        except Exception as error:  # noqa: BLE001 - what a handler raises becomes a verdict
            failure = error
        else:
            failure = None
        finally:
            current_delivery_var.reset(mark)
        seconds = perf_counter() - started
        self._pace.handled(seconds)
        if failure is None:
            self.stats.handled(envelope.type, "done", seconds)
            settler.done(delivery)
        else:
            self._failed(delivery, failure, seconds, settler)

    def _failed(self, delivery: Delivery, error: BaseException, seconds: float, settler: Settler) -> None:
        fate, code, message, after = classify_failure(error, self._classify)
        code, message = code[:_MAX_ERROR_CHARS], message[:_MAX_ERROR_CHARS].replace("\0", "")
        fields = {**delivery.log_fields(), "errorCode": code}
        # Retry and Reject say why. Of any other error somebody needs the traceback.
        on_purpose = isinstance(error, (Retry, Reject))
        why = message if on_purpose or message == code else f"{code}: {message}"
        event = f"event {delivery.event_id} of {delivery.stream}"
        if fate == "dead" or delivery.attempt >= self.retry_policy.max_attempts:
            self.stats.handled(delivery.envelope.type, "dead", seconds)
            settler.dead(DeadVerdict(delivery, code, message))
            traceback = None if on_purpose else error
            log.error("%s is dead after attempt %d: %s", event, delivery.attempt, why, extra=fields, exc_info=traceback)
            return
        delay = self.retry_policy.delay(delivery.attempt, self._rng) if after is None else after
        self.stats.handled(delivery.envelope.type, "retry", seconds)
        settler.retry(RetryVerdict(delivery, delay, code, message))
        said = "%s: attempt %d failed, again in %.2f s: %s", event, delivery.attempt, delay, why
        if on_purpose or delivery.attempt > 1:
            log.info(*said, extra=fields)
        else:  # once for each event, at the level that Python prints when nothing configures logging
            log.warning(*said, extra=fields, exc_info=error)


def process_identity(name: str) -> str:
    """Return the name under which leases are held, for operators: worker, host and process."""
    host = re.sub(r"[^A-Za-z0-9.\-]", "-", socket.gethostname())[:60]
    return f"{name[:100]}@{host}:{os.getpid()}"


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended. Its exception is not raised here."""
    task.cancel()
    await asyncio.wait([task])


async def _shielded(step: Coroutine[object, object, None]) -> None:
    """Run the last steps to the end even while the surrounding task is cancelled."""
    task = asyncio.ensure_future(step)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


# ── signals ───────────────────────────────────────────────────────────────────────────────────────────────────────

_listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], None]]] = WeakKeyDictionary()
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def on_stop_signal(callback: Callable[[], None]) -> Callable[[], None]:
    """Call ``callback`` on SIGTERM and SIGINT; return the undo. Every worker of the event loop is drained.

    Only in the main thread, and only for signals without a handler of the application: otherwise the application
    decides, and calls ``worker.stop()`` itself. The first signal drains; a second one has its default effect.
    """
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    listeners = _listeners.setdefault(loop, [])
    if not listeners:
        for number in _SIGNALS:
            if _has_default_handler(signal.getsignal(number)):
                with contextlib.suppress(NotImplementedError):  # event loops without signal support
                    loop.add_signal_handler(number, _notify, loop, listeners)
    listeners.append(callback)

    def undo() -> None:
        listeners.remove(callback)
        if not listeners:
            _uninstall(loop)

    return undo


def _notify(loop: asyncio.AbstractEventLoop, listeners: list[Callable[[], None]]) -> None:
    _uninstall(loop)
    for listener in list(listeners):
        listener()


def _uninstall(loop: asyncio.AbstractEventLoop) -> None:
    for number in _SIGNALS:
        loop.remove_signal_handler(number)


def _has_default_handler(handler: object) -> bool:
    """Return whether this is the default handler, or one that only interrupts the running coroutine."""
    if handler in (signal.SIG_DFL, signal.default_int_handler) or isinstance(handler, InterruptHandler):
        return True
    return getattr(getattr(handler, "func", None), "__qualname__", "") == "Runner._on_sigint"
