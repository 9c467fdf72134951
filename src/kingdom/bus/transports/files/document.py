"""The file of an event: its document, and its marks when it is DONE.

A document is the envelope's JSON form on one line, with the routing under the key ``bus``.

DONE events are in no ledger and no memory, so that nothing grows with history, and their documents are not rewritten.
Two marks on the file hold the rest:

* its modification time is the time it was done. The bus counts in microseconds, so the last three digits of the
  nanoseconds hold the number of attempts;
* an extended attribute holds the last error, if there was one and the file system supports it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.base.jsontext import encode as _encode
from kingdom.base.jsontext import pretty
from kingdom.bus.envelope import Envelope, parse_time
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.stream_entry import EventEntry, new_entry, utc_datetime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.bus.delivery import DocumentForm, Status
    from kingdom.bus.transports.files.stream import FileStream


KEY: Final = "bus"
_MICRO: Final = 1_000_000
_encode_ascii = json.JSONEncoder(allow_nan=False).encode


class EventDocument(NamedTuple):
    """The contents of an event's file."""

    envelope: Envelope
    bus: Mapping[str, Any]
    own: bool = False  # a document of the application, without our routing

    def entry(self, now: float, arrived: float | None = None) -> EventEntry:
        """Return the entry of an event of which only the document is known, and when its file ``arrived``."""
        if self.own:  # its time may be wrong: one in the future must not delay it
            created = min(self.envelope.occurred_at.timestamp() if arrived is None else arrived, now)
            return new_entry(self.envelope, seq=sequence_number(created, 0), now=created)
        created = parse_time(self.bus["createdAt"], "bus.createdAt").timestamp() if "createdAt" in self.bus else now
        index = self.bus.get("index", 0)
        return new_entry(
            self.envelope, seq=sequence_number(created, index if isinstance(index, int) else 0), now=created
        )


def sequence_number(created_at: float, index: int) -> int:
    """Return the position in publish order of the ``index``-th event of a call: the time, which needs no ledger."""
    return round(created_at * _MICRO) + index


def encode(envelope: Envelope, max_bytes: int, created_at: str, index: int) -> bytes:
    """Encode an event published at ``created_at`` (of :func:`write_time`), or raise :class:`InvalidEnvelope`."""
    text = envelope.to_json(max_bytes)
    bus: dict[str, Any] = {}
    if envelope.aggregate_type is not None:
        bus["aggregateType"] = envelope.aggregate_type
    if envelope.aggregate_id is not None:
        bus["aggregateId"] = envelope.aggregate_id
    if envelope.priority != "normal":
        bus["priority"] = envelope.priority
    if envelope.not_before is not None:
        bus["notBefore"] = envelope.not_before.isoformat()
    if KEY in envelope.attributes:  # an attribute of the same name moves into ours
        document = envelope.to_dict()
        bus["attribute"] = document.pop(KEY)
        text = _encode(document)
    rest = f",{_encode(bus)[1:-1]}" if bus else ""
    place = f',"index":{index}' if index else ""
    return f'{text[:-1]},"{KEY}":{{"createdAt":"{created_at}"{place}{rest}}}}}\n'.encode()


def write_time(seconds: float) -> str:
    """Format a time of the clock for documents."""
    return utc_datetime(seconds).isoformat(timespec="microseconds")


def decode(data: bytes, event_id: str, form: DocumentForm | None = None) -> EventDocument:
    """Decode a document, or raise :class:`InvalidEnvelope` with the reason."""
    document = parse(data)
    if form is not None:
        envelope = form.envelope(document)
        if envelope.event_id != event_id:
            raise InvalidEnvelope(
                f"its {form.id} is {envelope.event_id!r}, so its file must be {envelope.event_id}.json"
            )
        return EventDocument(envelope, {}, own=True)
    bus = document.pop(KEY, {})
    if not isinstance(bus, dict):
        raise InvalidEnvelope(f"the key {KEY!r} holds the routing and must be a JSON object")
    if "attribute" in bus:
        document[KEY] = bus["attribute"]
    envelope = Envelope.from_dict(
        document,
        aggregate_type=bus.get("aggregateType"),
        aggregate_id=bus.get("aggregateId"),
        priority=bus.get("priority", "normal"),
        not_before=_time(bus.get("notBefore")),
    )
    if envelope.event_id != event_id:
        raise InvalidEnvelope(f"its eventId is {envelope.event_id!r}, so its file must be {envelope.event_id}.json")
    return EventDocument(envelope, bus)


