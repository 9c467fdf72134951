"""The feed of live events: a SQLite file, and asynchronous access to it.

The feed numbers the events of two sources, the workflow store and the journal, in one sequence without gaps. The events
of a batch, their numbers and the positions of the sources are stored in one transaction. So a process that is killed
between two batches continues after the last one: no number is missing or assigned twice, and no event is read twice.

Why the feed has its own database. Clients resume from a sequence number, also after a restart of the server, and the
numbers are part of the public protocol. The sources cannot supply them. They are independent: a store that may be on
another machine, and journal files that the chamberlain rotates and removes. Neither has a number that counts both, and
the order in which their events were merged exists nowhere else. Without stored numbers a restarted server would have to
merge both sources again from their start, in the same order, with events that no longer exist.
docs/explanation/the-feed.md has the rejected designs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from kingdom.base.locks import FileLock
from kingdom.court.errors import CourtError
from kingdom.web.live.event import FeedEvent, SourceEvent

log = logging.getLogger("kingdom.web.live")

FEED_FILE: Final = "feed.db"  # in the state folder of the web server
KEPT_EVENTS: Final = 100_000
KEPT_SECONDS: Final = 7 * 24 * 3600.0
_PRUNE_EVERY_EVENTS: Final = 1_000  # the feed may exceed its limit by this many events
_PRUNE_MAX_ROWS: Final = 5_000  # per commit, to keep commits short
_BUSY_TIMEOUT_SECONDS: Final = 10.0  # for another process to release the database
_FEED_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS feed_event (
        sequence INTEGER PRIMARY KEY, type TEXT NOT NULL, workflow_id TEXT, workflow_sequence INTEGER,
        body TEXT NOT NULL, kept_at REAL NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS feed_number (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS feed_cursor (source TEXT PRIMARY KEY, place TEXT NOT NULL) WITHOUT ROWID",
)
_INSERT_EVENT: Final = (
    "INSERT INTO feed_event (sequence, type, workflow_id, workflow_sequence, body, kept_at) VALUES (?, ?, ?, ?, ?, ?)"
)
_SELECT_EVENTS: Final = (
    "SELECT sequence, type, body, workflow_id, workflow_sequence FROM feed_event "
    "WHERE sequence > ? ORDER BY sequence LIMIT ?"
)


class FeedFile:
    """One connection to the feed's database, for one thread at a time."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        kept_events: int = KEPT_EVENTS,
        kept_seconds: float = KEPT_SECONDS,
    ) -> None:
        self._path = path
        self._clock = clock
        self._kept_events, self._kept_seconds = kept_events, kept_seconds
        self._since_prune = _PRUNE_EVERY_EVENTS  # the first batch prunes
        self._connection = _connect(path)

    def bounds(self) -> tuple[int, int]:
        """Return the oldest stored number (or the next number if none is stored) and the last assigned number."""
        numbers = dict(self._connection.execute("SELECT name, value FROM feed_number"))
        last = numbers.get("last", 0)
        return numbers.get("oldest", last + 1), last

    def place(self, source: str) -> str | None:
        """Return the position up to which a source was read."""
        row = self._connection.execute("SELECT place FROM feed_cursor WHERE source = ?", (source,)).fetchone()
        return None if row is None else str(row[0])

    def after(self, sequence: int, limit: int) -> list[FeedEvent]:
        """Return stored events after a number, in order."""
        return [FeedEvent(*row) for row in self._connection.execute(_SELECT_EVENTS, (sequence, limit))]

    def append(self, events: Iterable[SourceEvent], places: Mapping[str, str]) -> list[FeedEvent]:
        """Number and store events together with the positions of their sources, in one transaction."""
        now = self._clock()
        with self._writing():
            oldest, last = self.bounds()
            numbered = [
                FeedEvent(number, item.type, item.body(), item.workflow_id, item.workflow_sequence)
                for number, item in enumerate(events, last + 1)
            ]
            self._connection.executemany(
                _INSERT_EVENT,
                [(f.sequence, f.type, f.workflow_id, f.workflow_sequence, f.body, now) for f in numbered],
            )
            self._remember(places)
            self._since_prune += len(numbered)
            if numbered and self._since_prune >= _PRUNE_EVERY_EVENTS:
                oldest = self._prune(oldest, numbered[-1].sequence, now)
            self._number(oldest, numbered[-1].sequence if numbered else last)
        return numbered

    def drop_history(self, places: Mapping[str, str], *, first: int | None = None) -> None:
        """Delete all stored events because some were missed after them; clients have to reload the state.

        One number is skipped. It stands for the missed events, so that a client with the last number must reload,
        too. Numbering continues after it, or at ``first`` if that is higher.
        """
        with self._writing():
            last = max(self.bounds()[1] + 1, (first or 1) - 1)
            self._connection.execute("DELETE FROM feed_event")
            self._remember(places)
            self._number(last + 1, last)

    def close(self) -> None:
        self._connection.close()

    def _remember(self, places: Mapping[str, str]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO feed_cursor (source, place) VALUES (?, ?)", list(places.items())
        )

    def _number(self, oldest: int, last: int) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO feed_number (name, value) VALUES (?, ?)", [("oldest", oldest), ("last", last)]
        )

    def _prune(self, oldest: int, last: int, now: float) -> int:
        """Delete some of the expired events; returns the oldest number left. At least one event is kept."""
        row = self._connection.execute(
            "SELECT sequence FROM feed_event WHERE kept_at >= ? ORDER BY sequence LIMIT 1", (now - self._kept_seconds,)
        ).fetchone()
        due = max(int(row[0]), last - self._kept_events + 1)  # a row is found: the current batch is recent
        keep = min(due, oldest + _PRUNE_MAX_ROWS)
        self._connection.execute("DELETE FROM feed_event WHERE sequence < ?", (keep,))
        if keep == due:
            self._since_prune = 0
        return max(oldest, keep)

    def _writing(self) -> _Transaction:
        return _Transaction(self._connection)


