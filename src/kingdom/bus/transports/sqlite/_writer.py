"""The write connection: group commit in one thread, and publishing from a caller's thread."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
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


# Having the interpreter change threads more often, while a thread needs it for moments only.
#
# A thread that comes back from the disk, or from SQLite, waits for the interpreter until whoever has it waits for
# something itself, or 5 ms are over. The thread that writes would do that after each statement of a transaction, with the
# file locked against every other process meanwhile, and the event loop would in turn be idle while it runs. With 0.1 ms
# they work at the same time: what is gained is in ``docs/explanation/group-commit.md``.


_SOON: Final = 0.0001  # seconds


class Hurry:
    """How many are in a hurry in this process. The interpreter has one interval for all of its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._usual = 0.0

    def begin(self) -> None:
        """Change threads more often from now on."""
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._usual = sys.getswitchinterval()
                if self._usual > _SOON:
                    sys.setswitchinterval(_SOON)

    def end(self) -> None:
        """Go back to the usual, when nobody else is in a hurry and nobody has changed it meanwhile."""
        with self._lock:
            self._count -= 1
            if not self._count and self._usual > _SOON and abs(sys.getswitchinterval() - _SOON) < 1e-6:
                sys.setswitchinterval(self._usual)


HURRY: Final = Hurry()


# A connection that writes: how it is made, how it waits for its turn, and when it is given up.


T = TypeVar("T")
_SHORTEST_PAUSE: Final = 0.0001  # seconds between two tries to get the write lock
_LONGEST_PAUSE: Final = 0.005


class WriteConnection:
    """Made when it is first needed, and anew after an error that it cannot be trusted after."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._connection: sqlite3.Connection | None = None

    def get(self) -> sqlite3.Connection:
        """The connection; what waits for the write lock on it is up to :meth:`patiently`."""
        if self._connection is None:
            self._connection = self._store.connect()
            self._connection.execute("PRAGMA busy_timeout = 0")
        return self._connection

    def begin(self) -> sqlite3.Connection:
        """The connection with the write lock taken."""
        connection = self.get()
        self.patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        return connection

    def patiently(self, step: Callable[[], T]) -> T:
        """Do what needs the write lock, again and again while others hold it.

        SQLite's own way of waiting sleeps for 1 to 100 ms, when most commits end much sooner.
        """
        deadline = time.monotonic() + self._store.patience
        pause = _SHORTEST_PAUSE
        while True:
            try:
                return step()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(pause)
                pause = min(_LONGEST_PAUSE, 1.5 * pause)

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


# The one thread that writes, and group commit.
#
# Operations are queued to it as functions of the connection. It takes everything that is queued into one transaction:
# publishers that come at the same time then share one commit, and so one wait for the disk. When an operation fails, all
# are undone and run once more, each within a savepoint, so that it leaves the others alone; operations must bear that.
# Callers hear of their operation when the transaction has committed, never before; when the commit fails, everybody in it
# hears that.

Operation = Callable[[sqlite3.Connection], T]
_MAX_GROUP: Final = 512  # operations after which a transaction takes no more: others want the write lock too
_MOMENT: Final = 0.005  # seconds


class Mergeable(ABC, Generic[T]):
    """An operation that can be run together with its neighbours of the same class, at less than the cost of each."""

    @abstractmethod
    def __call__(self, connection: sqlite3.Connection) -> T:
        """Run by itself."""

    @abstractmethod
    def together(self, connection: sqlite3.Connection, calls: Sequence[Self]) -> list[T]:
        """Run all of ``calls``, which this is the first of; return the result of each."""


class RunAgain(Exception):
    """Raised by an operation that is to be undone and called once more: it will do its work in another way."""


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


class SqliteWriter:
    """The write connection of one bus, owned by a thread of its own."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._arriving: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        self._queue: SimpleQueue[list[_Job] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection = WriteConnection(store)
        self._closed = False
        self._last = 0.0  # when a transaction began or ended
        self._hurrying = False
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
            if arriving := self._arriving.get(loop):
                arriving.append(job)
            else:
                # Handed over when the loop has run everything that is ready now: those who publish at the same time
                # then arrive together, and the thread is woken once for all of them.
                self._arriving[loop] = [job]
                loop.call_soon(self._hand_over, loop)
        return await job.future  # type: ignore[no-any-return]

    @property
    def busy(self) -> bool:
        """Whether it is writing, or was a moment ago."""
        return time.monotonic() - self._last < _MOMENT

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
            if not self._hurrying:
                self._hurrying = True
                HURRY.begin()
            self._queue.put(jobs)

    # ── the thread ────────────────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        going_on = True
        while going_on:
            group, going_on = self._gather()
            if group:
                self._last = time.monotonic()
                self._commit(group)
                self._last = time.monotonic()
                _resolve(group)
            self._calm_down()
        self._connection.close()

    def _calm_down(self) -> None:
        with self._gate:
            if self._hurrying and self._queue.empty():
                self._hurrying = False
                HURRY.end()

    def _gather(self) -> tuple[list[_Job], bool]:
        """Wait for something to do, then take everything there is."""
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
                if not _goes_on(connection, error):
                    raise
                connection.execute("ROLLBACK")
                self._connection.begin()
                self._run_apart(connection, group)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it is, everybody who waits must hear of it
            for job in group:
                job.error = job.error or translate(error, self._store.path)
            self._connection.roll_back(error)

    def _run_apart(self, connection: sqlite3.Connection, group: list[_Job]) -> None:
        """Run each job so that it fails, and is undone, by itself."""
        for job in group:
            connection.execute("SAVEPOINT operation")
            try:
                try:
                    job.result = job.operation(connection)
                except RunAgain:
                    connection.execute("ROLLBACK TO operation")
                    job.result = job.operation(connection)
            except Exception as error:
                if not _goes_on(connection, error):
                    raise
                job.error = translate(error, self._store.path)
                connection.execute("ROLLBACK TO operation")
            connection.execute("RELEASE operation")