def parse(data: bytes) -> dict[str, Any]:
    """Return the JSON object in a file, or raise :class:`InvalidEnvelope`."""
    try:
        # Our documents begin with a brace, in UTF-8. For others json detects the encoding, which takes longer.
        document = json.loads(data.decode() if data[:1] == b"{" else data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidEnvelope(f"not JSON: {error}" if data.strip() else "the file is empty") from None
    if not isinstance(document, dict):
        raise InvalidEnvelope(f"an envelope is a JSON object, not {type(document).__name__}")
    return document


def encode_form(document: Mapping[str, Any], status: tuple[str, str] | None = None) -> bytes:
    """Encode a document of the application for people, with this ``status`` field (name, value)."""
    fields = {**document, status[0]: status[1]} if status else document
    try:
        return pretty(fields).encode()
    except UnicodeEncodeError:  # a lone surrogate: valid in JSON, not in UTF-8
        return pretty(fields, _encode_ascii, _encode_ascii).encode()


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _time(text: str | None) -> datetime | None:
    return None if text is None else parse_time(text, "bus.notBefore")


_MAX_ATTEMPTS: Final = 999
_ERROR: Final = "user.kingdom.error"
_MAX_ERROR_CHARS: Final = 1000  # extended attributes are small


class DoneMarks(NamedTuple):
    """The marks of a DONE file."""

    at: float
    attempts: int
    error_code: str | None
    error_message: str | None


def mark(path: str, at: float, attempts: int, code: str | None, message: str | None) -> None:
    """Mark a file that is about to be DONE."""
    with contextlib.suppress(PermissionError):  # a file of another user keeps its time
        stamp = round(at * _MICRO) * 1000 + min(attempts, _MAX_ATTEMPTS)
        os.utime(path, ns=(stamp, stamp))
    if code is not None and hasattr(os, "setxattr"):
        text = json.dumps([code[:_MAX_ERROR_CHARS], message and message[:_MAX_ERROR_CHARS]])
        with contextlib.suppress(OSError):
            os.setxattr(path, _ERROR, text.encode())


def unmark(path: str) -> None:
    """Remove the error from a file that is no longer DONE."""
    if hasattr(os, "removexattr"):
        with contextlib.suppress(OSError):
            os.removexattr(path, _ERROR)


def read_marks(path: str) -> DoneMarks:
    """Read the marks of a DONE file; raises ``FileNotFoundError`` if there is none."""
    micros, attempts = divmod(os.lstat(path).st_mtime_ns, 1000)
    code = message = None
    if hasattr(os, "getxattr"):
        with contextlib.suppress(OSError, ValueError):
            code, message = json.loads(os.getxattr(path, _ERROR))
    return DoneMarks(micros / _MICRO, attempts, code, message)


def done_at(stat: os.stat_result) -> float:
    """Return when a DONE file was done."""
    return stat.st_mtime_ns // 1000 / _MICRO


_FIRST_BYTES: Final = 65536
# Errors of the file itself: no permission, a directory, a circular link, a socket. Other errors come from the machine
# (a full disk, too few descriptors) and say nothing about the document.
_FILE_ERRORS: Final = {
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENXIO,
    errno.ENODEV,
    errno.EOVERFLOW,
}


def read_document(
    path: str, event_id: str, max_bytes: int | None = None, form: DocumentForm | None = None
) -> EventDocument:
    """Read the document in a file.

    Raises ``FileNotFoundError`` when there is no file, and :class:`InvalidEnvelope` that says why when there is one but
    it cannot be understood. With ``max_bytes`` it is also checked to be a regular file no longer than that.
    """
    return decode(read_bytes(path, max_bytes), event_id, form)


def read_bytes(path: str, max_bytes: int | None = None) -> bytes:
    """Return the contents of a file. Raises as :func:`read_document` does."""
    try:
        return _read(path, max_bytes)
    except OSError as error:
        if error.errno not in _FILE_ERRORS:
            raise
        raise InvalidEnvelope(f"the file cannot be read: {error.strerror}") from None


def _read(path: str, max_bytes: int | None) -> bytes:
    # Do not follow links, and do not wait for pipes.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if max_bytes is not None:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise InvalidEnvelope("not a regular file")
            if found.st_size > max_bytes:
                raise InvalidEnvelope(f"{found.st_size:,} bytes; the limit is {max_bytes:,}")
        data = os.read(fd, _FIRST_BYTES)
        if len(data) == _FIRST_BYTES:
            while more := os.read(fd, 16 * _FIRST_BYTES):
                data += more
        return data
    finally:
        os.close(fd)


def read_event(stream: FileStream, event_id: str, status: Status) -> EventDocument | None:
    """Read the document of an event in this status; set an invalid one aside and return None."""
    try:
        return read_document(stream.paths.file(status, event_id), event_id, form=stream.paths.form)
    except (FileNotFoundError, InvalidEnvelope):
        with stream.locked() as state:
            entry = state.get(event_id)
            return None if entry is None else load_event(stream, event_id, entry.status)


def load_event(stream: FileStream, event_id: str, status: Status) -> EventDocument | None:
    """Do the same as :func:`read_event` under the lock."""
    path = stream.paths.file(status, event_id)
    try:
        return read_document(path, event_id, form=stream.paths.form)
    except FileNotFoundError:
        return None
    except InvalidEnvelope as error:
        stream.set_aside(path, str(error))
        if event_id in stream.state:
            stream.commit({"op": "forget", "ids": [event_id]})
        return None
