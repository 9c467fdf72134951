"""The write connection: group commit in one thread, and publishing from a caller's thread.

Operations are queued to the thread as functions of the connection. It runs everything that is queued in one
transaction, so publishers that come at the same time share one commit and one wait for the disk. When an operation
fails, the transaction is rolled back and every operation runs once more, each within a savepoint, so that only the
failing one is undone: operations must be repeatable. Callers get their result after the commit, never before. When
the commit fails, every caller in the transaction gets the error.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from kingdom.bus.errors import BusError
from kingdom.bus.transports.sqlite._store import SqliteStore, must_reconnect, not_set_up, translate

if TYPE_CHECKING:
    from kingdom.bus.transports.sqlite._transport import PublishOperation

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]
_MIN_LOCK_PAUSE_SECONDS: Final = 0.0001  # between two tries to get the write lock
_MAX_LOCK_PAUSE_SECONDS: Final = 0.005
_MAX_GROUP: Final = 512  # operations in one transaction: other processes want the write lock too
_BUSY_SECONDS: Final = 0.005  # after a transaction, during which a change of the log is taken for our own


class WriteConnection:
    """A write connection, opened on first use and reopened after an error that makes it unreliable."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._connection: sqlite3.Connection | None = None

    def get(self) -> sqlite3.Connection:
        """Return the connection. It does not wait for the write lock; :meth:`with_patience` does."""
        if self._connection is None:
            self._connection = self._store.connect()
            self._connection.execute("PRAGMA busy_timeout = 0")
        return self._connection

    def begin(self) -> sqlite3.Connection:
        """Begin a transaction with the write lock taken, and return the connection."""
        connection = self.get()
        self.with_patience(lambda: connection.execute("BEGIN IMMEDIATE"))
        return connection

    def with_patience(self, step: Callable[[], T]) -> T:
        """Run ``step``, which needs the write lock, again and again while other connections hold the lock.

        SQLite's own way of waiting sleeps for 1 to 100 ms, when most commits end much sooner.
        """
        deadline = time.monotonic() + self._store.patience
        pause = _MIN_LOCK_PAUSE_SECONDS
        while True:
            try:
                return step()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(pause)
                pause = min(_MAX_LOCK_PAUSE_SECONDS, 1.5 * pause)

    def roll_back(self, error: BaseException) -> None:
        """Undo what an error left, so that the next transaction can begin."""
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()
        if must_reconnect(error):
            self.close()

    def close(self) -> None:
        """Disconnect. Safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


class Mergeable(ABC, Generic[T]):
    """An operation that runs together with its neighbours of the same class at less than the cost of each."""

    @abstractmethod
    def __call__(self, connection: sqlite3.Connection) -> T:
        """Run alone."""

    @abstractmethod
    def together(self, connection: sqlite3.Connection, calls: Sequence[Self]) -> list[T]:
        """Run all of ``calls``, of which this is the first; return the result of each."""


class RunAgain(Exception):
    """Raised by an operation that must be undone and called once more: it then works in another way."""


@dataclass(slots=True, eq=False)
class _Job:
    operation: Operation[Any]
    after: Callable[[Any], None] | None
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None

    def resolve(self) -> None:
        """Hand the result to the caller, in its loop. ``after`` runs even if the caller was cancelled."""
        if self.error is None and self.after is not None:
            self.after(self.result)
        if self.future.done():  # the caller was cancelled
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class SqliteWriter:
    """The write connection of one bus, owned by a thread of its own."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._arriving: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        self._queue: SimpleQueue[list[_Job] | None] = SimpleQueue()  # None ends the thread
        self._thread: threading.Thread | None = None
        self._connection = WriteConnection(store)
        self._closed = False
        self._last = 0.0  # when a transaction began or ended
        self._gate = threading.Lock()  # nothing is queued after the None that ends the thread

    async def run(self, operation: Operation[T], after: Callable[[T], None] | None = None) -> T:
        """Run ``operation`` in the next transaction and return its result once that has committed.

        ``after`` is then called with the result, in the loop, even if the caller was cancelled.
        """
        loop = asyncio.get_running_loop()
        job = _Job(operation, after, loop, loop.create_future())
        with self._gate:
            if self._closed:
                raise BusError(f"the bus at {self._store.path} is closed")
            if arriving := self._arriving.get(loop):
                arriving.append(job)
            else:
                # Handed over after the loop has run everything that is ready now: callers that publish at the same
                # time then arrive together, and the thread is woken once for all of them.
                self._arriving[loop] = [job]
                loop.call_soon(self._hand_over, loop)
        return await job.future  # type: ignore[no-any-return]

    @property
    def busy(self) -> bool:
        """Whether it is writing, or was a moment ago."""
        return time.monotonic() - self._last < _BUSY_SECONDS

    async def close(self) -> None:
        """Finish what is queued, then disconnect. Safe to call twice."""
        with self._gate:
            self._closed = True
        for loop in list(self._arriving):
            self._hand_over(loop)
        with self._gate:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._queue.put(None)
        if thread is not None:
            await asyncio.to_thread(thread.join)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._gate:
            jobs = self._arriving.pop(loop, None)
            if not jobs:
                return
            if self._thread is None:
                # A daemon: a program that forgets to close the bus must still be able to end.
                self._thread = threading.Thread(target=self._work, name="kingdom-sqlite-writer", daemon=True)
                self._thread.start()
            self._queue.put(jobs)

    # ── the thread ────────────────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        running = True
        while running:
            group, running = self._gather()
            if group:
                self._last = time.monotonic()
                self._commit(group)
                self._last = time.monotonic()
                _resolve(group)
        self._connection.close()

    def _gather(self) -> tuple[list[_Job], bool]:
        """Wait for jobs, then take everything that is queued; also return whether to go on."""
        group: list[_Job] = []
        arrived = self._queue.get()
        with contextlib.suppress(Empty):
            while arrived is not None:
                group += [job for job in arrived if not job.future.cancelled()]
                if len(group) >= _MAX_GROUP:
                    return group, True
                arrived = self._queue.get_nowait()
            return group, False
        return group, True

    def _commit(self, group: list[_Job]) -> None:
        try:
            connection = self._connection.begin()
            try:
                _run_together(connection, group)
            except Exception as error:
                if not _transaction_survived(connection, error):
                    raise
                connection.execute("ROLLBACK")
                self._connection.begin()
                self._run_apart(connection, group)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - every caller that waits must get it
            for job in group:
                job.error = job.error or translate(error, self._store.path)
            self._connection.roll_back(error)

    def _run_apart(self, connection: sqlite3.Connection, group: list[_Job]) -> None:
        """Run each job so that it fails, and is undone, alone."""
        for job in group:
            connection.execute("SAVEPOINT operation")
            try:
                try:
                    job.result = job.operation(connection)
                except RunAgain:
                    connection.execute("ROLLBACK TO operation")
                    job.result = job.operation(connection)
            except Exception as error:
                if not _transaction_survived(connection, error):
                    raise
                job.error = translate(error, self._store.path)
                connection.execute("ROLLBACK TO operation")
            connection.execute("RELEASE operation")


