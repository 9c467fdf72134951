"""A bus for callers without an event loop: it stays open in the loop of a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kingdom.bus.errors import BusError

if TYPE_CHECKING:
    from kingdom.bus.envelope import Envelope
    from kingdom.bus.eventbus import EventBus

T = TypeVar("T")
# Seconds that a bus stays open for the next call. A connection nobody uses must not stay for ever: a firewall may have
# forgotten it meanwhile, and the server counts it.
IDLE: Final = 30.0
_LEAVE: Final = 5.0  # seconds that closing may take


class LoopThread:
    """An event loop in a thread of its own, begun with the first call. The thread does not keep a process alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Do ``work`` in the loop and wait for it; whatever ends the waiting ends the work."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return future.result(timeout)
        except BaseException:  # an interrupt, too
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread. Safe to call twice; the next call begins another."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_LEAVE)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                self._loop = runner.get_loop()
                self._thread = threading.Thread(target=_turn, args=(runner,), name="kingdom-publish", daemon=True)
                self._thread.start()
            return self._loop


def _turn(runner: asyncio.Runner) -> None:
    with runner:  # which in the end cancels what callers wait for whose process ends under them
        runner.get_loop().run_forever()


class Background:
    """One store, served as by a :class:`~kingdom.bus.transport.DirectTransport`: any thread may call.

    The bus is opened by the first call, closed after ``idle`` seconds without one, and opened again by the next.
    """

    def __init__(self, thread: LoopThread, make: Callable[[], EventBus], idle: float = IDLE) -> None:
        self._thread = thread
        self._make = make
        self._idle = idle
        # All that follows is touched in the loop only.
        self._opening: asyncio.Task[EventBus] | None = None
        self._calls = 0
        self._leaving: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._retired = False

    def publish_now(self, stream: str, envelopes: Sequence[Envelope]) -> list[str]:
        """Publish, durable on return."""
        return self._thread.run(self._publish(stream, envelopes))

    def close_now(self) -> None:
        """Close the bus, as soon as those who publish at this moment are through. Safe to call twice."""
        with contextlib.suppress(TimeoutError):  # a store that is away is not waited for
            self._thread.run(self._retire(), _LEAVE)

    async def _publish(self, stream: str, envelopes: Sequence[Envelope]) -> list[str]:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        self._calls += 1
        try:
            bus = await self._open()
            return await bus.transport.publish(stream, envelopes, None)
        finally:
            self._calls -= 1
            if not self._calls:
                pause = 0.0 if self._retired else self._idle
                self._leaving = asyncio.get_running_loop().call_later(pause, self._leave)

    async def _open(self) -> EventBus:
        """The bus. Callers that come while it is being opened wait together, and fail together."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._opened())
            self._opening.add_done_callback(self._look_at)
        return await asyncio.shield(self._opening)

    async def _opened(self) -> EventBus:
        bus = self._make()
        await bus.open()
        return bus

    def _look_at(self, opening: asyncio.Task[EventBus]) -> None:
        failed = opening.cancelled() or opening.exception() is not None
        if failed and self._opening is opening:
            self._opening = None  # the next call tries again

    def _leave(self) -> None:
        """Close what nobody uses; whoever comes now opens it anew."""
        self._leaving = None
        opening, self._opening = self._opening, None
        if opening is not None:
            closing = asyncio.ensure_future(_close(opening))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _retire(self) -> None:
        self._retired = True
        if self._leaving is not None:
            self._leaving.cancel()
        if not self._calls:
            self._leave()
        while self._closing:
            await asyncio.wait(self._closing)


async def _close(opening: asyncio.Task[EventBus]) -> None:
    if not opening.done():  # whoever waited for it was interrupted
        opening.cancel()
    with contextlib.suppress(BusError, OSError, asyncio.CancelledError):  # nothing that was published depends on it
        bus = await opening
        await bus.close()
