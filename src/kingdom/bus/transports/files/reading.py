"""Reading documents from files that may be anything."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.transports.files.document import Document, decode

if TYPE_CHECKING:
    from kingdom.bus.delivery import Status
    from kingdom.bus.document_form import DocumentForm
    from kingdom.bus.transports.files.stream import FileStream

_FIRST_BYTES: Final = 65536
# Errors that are the file's own: no permission, a directory, a link in a circle, a socket. Any other is the machine's
# (a full disk, too few descriptors), and says nothing about the document.
_THE_FILES_OWN: Final = {
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENXIO,
    errno.ENODEV,
    errno.EOVERFLOW,
}


def read_document(path: str, event_id: str, max_bytes: int | None = None, form: DocumentForm | None = None) -> Document:
    """The document in a file.

    Raises ``FileNotFoundError`` when there is no file, and :class:`InvalidEnvelope` that says why when there is one but
    it cannot be understood. With ``max_bytes`` it is also checked to be a regular file no longer than that.
    """
    return decode(read_bytes(path, max_bytes), event_id, form)


def read_bytes(path: str, max_bytes: int | None = None) -> bytes:
    """What is in a file. Raises as :func:`read_document` does."""
    try:
        return _read(path, max_bytes)
    except OSError as error:
        if error.errno not in _THE_FILES_OWN:
            raise
        raise InvalidEnvelope(f"the file cannot be read: {error.strerror}") from None


def _read(path: str, max_bytes: int | None) -> bytes:
    # Neither does a link lead elsewhere, nor a pipe make us wait.
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


def read_event(stream: FileStream, event_id: str, status: Status) -> Document | None:
    """The document of an event in this status; when it makes no sense, it is set aside, and None returned."""
    try:
        return read_document(stream.paths.file(status, event_id), event_id, form=stream.paths.form)
    except (FileNotFoundError, InvalidEnvelope):
        with stream.locked() as state:
            entry = state.get(event_id)
            return None if entry is None else load_event(stream, event_id, entry.status)


def load_event(stream: FileStream, event_id: str, status: Status) -> Document | None:
    """:func:`read_event` for those who have the lock."""
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
