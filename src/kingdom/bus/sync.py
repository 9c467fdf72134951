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


T = TypeVar("T")
# A bus stays open so long for the next call. An unused connection must not stay forever: a firewall may drop it
# silently, and it counts against the limit of the server.
IDLE_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 5.0  # that closing may take


class LoopThread:
    """An event loop in a daemon thread, started by the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run ``work`` in the loop and wait for it; an interrupted wait cancels the work."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return future.result(timeout)
        except BaseException:  # also KeyboardInterrupt
            future.cancel()
            raise

    def stop(self) -> None:
        """Stop the thread. Safe to call twice; the next call starts another."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_CLOSE_SECONDS)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                self._loop = runner.get_loop()
                self._thread = threading.Thread(target=_turn, args=(runner,), name="kingdom-publish", daemon=True)
                self._thread.start()
            return self._loop


def _turn(runner: asyncio.Runner) -> None:
    with runner:  # on exit it cancels the calls that are still waited for
        runner.get_loop().run_forever()


class BackgroundPublisher:
    """Serves one store as a :class:`~kingdom.bus.transport.DirectTransport` does: any thread may call.

    The bus is opened by the first call, closed after ``idle`` seconds without one, and opened again by the next.
    """

    def __init__(self, thread: LoopThread, make: Callable[[], EventBus], idle: float = IDLE_SECONDS) -> None:
        self._thread = thread
        self._make = make
        self._idle = idle
        # Everything below is used in the loop only.
        self._opening: asyncio.Task[EventBus] | None = None
        self._calls = 0
        self._leaving: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._retired = False

    def publish_now(self, stream: str, envelopes: Sequence[Envelope]) -> list[str]:
        """Publish, durable on return."""
        return self._thread.run(self._publish(stream, envelopes))

    def close_now(self) -> None:
        """Close the bus after the publishes under way. Safe to call twice."""
        with contextlib.suppress(TimeoutError):  # do not wait for a store that is away
            self._thread.run(self._retire(), _CLOSE_SECONDS)

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
        """Return the bus. Callers that come while it is being opened share the result."""
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
        """Close the idle bus; the next call opens another."""
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
    if not opening.done():  # the caller that waited for it was interrupted
        opening.cancel()
    with contextlib.suppress(BusError, OSError, asyncio.CancelledError):  # everything published is durable already
        bus = await opening
        await bus.close()


_MAX_OPEN_STORES: Final = 16


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
    names the PostgreSQL schema of the bus if it is not on the search path. With ``url`` instead, they are published
    in a transaction of their own and durable on return. Connections stay open for the next call: on SQLite and files in
    this thread, elsewhere in the event loop of a background thread.
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
    return [row[0] for row in transaction.run_now(sql, params)]


class _PublisherCache:
    """The publishers of synchronous callers, open from one call to the next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = LoopThread()
        self._kept: dict[tuple[str, int, str], DirectTransport] = {}
        self._inherited: list[object] = []

    def find(self, url: str, max_bytes: int) -> DirectTransport:
        """Return the publisher for a URL."""
        text = str(url)
        # A relative path names another file after a change of the working directory.
        absolute = "://" in text and "://." not in text
        key = text, max_bytes, "" if absolute else str(Path.cwd())
        if found := self._kept.get(key):
            return found
        made = partial(connect, url, max_bytes=max_bytes)
        transport = made().transport
        place = transport if isinstance(transport, DirectTransport) else BackgroundPublisher(self._thread, made)
        with self._lock:
            while len(self._kept) >= _MAX_OPEN_STORES:
                self._kept.pop(next(iter(self._kept))).close_now()
            return self._kept.setdefault(key, place)

    def close(self) -> None:
        with self._lock:
            for place in self._kept.values():
                place.close_now()
            self._kept.clear()
            self._thread.stop()

    def forget(self) -> None:
        """Start empty in a forked process: what the parent opened is neither used nor closed here."""
        self._inherited += [self._kept, self._thread]
        self._lock, self._thread, self._kept = threading.Lock(), LoopThread(), {}


_cache = _PublisherCache()
os.register_at_fork(after_in_child=_cache.forget)
atexit.register(_cache.close)
