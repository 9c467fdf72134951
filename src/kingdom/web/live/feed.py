"""The feed of live events: a SQLite file, and asynchronous access to it."""

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

# The feed on disk: what happened, numbered without a gap, with the places up to which its sources were read.
#
# The events of a batch, their numbers and the places of the sources are one transaction. So whoever is killed between two
# batches goes on behind the last one: no number is missing, none is given twice, and nothing is read twice.


log = logging.getLogger("kingdom.web.live")

KEPT_EVENTS: Final = 100_000
KEPT_SECONDS: Final = 7 * 24 * 3600.0
_PRUNE_EVERY_EVENTS: Final = 1_000  # events; between two prunings the feed may be that much longer
_PRUNE_MAX_ROWS: Final = 5_000  # rows in one commit, so that nobody waits for it
_BUSY_TIMEOUT_SECONDS: Final = 10.0  # seconds for another process to let go of the file
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
    """One connection to the feed, for one thread at a time."""

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
        self._since_prune = _PRUNE_EVERY_EVENTS  # the first batch looks
        self._connection = _connect(path)

    def bounds(self) -> tuple[int, int]:
        """The oldest number that is kept (or will be given next), and the last one that was given."""
        numbers = dict(self._connection.execute("SELECT name, value FROM feed_number"))
        last = numbers.get("last", 0)
        return numbers.get("oldest", last + 1), last

    def place(self, source: str) -> str | None:
        """Up to where a source was read."""
        row = self._connection.execute("SELECT place FROM feed_cursor WHERE source = ?", (source,)).fetchone()
        return None if row is None else str(row[0])

    def after(self, sequence: int, limit: int) -> list[FeedEvent]:
        """What is kept behind a number, in order."""
        return [FeedEvent(*row) for row in self._connection.execute(_SELECT_EVENTS, (sequence, limit))]

    def append(self, happened: Iterable[SourceEvent], places: Mapping[str, str]) -> list[FeedEvent]:
        """Number and keep what happened, and how far the sources were read: all of it or nothing."""
        now = self._clock()
        with self._writing():
            oldest, last = self.bounds()
            frames = [
                FeedEvent(number, item.type, item.body(), item.workflow_id, item.workflow_sequence)
                for number, item in enumerate(happened, last + 1)
            ]
            self._connection.executemany(
                _INSERT_EVENT,
                [(f.sequence, f.type, f.workflow_id, f.workflow_sequence, f.body, now) for f in frames],
            )
            self._remember(places)
            self._since_prune += len(frames)
            if frames and self._since_prune >= _PRUNE_EVERY_EVENTS:
                oldest = self._prune(oldest, frames[-1].sequence, now)
            self._number(oldest, frames[-1].sequence if frames else last)
        return frames

    def drop_history(self, places: Mapping[str, str], *, first: int | None = None) -> None:
        """Forget what is kept: something was missed behind it, so that whoever asks for it has to begin anew.

        One number is left out, and stands for what was missed: also who has got the last one is told. Numbers go on
        behind it, or at ``first`` if that is higher.
        """
        with self._writing():
            last = max(self.bounds()[1] + 1, (first or 1) - 1)
            self._connection.execute("DELETE FROM feed_event")
            self._remember(places)
            self._number(last + 1, last)

    def close(self) -> None:
        """Close the file."""
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
        """Remove what is too old, some of it; returns what the oldest is then. Never the whole of it."""
        row = self._connection.execute(
            "SELECT sequence FROM feed_event WHERE kept_at >= ? ORDER BY sequence LIMIT 1", (now - self._kept_seconds,)
        ).fetchone()
        due = max(int(row[0]), last - self._kept_events + 1)  # the batch itself is there, and young
        keep = min(due, oldest + _PRUNE_MAX_ROWS)
        self._connection.execute("DELETE FROM feed_event WHERE sequence < ?", (keep,))
        if keep == due:
            self._since_prune = 0
        return max(oldest, keep)

    def _writing(self) -> _Transaction:
        return _Transaction(self._connection)


class _Transaction:
    """Commits at the end of the block, rolls back when it raises."""

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
    """Set a feed aside that cannot be read, and begin another one. Only for who has the lock of the feed.

    Its numbers begin at the time in milliseconds: higher than any that was given, so that clients of the old feed are
    told that they missed something.
    """
    try:
        file = FeedFile(path)
        try:
            file.bounds()
            file.after(0, 1)
        finally:
            file.close()
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # locked, or a full disk: not damaged
            raise
        aside = path.with_name(f"{path.name}.damaged-{int(clock())}")
        log.warning("the feed of live events at %s cannot be read (%s): set aside as %s", path, error, aside.name)
        path.rename(aside)
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        fresh = FeedFile(path)
        fresh.drop_history({}, first=int(clock() * 1000))
        fresh.close()


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Events tell of what people do: nobody but the owner reads them. SQLite's other files are made as this one is.
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


def is_contiguous(frames: Sequence[FeedEvent], after: int) -> bool:
    """Whether what was found begins right behind a number."""
    return not frames or frames[0].sequence == after + 1


# The feed from an event loop: one thread writes it, another reads it.


T = TypeVar("T")


class FeedUnavailable(CourtError):
    """The feed cannot be opened."""

    code = "FEED_UNAVAILABLE"


class Feed:
    """See :class:`kingdom.web.live.feed.FeedFile`. ``oldest`` and ``last`` are as of the last look or batch."""

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
        """Open it, and close it in the end. Raises :class:`FeedUnavailable`."""
        feed = cls(path)
        try:
            try:
                await feed.take()
                feed._reader = await feed._in(feed._reading, lambda: FeedFile(path))
                await feed.look()
            except (OSError, sqlite3.Error) as error:
                raise FeedUnavailable(
                    f"the feed of live events at {path} cannot be opened: {error}; the web server needs to write there"
                ) from error
            yield feed
        finally:
            await feed._close()

    _reader: FeedFile

    @property
    def is_writer(self) -> bool:
        """Whether this process writes it."""
        return self._writer is not None

    async def take(self) -> bool:
        """Become the one who writes it, if nobody is; returns whether this process is now."""
        if self._writer is None:
            await self._in(self._writing, self._take)
        return self.is_writer

    async def look(self) -> None:
        """See what another process did."""
        self.oldest, self.last = await self._in(self._reading, lambda: self._reader.bounds())

    async def place(self, source: str) -> str | None:
        """Up to where a source was read."""
        return await self._in(self._reading, lambda: self._reader.place(source))

    async def after(self, sequence: int, limit: int) -> list[FeedEvent]:
        """What is kept behind a number, in order. Look whether it begins right behind it."""
        return await self._in(self._reading, lambda: self._reader.after(sequence, limit))

    async def append(self, happened: Sequence[SourceEvent], places: Mapping[str, str]) -> list[FeedEvent]:
        """Number and keep what happened, and how far the sources were read: all of it or nothing."""
        writer = self._writer
        assert writer is not None
        frames, self.oldest, self.last = await self._in(
            self._writing, lambda: (writer.append(happened, places), *writer.bounds())
        )
        return frames

    async def drop_history(self, places: Mapping[str, str]) -> None:
        """Forget what is kept: something was missed behind it."""
        writer = self._writer
        assert writer is not None
        await self._in(self._writing, lambda: writer.drop_history(places))
        await self.look()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do something else in the thread that writes."""
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
