"""Publish to a stream: group commit, and publishing from a caller's thread."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kingdom.base.files import sync_directory, temporary_prefix
from kingdom.base.syncer import Syncer
from kingdom.bus.errors import BusError, InvalidEnvelope
from kingdom.bus.transports.files.disk import bus_error
from kingdom.bus.transports.files.document import encode, encode_form, sequence_number, write_time
from kingdom.bus.transports.files.layout import MARKER, SUFFIX, check_version
from kingdom.bus.transports.files.ledger import new_entry_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kingdom.bus.envelope import Envelope
    from kingdom.bus.transports.files.stream import FileStream


# Publishing: documents are written and made durable under temporary names, then appear all at once.
#
# Calls that arrive while one is being written are written together next (group commit): the disk is asked to be durable
# once for all of them.


_GROUP = 2000  # events written together, unless one call alone has more


@dataclass(eq=False)
class PublishCall:
    """One call of ``publish``: what it brings, and what comes of it."""

    envelopes: Sequence[Envelope]
    at: float
    documents: dict[str, bytes] = field(default_factory=dict)
    accepted: list[str] = field(default_factory=list)
    error: Exception | None = None


@dataclass(eq=False, kw_only=True)
class _Awaited(PublishCall):
    future: asyncio.Future[list[str]]


class _FormChanged(Exception):
    """The stream's documents have another form than those that were written."""


NewEvents = dict[str, tuple[PublishCall, int]]  # event ids: whose they are, and which of that call's envelopes


