"""Publish to a stream: group commit, and publishing from a caller's thread.

Documents are written and made durable under temporary names, then appear all at once. Calls that arrive while others
are being written are written together next (group commit), with one wait for the disk.
"""

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
from kingdom.bus.transports.files.document import encode, encode_form, sequence_number, write_time
from kingdom.bus.transports.files.layout import MARKER, SUFFIX, bus_error, check_version
from kingdom.bus.transports.files.ledger import new_entry_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kingdom.bus.envelope import Envelope
    from kingdom.bus.transports.files.stream import FileStream


_MAX_GROUP_EVENTS = 2000  # written together, unless one call alone has more


@dataclass(eq=False)
class PublishCall:
    """One call of ``publish``: its envelopes and its result."""

    envelopes: Sequence[Envelope]
    at: float
    documents: dict[str, bytes] = field(default_factory=dict)
    accepted: list[str] = field(default_factory=list)
    error: Exception | None = None


@dataclass(eq=False, kw_only=True)
class _Awaited(PublishCall):
    future: asyncio.Future[list[str]]


class _FormChanged(Exception):
    """The document form of the stream changed after the documents were encoded."""


NewEvents = dict[str, tuple[PublishCall, int]]  # by event id: the call, and the index of the envelope in it


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
                except Exception as error:  # noqa: BLE001 - the callers get it
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
            if events > _MAX_GROUP_EVENTS and count:
                group, self._waiting = self._waiting[:count], self._waiting[count:]
                return group
        group, self._waiting = self._waiting, []
        return group


def _answer(call: _Awaited) -> None:
    if call.future.done():
        return  # the caller was cancelled
    if call.error is not None:
        call.future.set_exception(call.error)
    else:
        call.future.set_result(call.accepted)


def publish_now(stream: FileStream, syncer: Syncer, envelopes: Sequence[Envelope]) -> list[str]:
    """Store the envelopes in this thread; return the ids accepted, in order."""
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
        # One of them may be too large for the disk: try each alone, so that each gets its own error.
        for call in good:
            publish(stream, syncer, [call])


def _now(stream: FileStream) -> float:
    return round(stream.clock(), 6)


def _encode(stream: FileStream, envelope: Envelope, created_at: str, index: int) -> bytes:
    form, word = stream.paths.form, stream.paths.word("PENDING")
    if form is None:
        return encode(envelope, stream.max_bytes, created_at, index)
    envelope.to_json(stream.max_bytes)  # raises if it cannot be stored
    return encode_form(envelope.payload, (form.status, word) if form.status and word else None)


def _publish(stream: FileStream, syncer: Syncer, calls: Sequence[PublishCall]) -> None:
    new: NewEvents = {}
    form = stream.paths.form
    with stream.locked():
        if stream.paths.form != form:  # declared by another process meanwhile: encode again
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
    """Make the written files visible, all at once; return those that are new, now that the lock is held."""
    with stream.locked():
        if seen != (stream.ledger.inode, stream.ledger.offset):  # another process may have published one of them
            new = {item: where for item, where in new.items() if not _known(stream, item)}
        missing = stream.commit({"op": "publish", "tmp": prefix, "entries": _rows(stream, new)}) if new else []
    if missing:
        _withdraw(stream, new)
        raise FileNotFoundError(errno.ENOENT, "removed while it was being published", prefix + missing[0].event_id)
    return new


def _known(stream: FileStream, event_id: str) -> bool:
    # os.access: the file is usually not there, and an exception would cost more.
    return event_id in stream.state or os.access(stream.paths.file("DONE", event_id), os.F_OK)


def _rows(stream: FileStream, new: NewEvents) -> list[list[object]]:
    rows, last = [], stream.state.last_seq
    for call, index in new.values():
        # The time of the clock or the next number, whichever is higher: order holds even if the clock steps back.
        last = max(last + 1, sequence_number(call.at, index))
        rows.append(new_entry_row(call.envelopes[index], last, call.at))
    return rows


def _withdraw(stream: FileStream, new: NewEvents) -> None:
    """Remove what a failed call had already made visible, unless it was claimed."""
    with contextlib.suppress(Exception), stream.locked() as state:
        entries = [entry for item in new if (entry := state.get(item))]
        untouched = [entry.event_id for entry in entries if entry.status == "PENDING" and not entry.attempts]
        if untouched:
            stream.commit({"op": "purge", "ids": untouched})


class SyncFilesPublisher:
    """Publishes in the threads of callers without an event loop. Files stay open between calls."""

    def __init__(self, root: str, make: Callable[[str], FileStream], syncer: Syncer) -> None:
        self._root = root
        self._make = make
        self._syncer = syncer
        self._lock = threading.Lock()
        self._streams: dict[str, FileStream] = {}
        self._marker: tuple[int, int, int] | None = None  # identifies the bus that the streams belong to

    def publish(self, name: str, envelopes: Sequence[Envelope]) -> list[str]:
        """Publish, durable on return."""
        try:
            return publish_now(self._stream(name), self._syncer, envelopes)
        except BusError:  # some of these are OSErrors too
            raise
        except OSError as error:
            raise bus_error(error, self._root) from error

    def close(self) -> None:
        """Close all files. Safe to call twice."""
        with self._lock:
            self._close_streams()
            self._syncer.close()

    def _stream(self, name: str) -> FileStream:
        with self._lock:
            self._follow_marker()
            stream = self._streams.get(name)
            if stream is None:
                stream = self._streams[name] = self._make(name)
            return stream

    def _follow_marker(self) -> None:
        """Start over if the directory now holds another bus, or none.

        Publishing would otherwise recreate directories that no worker reads.
        """
        marker = None
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = os.stat(f"{self._root}/{MARKER}")
            marker = found.st_dev, found.st_ino, found.st_mtime_ns
        if marker is None or marker != self._marker:
            self._close_streams()
            self._marker = None
            check_version(self._root)
            self._marker = marker

    def _close_streams(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
