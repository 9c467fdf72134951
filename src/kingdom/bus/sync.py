"""Publish from synchronous code: Django, Flask, scripts."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kingdom.bus.envelope import DEFAULT_MAX_BYTES, check_stream
from kingdom.bus.errors import BusError, InvalidOption, TransactionMismatch
from kingdom.bus.eventbus import connect, unique_envelopes
from kingdom.bus.outbox import as_transaction, insert_statement
from kingdom.bus.transport import DirectTransport

if TYPE_CHECKING:
    from kingdom.bus.envelope import Envelope
    from kingdom.bus.eventbus import EventBus


# A bus for callers without an event loop: it stays open in the loop of a thread.


T = TypeVar("T")
# Seconds that a bus stays open for the next call. A connection nobody uses must not stay for ever: a firewall may have
# forgotten it meanwhile, and the server counts it.
IDLE_SECONDS: Final = 30.0
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


class BackgroundPublisher:
    """One store, served as by a :class:`~kingdom.bus.transport.DirectTransport`: any thread may call.

    The bus is opened by the first call, closed after ``idle`` seconds without one, and opened again by the next.
    """

    def __init__(self, thread: LoopThread, make: Callable[[], EventBus], idle: float = IDLE_SECONDS) -> None:
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


# Publishing from synchronous code: Django, Flask, scripts.


_MOST: Final = 16  # stores that are kept open


def publish_sync(
    stream: str,
    *envelopes: Envelope | Iterable[Envelope],
    tx: Any | None = None,
    url: str | None = None,
    schema: str | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> list[str]:
    """Publish from synchronous code; return the ids accepted now.

    With ``tx`` (psycopg, sqlite3, or SQLAlchemy's Session or Connection) the events join that transaction; ``schema``
    names the PostgreSQL schema of the bus when it is not on the search path. With ``url`` instead, they are published
    by themselves and durable on return. What that needs stays open for the next call: on SQLite and files in this
    thread, elsewhere in the event loop of a thread of its own.
    """
    check_stream(stream)
    unique = unique_envelopes(envelopes)
    if (tx is None) == (url is None):
        raise InvalidOption("publish_sync takes either tx= (your open transaction) or url= (the bus), one of them")
    if not unique:
        return []
    if url is not None:
        return _cache.find(url, max_bytes).publish_now(stream, unique)
    transaction = as_transaction(tx)
    if transaction.run_sync is None:
        raise TransactionMismatch("publish_sync needs a synchronous transaction; use `await bus.publish(…, tx=…)`")
    sql, params = insert_statement(transaction.dialect, stream, unique, max_bytes, schema)
    return [row[0] for row in transaction.run_sync(sql, params)]


class _PublisherCache:
    """What serves synchronous callers, open from one call to the next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = LoopThread()
        self._kept: dict[tuple[str, int, str], DirectTransport] = {}
        self._inherited: list[object] = []

    def find(self, url: str, max_bytes: int) -> DirectTransport:
        """What to publish through."""
        text = str(url)
        # A relative path means another file in another working directory.
        absolute = "://" in text and "://." not in text
        key = text, max_bytes, "" if absolute else str(Path.cwd())
        if found := self._kept.get(key):
            return found
        made = partial(connect, url, max_bytes=max_bytes)
        transport = made().transport
        place = transport if isinstance(transport, DirectTransport) else BackgroundPublisher(self._thread, made)
        with self._lock:
            while len(self._kept) >= _MOST:
                self._kept.pop(next(iter(self._kept))).close_now()
            return self._kept.setdefault(key, place)

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            for place in self._kept.values():
                place.close_now()
            self._kept.clear()
            self._thread.stop()

    def forget(self) -> None:
        """In a forked process: what the parent opened is neither used nor closed here, it is still the parent's."""
        self._inherited += [self._kept, self._thread]
        self._lock, self._thread, self._kept = threading.Lock(), LoopThread(), {}


_cache = _PublisherCache()
os.register_at_fork(after_in_child=_cache.forget)
atexit.register(_cache.close)