class FilesPublisher:
    """The calls of one process that publish to one stream."""

    def __init__(self, stream: FileStream, syncer: Syncer, run: Callable[..., Awaitable[None]]) -> None:
        self._stream = stream
        self._syncer = syncer
        self._run = run
        self._waiting: list[_Awaited] = []
        self._writing: asyncio.Task[None] | None = None

    async def publish(self, envelopes: Sequence[Envelope]) -> list[str]:
        """Store the envelopes; return the ids accepted, in order."""
        future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Awaited(envelopes, _now(self._stream), future=future))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_waiting(), name=f"publish-{self._stream.name}")
        return await future

    async def drained(self) -> None:
        """Wait until nothing is being written."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write_waiting(self) -> None:
        try:
            while self._waiting:
                group = self._next_group()
                try:
                    await self._run(publish, self._stream, self._syncer, group)
                except Exception as error:  # noqa: BLE001 - whoever called shall see it, not this task
                    for call in group:
                        call.error = error
                for call in group:
                    _answer(call)
        finally:
            self._writing = None

    def _next_group(self) -> list[_Awaited]:
        events = 0
        for count, call in enumerate(self._waiting):
            events += len(call.envelopes)
            if events > _GROUP and count:
                group, self._waiting = self._waiting[:count], self._waiting[count:]
                return group
        group, self._waiting = self._waiting, []
        return group


def _answer(call: _Awaited) -> None:
    if call.future.done():
        return  # nobody waits any more
    if call.error is not None:
        call.future.set_exception(call.error)
    else:
        call.future.set_result(call.accepted)


def publish_now(stream: FileStream, syncer: Syncer, envelopes: Sequence[Envelope]) -> list[str]:
    """Store the envelopes, in this thread and by themselves; return the ids accepted, in order."""
    call = PublishCall(envelopes, _now(stream))
    publish(stream, syncer, [call])
    if call.error is not None:
        raise call.error
    return call.accepted


def publish(stream: FileStream, syncer: Syncer, calls: Sequence[PublishCall]) -> None:
    """Write a group of calls; each then has its ``accepted`` ids or its ``error``."""
    stream.know_options()
    for call in calls:
        created_at = write_time(call.at)
        try:
            call.documents = {
                envelope.event_id: _encode(stream, envelope, created_at, index)
                for index, envelope in enumerate(call.envelopes)
            }
        except InvalidEnvelope as error:
            call.error = error
    good = [call for call in calls if call.error is None]
    try:
        if good:
            _publish(stream, syncer, good)
    except _FormChanged:
        publish(stream, syncer, good)
    except OSError as error:
        if len(good) == 1:
            good[0].error = bus_error(error, stream.paths.home)
            return
        # One of them may be what does not fit: each gets its own chance and its own error.
        for call in good:
            publish(stream, syncer, [call])


def _now(stream: FileStream) -> float:
    return round(stream.clock(), 6)


def _encode(stream: FileStream, envelope: Envelope, created_at: str, index: int) -> bytes:
    form, word = stream.paths.form, stream.paths.word("PENDING")
    if form is None:
        return encode(envelope, stream.max_bytes, created_at, index)
    envelope.to_json(stream.max_bytes)  # raises for what cannot be stored
    return encode_form(envelope.payload, (form.status, word) if form.status and word else None)


def _publish(stream: FileStream, syncer: Syncer, calls: Sequence[PublishCall]) -> None:
    new: NewEvents = {}
    form = stream.paths.form
    with stream.locked():
        if stream.paths.form != form:  # declared by another process since we looked: write the documents again
            raise _FormChanged
        for call in calls:
            for index, envelope in enumerate(call.envelopes):
                if envelope.event_id not in new and not _known(stream, envelope.event_id):
                    new[envelope.event_id] = call, index
        seen = stream.ledger.inode, stream.ledger.offset
    if not new:
        return
    prefix = temporary_prefix()
    leftover = {event_id: f"{stream.paths.home}{prefix}{event_id}{SUFFIX}" for event_id in new}
    visible = False
    try:
        syncer.write(stream.paths.home, [(leftover[item], call.documents[item]) for item, (call, _) in new.items()])
        new, visible = _reveal(stream, prefix, new, seen), True
        for item in new:
            del leftover[item]
        sync_directory(stream.paths.states["PENDING"])
    except Exception:
        if visible:
            _withdraw(stream, new)
        raise
    finally:
        for path in leftover.values():
            with contextlib.suppress(OSError):
                os.unlink(path)
    for item, (call, _) in new.items():
        call.accepted.append(item)


def _reveal(stream: FileStream, prefix: str, new: NewEvents, seen: tuple[int, int]) -> NewEvents:
    """Let the written files appear, all at once; returns which of them are new, now that nobody else can act."""
    with stream.locked():
        if seen != (stream.ledger.inode, stream.ledger.offset):  # somebody was faster with one of them, perhaps
            new = {item: where for item, where in new.items() if not _known(stream, item)}
        missing = stream.commit({"op": "publish", "tmp": prefix, "entries": _rows(stream, new)}) if new else []
    if missing:
        _withdraw(stream, new)
        raise FileNotFoundError(errno.ENOENT, "removed while it was being published", prefix + missing[0].event_id)
    return new


def _known(stream: FileStream, event_id: str) -> bool:
    # os.access: that a file is not there is the normal case, and not worth an exception.
    return event_id in stream.state or os.access(stream.paths.file("DONE", event_id), os.F_OK)


def _rows(stream: FileStream, new: NewEvents) -> list[list[object]]:
    rows, last = [], stream.state.last_seq
    for call, index in new.values():
        # The clock's time or the next number, whichever is later: later calls come later even if the clock steps back.
        last = max(last + 1, sequence_number(call.at, index))
        rows.append(new_entry_row(call.envelopes[index], last, call.at))
    return rows


def _withdraw(stream: FileStream, new: NewEvents) -> None:
    """Take back what a failed call had already made visible, unless somebody has claimed it."""
    with contextlib.suppress(Exception), stream.locked() as state:
        entries = [entry for item in new if (entry := state.get(item))]
        untouched = [entry.event_id for entry in entries if entry.status == "PENDING" and not entry.attempts]
        if untouched:
            stream.commit({"op": "purge", "ids": untouched})


# Publishing in the thread of a caller that has no event loop.


class SyncFilesPublisher:
    """Streams whose files stay open between calls; threads publish at the same time."""

    def __init__(self, root: str, make: Callable[[str], FileStream], syncer: Syncer) -> None:
        self._root = root
        self._make = make
        self._syncer = syncer
        self._lock = threading.Lock()
        self._streams: dict[str, FileStream] = {}
        self._marker: tuple[int, int, int] | None = None  # of the bus whose streams these are

    def publish(self, name: str, envelopes: Sequence[Envelope]) -> list[str]:
        """Publish, durable on return."""
        try:
            return publish_now(self._stream(name), self._syncer, envelopes)
        except BusError:  # some of them are OSErrors, too
            raise
        except OSError as error:
            raise bus_error(error, self._root) from error

    def close(self) -> None:
        """Let go of all files. Safe to call twice."""
        with self._lock:
            self._let_go()
            self._syncer.close()

    def _stream(self, name: str) -> FileStream:
        with self._lock:
            self._look_at_the_marker()
            stream = self._streams.get(name)
            if stream is None:
                stream = self._streams[name] = self._make(name)
            return stream

    def _look_at_the_marker(self) -> None:
        """Look at the bus anew when another one lies there than before, or none.

        Directories that are missing would be made, and nobody looks into those without a bus.
        """
        marker = None
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = os.stat(f"{self._root}/{MARKER}")
            marker = found.st_dev, found.st_ino, found.st_mtime_ns
        if marker is None or marker != self._marker:
            self._let_go()
            self._marker = None
            check_version(self._root)
            self._marker = marker

    def _let_go(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
