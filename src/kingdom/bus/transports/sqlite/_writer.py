"""The one thread that writes, and group commit.

Operations are queued to it as functions of the connection. It takes everything that is queued into one transaction:
publishers that come at the same time then share one commit, and so one wait for the disk. An operation that fails is
undone by its savepoint and leaves the others alone. Callers hear of their operation when the transaction has committed,
never before; when the commit fails, everybody in it hears that.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from kingdom.bus.errors import BusError
from kingdom.bus.transports.sqlite._errors import must_reconnect, translate
from kingdom.bus.transports.sqlite._store import Store

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]
_MAX_GROUP: Final = 512  # operations in one transaction: a bound on how long the write lock is held


@dataclass(slots=True, eq=False)
class _Job:
    operation: Operation[Any]
    after: Callable[[Any], None] | None
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None

    def resolve(self) -> None:
        """Tell the caller, in its loop. ``after`` runs even if nobody waits any more: it happened."""
        if self.error is None and self.after is not None:
            self.after(self.result)
        if self.future.done():  # cancelled meanwhile
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Writer:
    """The write connection of one bus, owned by a thread of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._gate = threading.Lock()  # nothing is queued behind the mark that ends the thread

    async def run(self, operation: Operation[T], after: Callable[[T], None] | None = None) -> T:
        """Run ``operation`` in the next transaction and return its result once that has committed.

        ``after`` is called with the result then, in the loop, whether or not the caller still waits.
        """
        loop = asyncio.get_running_loop()
        job = _Job(operation, after, loop, loop.create_future())
        with self._gate:
            if self._closed:
                raise BusError(f"the bus at {self._store.path} is closed")
            if self._thread is None:
                # A daemon: a program that forgets to close the bus must still be able to end.
                self._thread = threading.Thread(target=self._work, name="kingdom-sqlite-writer", daemon=True)
                self._thread.start()
            self._queue.put(job)
        return await job.future  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Finish what is queued, then disconnect. Safe to call twice."""
        with self._gate:
            self._closed = True
            thread, self._thread = self._thread, None
            if thread is not None:
                self._queue.put(None)
        if thread is not None:
            await asyncio.to_thread(thread.join)

    # ── the thread ────────────────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        going_on = True
        while going_on:
            group, going_on = self._gather()
            if group:
                self._commit(group)
                _resolve(group)
        self._disconnect()

    def _gather(self) -> tuple[list[_Job], bool]:
        """Wait for something to do, then take everything there is."""
        group: list[_Job] = []
        item = self._queue.get()
        with contextlib.suppress(Empty):
            while item is not None:
                if not item.future.cancelled():
                    group.append(item)
                if len(group) == _MAX_GROUP:
                    return group, True
                item = self._queue.get_nowait()
            return group, False
        return group, True

    def _commit(self, group: list[_Job]) -> None:
        try:
            connection = self._connect()
            connection.execute("BEGIN IMMEDIATE")
            for job in group:
                self._run_one(connection, job, alone=len(group) == 1)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it is, everybody who waits must hear of it
            for job in group:
                if job.error is None:
                    job.error = translate(error, self._store.path)
            self._roll_back(error)

    def _run_one(self, connection: sqlite3.Connection, job: _Job, *, alone: bool) -> None:
        """Run one operation so that it can fail by itself. Raises what ends the whole transaction."""
        if not alone:
            connection.execute("SAVEPOINT operation")
        try:
            job.result = job.operation(connection)
        except Exception as error:
            job.error = translate(error, self._store.path)
            if not connection.in_transaction:  # SQLite gave up all of it: a full disk, an I/O error
                raise
            connection.execute("ROLLBACK" if alone else "ROLLBACK TO operation")
            if must_reconnect(error):
                raise
        if not alone:
            connection.execute("RELEASE operation")

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._store.connect()
        return self._connection

    def _roll_back(self, error: Exception) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()
        if must_reconnect(error):
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _resolve(group: list[_Job]) -> None:
    """Hand the results to the loops they are waited for in, one wake-up for each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in group:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            loop.call_soon_threadsafe(_resolve_all, jobs)


def _resolve_all(jobs: list[_Job]) -> None:
    for job in jobs:
        job.resolve()