def _run_together(connection: sqlite3.Connection, group: list[_Job]) -> None:
    """Run everything, neighbours of one kind as one, on the assumption that nothing fails.

    A savepoint for each would cost two statements more, and beside a busy event loop every statement is a wait for the
    interpreter lock.
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


def _goes_on(connection: sqlite3.Connection, error: Exception) -> bool:
    """Whether the transaction is still there after an error: SQLite gives it up when a disk is full or fails."""
    return connection.in_transaction and not must_reconnect(error)


def _kind(job: _Job) -> object:
    """The same for jobs that can be run together."""
    return type(job.operation) if isinstance(job.operation, Mergeable) else job


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


# Publishing in the thread of a caller that has no event loop.


class SyncSqlitePublisher:
    """A connection that stays open between calls; threads take turns."""

    def __init__(self, store: SqliteStore) -> None:
        self._path = Path(store.path)
        self._lock = threading.Lock()
        self._connection = WriteConnection(store)
        self._file: tuple[int, int] | None = None  # what the connection is to

    def publish(self, publish: PublishOperation) -> list[str]:
        """Publish, durable on return."""
        with self._lock:
            self._look_at_the_file()
            try:
                if len(publish.rows) == 1:  # one statement is a transaction by itself
                    connection = self._connection.get()
                    return self._connection.patiently(lambda: publish(connection))
                connection = self._connection.begin()
                accepted = publish(connection)
                connection.execute("COMMIT")
            except BaseException as error:  # an interrupt, too, must not leave the file locked
                self._connection.roll_back(error)
                if isinstance(error, sqlite3.Error):
                    raise translate(error, str(self._path)) from error
                raise
            return accepted

    def close(self) -> None:
        """Disconnect. Safe to call twice."""
        with self._lock:
            self._connection.close()

    def _look_at_the_file(self) -> None:
        """Connect anew when another file lies there than before: a call must not publish into one that is gone."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._connection.close()
            raise not_set_up(str(self._path), "does not exist yet") from None
        if self._file != (file := (found.st_dev, found.st_ino)):
            self._connection.close()
            self._file = file
