"""The ``files`` transport: blocking operations on streams, run in threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from kingdom.base.inotify import FileWatcher
from kingdom.base.syncer import Syncer
from kingdom.bus.errors import BusError, InvalidOption, TransactionMismatch
from kingdom.bus.transports.files import operations
from kingdom.bus.transports.files.doctor import examine
from kingdom.bus.transports.files.layout import bus_error, check_version, list_streams, set_up
from kingdom.bus.transports.files.publisher import FilesPublisher, SyncFilesPublisher
from kingdom.bus.transports.files.stream import FileStream, StreamWatch
from kingdom.bus.urls import url_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Sequence

    from kingdom.bus.delivery import (
        Check,
        DeadLetter,
        DeadVerdict,
        Delivery,
        Depth,
        DoneVerdict,
        Record,
        RetryVerdict,
        StreamOptions,
    )
    from kingdom.bus.envelope import Envelope
    from kingdom.bus.transport import TransportOptions

_THREADS: Final = 8
P = ParamSpec("P")
R = TypeVar("R")


def open(url: str, options: TransportOptions) -> FilesTransport:  # noqa: A001
    """Return the transport of a ``files:`` URL.

    ``?sync=files`` makes large batches durable file by file instead of with one ``syncfs``, which also waits for what
    other programs have written to the same file system.
    """
    return FilesTransport(url, options)


class FilesTransport:
    """Events in the directories below one root, which several processes may share."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._root = os.path.abspath(url_path(url))
        self._url = url
        self._options = options
        self._clock = options.clock or time.time
        sync = options.query.get("sync", "filesystem")
        if sync not in ("filesystem", "files"):
            raise InvalidOption(f"{url!r}: sync={sync} is not known; use sync=filesystem or sync=files")
        self._syncer = Syncer(whole_filesystem=sync == "filesystem")
        self._pool: ThreadPoolExecutor | None = None
        self._watch: FileWatcher | None = None
        self._ready = False
        self._streams: dict[str, FileStream] = {}
        self._publishers: dict[str, FilesPublisher] = {}
        self._watches: dict[str, StreamWatch] = {}
        self._direct = SyncFilesPublisher(self._root, self._new_stream, self._syncer)

    async def open(self) -> None:
        self._pool = self._pool or ThreadPoolExecutor(_THREADS, thread_name_prefix="kingdom-files")

    async def close(self) -> None:
        """Wait for publishes under way, then close all files."""
        for publisher in list(self._publishers.values()):
            await publisher.drained()
        for watch in self._watches.values():
            watch.close()
        if self._watch is not None:
            self._watch.close()
        pool, self._pool, self._watch, self._ready = self._pool, None, None, False
        if pool is not None:
            await asyncio.to_thread(pool.shutdown)
            await asyncio.to_thread(self._syncer.close)
        for stream in self._streams.values():
            stream.close()
        self._streams, self._publishers, self._watches = {}, {}, {}

    async def setup(self) -> list[str]:
        return await self._run(set_up, self._root)

    async def declare(self, stream: str, options: StreamOptions) -> None:
        await self._call(FileStream.configure, stream, options)
        self._wake(stream)

    async def publish(self, stream: str, envelopes: Sequence[Envelope], tx: Any | None) -> list[str]:
        if tx is not None:
            raise TransactionMismatch(
                f"tx= was given, but {self._url} is a directory, which has no transactions: "
                "publish without tx=, or use a bus on sqlite: or postgresql:"
            )
        await self._check()
        publisher = self._publishers.get(stream)
        if publisher is None:
            publisher = self._publishers[stream] = FilesPublisher(self._stream(stream), self._syncer, self._run)
        accepted = await publisher.publish(envelopes)
        if accepted:
            self._wake(stream)
        return accepted

    def publish_now(self, stream: str, envelopes: Sequence[Envelope]) -> list[str]:
        return self._direct.publish(stream, envelopes)

    def close_now(self) -> None:
        self._direct.close()

    async def claim(
        self,
        stream: str,
        *,
        worker: str,
        limit: int,
        lease: float,
        types: Sequence[str] | None,
        ids: Sequence[str] | None,
        max_attempts: int,
    ) -> list[Delivery]:
        return await self._call(
            operations.claim, stream, operations.ClaimRequest(worker, limit, lease, types, ids, max_attempts)
        )

    async def recall(self, stream: str, *, worker: str, lease: float) -> list[Delivery]:
        return await self._call(operations.recall, stream, worker, lease)

    async def peek(self, stream: str, limit: int, types: Sequence[str] | None, skip: Container[str]) -> list[Record]:
        return await self._call(operations.peek, stream, limit, types, skip)

    async def settle(
        self, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]
    ) -> list[Delivery]:
        lost: list[Delivery] = []
        deliveries = [item.delivery for verdicts in (done, retry, dead) for item in verdicts]
        for name in {item.stream for item in deliveries}:
            refused, freed = await self._call(
                operations.settle,
                name,
                [item for item in done if item.delivery.stream == name],
                [item for item in retry if item.delivery.stream == name],
                [item for item in dead if item.delivery.stream == name],
            )
            lost += refused
            if freed:
                self._wake(name)
        return lost

    async def extend(self, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
        lost: list[Delivery] = []
        for name in {item.stream for item in deliveries}:
            held = [item for item in deliveries if item.stream == name]
            lost += await self._call(operations.extend, name, held, lease)
        return lost

    async def release(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        lost: list[Delivery] = []
        for name in {item.stream for item in deliveries}:
            lost += await self._call(operations.release, name, [item for item in deliveries if item.stream == name])
            self._wake(name)
        return lost

    async def depth(self) -> dict[str, Depth]:
        streams = [self._stream(name) for name in await self._names()]
        return await self._run(operations.depths, streams)

    async def pending_types(self, stream: str) -> dict[str, int]:
        return await self._call(operations.pending_types, stream)

    async def dead(self, stream: str, limit: int) -> list[DeadLetter]:
        return await self._call(operations.dead, stream, limit)

    async def find(self, event_id: str) -> Record | None:
        streams = [self._stream(name) for name in await self._names()]
        return await self._run(operations.find, streams, event_id)

    async def requeue(
        self, stream: str, ids: Sequence[str] | None, *, event_type: str | None, error_code: str | None
    ) -> int:
        moved = await self._call(operations.requeue, stream, ids, event_type, error_code)
        self._wake(stream)
        return moved

    async def purge(
        self, older_than: float, *, stream: str | None, dead: bool, keep: Collection[str], only: Collection[str] | None
    ) -> int:
        purged = 0
        for name in await self._names() if stream is None else [stream]:
            purged += await self._call(operations.purge, name, older_than, dead, keep, only)
            self._wake(name)
        return purged

    async def doctor(self) -> list[Check]:
        return await self._run(examine, self._root)

    def subscribe(
        self, stream: str, wake: Callable[[], None], types: Collection[str] | None = None
    ) -> Callable[[], None]:
        if self._watch is None:
            self._watch = FileWatcher(asyncio.get_running_loop())
        watch = self._watches.get(stream)
        if watch is None:
            with contextlib.suppress(BusError, OSError):  # not set up yet, or away: watched after the first claim
                check_version(self._root)
                self._stream(stream).prepare()
            watch = self._watches[stream] = StreamWatch(self._stream(stream), self._watch)
        return watch.subscribe(wake)

    # ── internal ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _call(
        self, work: Callable[Concatenate[FileStream, P], R], name: str, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run an operation on a stream in a thread."""
        await self._check()
        stream = self._stream(name)
        result = await self._run(work, stream, *args, **kwargs)
        if watch := self._watches.get(name):
            watch.refresh()
            if stream.news:
                stream.news = False
                watch.wake()
        return result

    async def _names(self) -> list[str]:
        await self._check()
        return await self._run(list_streams, self._root)

    async def _check(self) -> None:
        if not self._ready:
            await self._run(check_version, self._root)
            self._ready = True

    async def _run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._pool is None:
            raise BusError(f"the bus at {self._url} is not open: use `async with connect(…) as bus`")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *args, **kwargs))
        except OSError as error:
            raise bus_error(error, self._root) from error

    def _stream(self, name: str) -> FileStream:
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = self._new_stream(name)
        return stream

    def _new_stream(self, name: str) -> FileStream:
        options = self._options
        return FileStream(self._root, name, self._clock, options.connect_timeout, options.max_bytes, self._syncer)

    def _wake(self, name: str) -> None:
        if watch := self._watches.get(name):
            watch.wake()