class _Transaction:
    """Commits at the end of the block; rolls back if it raises."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def repair_feed(path: Path, clock: Callable[[], float] = time.time) -> None:
    """Rename a damaged feed and create a new one. The caller holds the lock of the feed.

    The new numbers start at the current time in milliseconds. They are higher than all earlier ones, so that clients
    of the old feed learn that they missed events.
    """
    try:
        file = FeedFile(path)
        try:
            file.bounds()
            file.after(0, 1)
        finally:
            file.close()
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # locked, or disk full: not damaged
            raise
        aside = path.with_name(f"{path.name}.damaged-{int(clock())}")
        log.warning("the live feed at %s is damaged (%s): renamed to %s", path, error, aside.name)
        path.rename(aside)
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        fresh = FeedFile(path)
        fresh.drop_history({}, first=int(clock() * 1000))
        fresh.close()


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Readable by the owner only: events contain private data. SQLite creates its other files with the same mode.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        for statement in _FEED_SCHEMA:
            connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


def is_contiguous(numbered: Sequence[FeedEvent], after: int) -> bool:
    """Return whether the events continue directly after a number."""
    return not numbered or numbered[0].sequence == after + 1


T = TypeVar("T")


class FeedUnavailable(CourtError):
    code = "FEED_UNAVAILABLE"


class Feed:
    """Asynchronous access to the feed: one thread writes, another reads. See :class:`FeedFile`.

    ``oldest`` and ``last`` are as of the last :meth:`refresh_bounds` or batch.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.oldest, self.last = 1, 0
        self._writing = ThreadPoolExecutor(1, "web-feed")
        self._reading = ThreadPoolExecutor(1, "web-feed-reading")
        self._lock: FileLock | None = None
        self._writer: FeedFile | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, path: Path) -> AsyncIterator[Feed]:
        """Open the feed for the length of the block. Raises :class:`FeedUnavailable`."""
        feed = cls(path)
        try:
            try:
                await feed.take()
                feed._reader = await feed._in(feed._reading, lambda: FeedFile(path))
                await feed.refresh_bounds()
            except (OSError, sqlite3.Error) as error:
                raise FeedUnavailable(
                    f"cannot open the live feed at {path}: {error}; the web server needs write access"
                ) from error
            yield feed
        finally:
            await feed._close()

    _reader: FeedFile

    @property
    def is_writer(self) -> bool:
        """Whether this process writes the feed."""
        return self._writer is not None

    async def take(self) -> bool:
        """Become the writer if no other process is. Returns whether this process is the writer."""
        if self._writer is None:
            await self._in(self._writing, self._take)
        return self.is_writer

    async def refresh_bounds(self) -> None:
        """Refresh ``oldest`` and ``last``."""
        self.oldest, self.last = await self._in(self._reading, lambda: self._reader.bounds())

    async def place(self, source: str) -> str | None:
        """Return the position up to which a source was read."""
        return await self._in(self._reading, lambda: self._reader.place(source))

    async def after(self, sequence: int, limit: int) -> list[FeedEvent]:
        """Return stored events after a number, in order. Check with :func:`is_contiguous` that none is missing."""
        return await self._in(self._reading, lambda: self._reader.after(sequence, limit))

    async def append(self, events: Sequence[SourceEvent], places: Mapping[str, str]) -> list[FeedEvent]:
        """Number and store events together with the positions of their sources, in one transaction."""
        writer = self._writer
        assert writer is not None
        numbered, self.oldest, self.last = await self._in(
            self._writing, lambda: (writer.append(events, places), *writer.bounds())
        )
        return numbered

    async def drop_history(self, places: Mapping[str, str]) -> None:
        """Delete all stored events because some were missed after them."""
        writer = self._writer
        assert writer is not None
        await self._in(self._writing, lambda: writer.drop_history(places))
        await self.refresh_bounds()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run a function in the writing thread."""
        return await self._in(self._writing, work)

    def _take(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock.take(self.path.with_name("feed.lock"))
        if lock is None:
            return
        try:
            repair_feed(self.path)
            self._writer = FeedFile(self.path)
        except BaseException:
            lock.release()
            raise
        self._lock = lock

    async def _close(self) -> None:
        if self._writer is not None:
            await self._in(self._writing, self._writer.close)
        if hasattr(self, "_reader"):
            await self._in(self._reading, self._reader.close)
        self._writing.shutdown()
        self._reading.shutdown()
        if self._lock is not None:
            self._lock.release()

    @staticmethod
    async def _in(threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, work)
