"""The worker: claims events of one stream, runs handlers, writes verdicts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar
from weakref import WeakKeyDictionary

from kingdom.bus.delivery import DeadVerdict, Delivery, RetryVerdict
from kingdom.bus.envelope import check_stream, check_worker
from kingdom.bus.errors import BusError, InvalidOption
from kingdom.bus.eventbus import EventBus, Seconds, positive_seconds
from kingdom.bus.handlers import Classifier, Dispatcher, RetryPolicy, classify_failure, current_delivery_var
from kingdom.bus.metrics import WorkerStats
from kingdom.bus.worker_loops import Claimer, HeldDeliveries, LeaseRenewer, LoopTurn, Prefetch, Settler, log

# SIGTERM and SIGINT drain every worker of the event loop, however many there are.


_listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], None]]] = WeakKeyDictionary()
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def on_stop_signal(callback: Callable[[], None]) -> Callable[[], None]:
    """Have ``callback`` called on SIGTERM and SIGINT; returns the undo.

    Only in the main thread, and only where nobody installed a handler of their own: then the application decides,
    and calls ``worker.stop()`` itself. The first signal drains; a second one does what it always does.
    """
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    listeners = _listeners.setdefault(loop, [])
    if not listeners:
        for number in _SIGNALS:
            if _is_nobodys(signal.getsignal(number)):
                with contextlib.suppress(NotImplementedError):  # event loops without signal support
                    loop.add_signal_handler(number, _tell, loop, listeners)
    listeners.append(callback)

    def undo() -> None:
        listeners.remove(callback)
        if not listeners:
            _uninstall(loop)

    return undo


def _tell(loop: asyncio.AbstractEventLoop, listeners: list[Callable[[], None]]) -> None:
    _uninstall(loop)
    for listener in list(listeners):
        listener()


def _uninstall(loop: asyncio.AbstractEventLoop) -> None:
    for number in _SIGNALS:
        loop.remove_signal_handler(number)


def _is_nobodys(handler: object) -> bool:
    """Whether a signal has its default handler, or the one asyncio.run() puts on SIGINT."""
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    return getattr(getattr(handler, "func", None), "__qualname__", "") == "Runner._on_sigint"


# The worker itself: what it is made of, and the order in which it stops.
#
# ::
#
# bus.claim ──► Feeder ──► Held.waiting ──► handlers ──► Settler ──► bus.settle
# └──────── Renewer ────────┘ bus.extend
#
# Stopping, in this order, each step relying on the ones after it still running:
#
# 1. the feeder stops: nothing new is claimed;
# 2. what was claimed but not started is released, claimable by others at once;
# 3. running handlers finish within ``grace``, their leases renewed all the while;
# 4. what is still running is cancelled and released unharmed;
# 5. the last verdicts are written; then the renewer ends.


H = TypeVar("H", bound=Callable[..., object])
_LAST_WORDS = 20.0  # seconds the last verdicts may take to be written when the worker stops
_MAX_MESSAGE = 4000  # characters of an error kept with the event


class Worker:
    """Handles the events of one stream until told to stop.

    ``concurrency``: handlers at a time. ``batch``: events per claim and per settle. ``lease``: seconds after which the
    events of a dead worker are claimable again (renewed while handlers run). ``grace``: seconds running handlers get
    to finish when the worker stops. ``poll``: seconds between looks at the stream when nothing wakes the worker.
    ``classify``: asked about each exception first; returns ``"retry"``, ``"dead"`` or None for the default.
    ``signals``: drain on SIGTERM and SIGINT (in the main thread). ``rng``: where the retry jitter comes from.
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
        for what, value in (("concurrency", concurrency), ("batch", batch)):
            if value < 1:
                raise InvalidOption(f"Worker({what}={value}): must be 1 or more")
        self.bus = bus
        self.stream = check_stream(stream)
        self.name = check_worker(name)
        self.retry_policy = retry or RetryPolicy()
        self.stats = WorkerStats(stream)
        self.dispatcher = dispatcher or Dispatcher()
        self._identity = _identity(name)
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
        """Ask the worker to drain and return from :meth:`run`. Safe from any thread, and before ``run``."""
        self._stop_asked = True
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None:
            with contextlib.suppress(RuntimeError):  # the loop may have closed meanwhile: then we are stopped
                loop.call_soon_threadsafe(stopping.set)

    async def run(self) -> None:
        """Work until cancelled, :meth:`stop` is called, or SIGTERM arrives; then drain."""
        if self._loop is not None:
            raise InvalidOption("this worker is running already: make another one to run beside it")
        if self.dispatcher.types == []:
            raise InvalidOption("this worker has no handler: register one with @worker.on('EventType')")
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        if self._stop_asked:
            self._stopping.set()
        # Named so that a stack dump says whose threads these are. Made on demand: async handlers need none.
        self._executor = ThreadPoolExecutor(self._concurrency, thread_name_prefix=f"kingdom-{self.name}")
        undo_signals = on_stop_signal(self.stop) if self._signals else _nothing
        try:
            await self._work(self._stopping)
        finally:
            undo_signals()
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._loop, self._stopping, self._executor, self._stop_asked = None, None, None, False

    # ── the run ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _work(self, stopping: asyncio.Event) -> None:
        held, turn = self._held, LoopTurn()
        feeder = Claimer(self._claim, held, self._pace, self._poll, lambda: settler.backlog >= 10 * self._batch)
        settler = Settler(self.bus, held, self._batch, self.stats, feeder.flushed)
        renewer = LeaseRenewer(self.bus, held, self._lease, self.stats)
        unsubscribe = self.bus.subscribe(self.stream, feeder.wake)
        handlers = [
            asyncio.create_task(self._handle_all(settler, feeder, turn), name=f"{self.name}-handler-{number}")
            for number in range(self._concurrency)
        ]
        feeding = asyncio.create_task(feeder.run(), name=f"{self.name}-feeder")
        settling = asyncio.create_task(settler.run(), name=f"{self.name}-settler")
        renewing = asyncio.create_task(renewer.run(), name=f"{self.name}-renewer")
        asked = asyncio.create_task(stopping.wait(), name=f"{self.name}-stop")
        everything = [feeding, settling, renewing, *handlers]
        try:
            await asyncio.wait([asked, *everything], return_when=asyncio.FIRST_COMPLETED)
            unstarted = held.drop_waiting()  # at once: ending the feeder may take as long as a claim under way
            await _end(feeding)
            await self._release(unstarted + held.drop_waiting())
            await self._finish_running(handlers, everything)
        finally:
            unsubscribe()
            asked.cancel()
            # Also the way out when run() itself is cancelled: the same steps with no grace left.
            await _shielded(self._let_go(feeding, handlers, settling, renewing, settler))
        for task in everything:  # a loop that died of a bug must not look like a clean stop
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
        feeding: asyncio.Task[None],
        handlers: list[asyncio.Task[None]],
        settling: asyncio.Task[None],
        renewing: asyncio.Task[None],
        settler: Settler,
    ) -> None:
        await _end(feeding)
        unharmed = self._held.drop_waiting() + list(self._held.running)
        for task in handlers:
            task.cancel()
        await asyncio.wait(handlers, timeout=1.0)  # a handler that swallows its cancellation is left behind
        settler.finish()
        await asyncio.wait([settling], timeout=_LAST_WORDS)
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

    async def _claim(self, limit: int) -> list[Delivery]:
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
            # A claim cut off half way would hold its events until the lease ends: let it finish and give them back.
            with contextlib.suppress(BusError):
                await self._release(await claimed)
            raise

    # ── one event ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _handle_all(self, settler: Settler, feeder: Claimer, turn: LoopTurn) -> None:
        held, task = self._held, asyncio.current_task()
        assert task is not None
        while not task.cancelling():  # a handler may have swallowed its cancellation: it was meant for us
            delivery = held.next() or await held.take()
            try:
                await self._handle(delivery, settler)
            finally:
                held.running.discard(delivery)
            feeder.finished()
            if self._on_idle is not None and not held.running and not self._on_idle.done():
                self._on_idle.set_result(None)
            if turn.is_over():
                await asyncio.sleep(0)

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
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is a verdict, not our failure
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
        code, message = code[:_MAX_MESSAGE], message[:_MAX_MESSAGE].replace("\0", "")
        fields = {**delivery.log_fields(), "errorCode": code}
        if fate == "dead" or delivery.attempt >= self.retry_policy.max_attempts:
            self.stats.handled(delivery.envelope.type, "dead", seconds)
            settler.dead(DeadVerdict(delivery, code, message))
            log.error("event is dead after attempt %d: %s", delivery.attempt, message, extra=fields)
            return
        delay = self.retry_policy.delay(delivery.attempt, self._rng) if after is None else after
        self.stats.handled(delivery.envelope.type, "retry", seconds)
        settler.retry(RetryVerdict(delivery, delay, code, message))
        log.info("attempt %d failed, again in %.2f s: %s", delivery.attempt, delay, message, extra=fields)


def _identity(name: str) -> str:
    """Who holds a lease, for people who look: name, host and process."""
    host = re.sub(r"[^A-Za-z0-9.\-]", "-", socket.gethostname())[:60]
    return f"{name[:100]}@{host}:{os.getpid()}"


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it is gone; what it raised is looked at elsewhere."""
    task.cancel()
    await asyncio.wait([task])


async def _shielded(step: Coroutine[object, object, None]) -> None:
    """Run the last steps to their end even while the surrounding task is being cancelled."""
    task = asyncio.ensure_future(step)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _nothing() -> None:
    """The undo of what was not done."""


# The worker: claims events of one stream, runs handlers, writes what became of them.


__all__ = ["Worker"]