def _run_together(connection: sqlite3.Connection, group: list[_Job]) -> None:
    """Run everything, neighbours of one kind as one, assuming that nothing fails.

    A savepoint for each job would cost two statements more, and beside a busy event loop every statement is a wait for
    the interpreter lock.
    """
    for _, some in groupby(group, key=_kind):
        first, *others = some
        if not others:
            first.result = first.operation(connection)
            continue
        jobs = [first, *others]
        calls: list[Any] = [job.operation for job in jobs]  # all Mergeable, and of one class
        for job, result in zip(jobs, calls[0].together(connection, calls), strict=True):
            job.result = result


def _transaction_survived(connection: sqlite3.Connection, error: Exception) -> bool:
    """Return whether the transaction still exists after an error: SQLite gives it up when a disk is full or fails."""
    return connection.in_transaction and not must_reconnect(error)


def _kind(job: _Job) -> object:
    """Return the same value for jobs that can run together."""
    return type(job.operation) if isinstance(job.operation, Mergeable) else job


def _resolve(group: list[_Job]) -> None:
    """Hand the results to the loops of their callers, with one wake-up for each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in group:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(_resolve_all, jobs)


def _resolve_all(jobs: list[_Job]) -> None:
    for job in jobs:
        job.resolve()


class SyncSqlitePublisher:
    """Publishes in the thread of a caller without an event loop.

    The connection stays open between calls; threads take turns.
    """

    def __init__(self, store: SqliteStore) -> None:
        self._path = Path(store.path)
        self._lock = threading.Lock()
        self._connection = WriteConnection(store)
        self._file: tuple[int, int] | None = None  # device and inode of the file that is open

    def publish(self, publish: PublishOperation) -> list[str]:
        """Publish, durable on return."""
        with self._lock:
            self._follow_file()
            try:
                if len(publish.rows) == 1:  # one statement is a transaction of its own
                    connection = self._connection.get()
                    return self._connection.with_patience(lambda: publish(connection))
                connection = self._connection.begin()
                accepted = publish(connection)
                connection.execute("COMMIT")
            except BaseException as error:  # an interrupt must not leave the file locked either
                self._connection.roll_back(error)
                if isinstance(error, sqlite3.Error):
                    raise translate(error, str(self._path)) from error
                raise
            return accepted

    def close(self) -> None:
        """Disconnect. Safe to call twice."""
        with self._lock:
            self._connection.close()

    def _follow_file(self) -> None:
        """Reconnect if the file was replaced: a call must not publish into a file that is gone."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._connection.close()
            raise not_set_up(str(self._path), "does not exist yet") from None
        if self._file != (file := (found.st_dev, found.st_ino)):
            self._connection.close()
            self._file = file
