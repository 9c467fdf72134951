"""The feed from an event loop: one thread writes it, another reads it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kingdom.court.errors import CourtError
from kingdom.web.live.event import Frame, Happened
from kingdom.web.live.feed import FeedFile, mend
from kingdom.workflow.store.locks import FileLock

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
    def is_ours(self) -> bool:
        """Whether this process writes it."""
        return self._writer is not None

    async def take(self) -> bool:
        """Become the one who writes it, if nobody is; returns whether this process is now."""
        if self._writer is None:
            await self._in(self._writing, self._take)
        return self.is_ours

    async def look(self) -> None:
        """See what another process did."""
        self.oldest, self.last = await self._in(self._reading, lambda: self._reader.bounds())

    async def place(self, source: str) -> str | None:
        """Up to where a source was read."""
        return await self._in(self._reading, lambda: self._reader.place(source))

    async def after(self, sequence: int, limit: int) -> list[Frame]:
        """What is kept behind a number, in order. Look whether it begins right behind it."""
        return await self._in(self._reading, lambda: self._reader.after(sequence, limit))

    async def append(self, happened: Sequence[Happened], places: Mapping[str, str]) -> list[Frame]:
        """Number and keep what happened, and how far the sources were read: all of it or nothing."""
        writer = self._writer
        assert writer is not None
        frames, self.oldest, self.last = await self._in(
            self._writing, lambda: (writer.append(happened, places), *writer.bounds())
        )
        return frames

    async def break_off(self, places: Mapping[str, str]) -> None:
        """Forget what is kept: something was missed behind it."""
        writer = self._writer
        assert writer is not None
        await self._in(self._writing, lambda: writer.break_off(places))
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
            mend(self.path)
            self._writer = FeedFile(self.path)
        except BaseException:
            lock.drop()
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
            self._lock.drop()

    @staticmethod
    async def _in(threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, work)
