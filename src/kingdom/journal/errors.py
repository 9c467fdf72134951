"""The exceptions of the journal, and the problems that a reader reports without raising.

::

    JournalError              base class
    ├── InvalidEvent          an event to emit that the catalog does not allow (also a ValueError)
    ├── InvalidLine           a line that is not an event (also a ValueError)
    ├── InvalidCursor         a saved cursor that is damaged or of another version (also a ValueError)
    └── JournalUnavailable    the file system failed: no space, no permission, not a file (also an OSError)
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Final, Literal

from kingdom.base.files import DISK_FULL_ERRORS

_DENIED: Final = {errno.EACCES, errno.EPERM}


class JournalError(Exception):
    """Base class of all errors of the journal."""


class InvalidEvent(JournalError, ValueError):
    """An event whose type, fields or actor the catalog does not allow. The message says what is allowed."""


class InvalidLine(JournalError, ValueError):
    """A line that is not an event: not JSON, or without the required fields."""


class InvalidCursor(JournalError, ValueError):
    """A saved cursor that is damaged, or was written by a newer version."""


class JournalUnavailable(JournalError, OSError):
    """The journal could not be written, read or rotated. ``errno`` is that of the operating system."""


def unavailable(error: OSError, what: str, path: str | os.PathLike[str]) -> JournalUnavailable:
    """Turn an ``OSError`` into an error that says what failed, where, why, and what to do."""
    if isinstance(error, JournalUnavailable):
        return error
    fault = JournalUnavailable(f"cannot {what} {os.fspath(path)}: {_reason(error, path)}")
    fault.errno = error.errno
    return fault


def not_a_file(what: str, path: str | os.PathLike[str]) -> JournalUnavailable:
    """Return the error for a directory, a pipe or a device at the path of the journal."""
    fault = JournalUnavailable(
        f"cannot {what} {os.fspath(path)}: it is not a regular file; move it away, and the journal makes its own"
    )
    fault.errno = errno.EISDIR
    return fault


def _reason(error: OSError, path: str | os.PathLike[str]) -> str:
    said = error.strerror or str(error)
    if error.errno in DISK_FULL_ERRORS:
        return f"{said}; make room, and the next line goes through"
    if error.errno == errno.EROFS:
        return f"{said}; mount it writable, or set another directory for the logs"
    if error.errno == errno.EISDIR:
        return f"{said}; move it away, and the journal makes its own file"
    if error.errno in _DENIED:
        return f"{said}{_owner(path)}"
    if error.errno == errno.ENOENT:
        return f"{said}; the directory has to exist"
    return said


def _owner(path: str | os.PathLike[str]) -> str:
    """Say who owns the file or directory that we have no permission for."""
    for place in (os.fspath(path), os.path.dirname(os.path.abspath(path))):
        try:
            owner = os.stat(place).st_uid
        except OSError:
            continue
        return f"; {place} belongs to user {owner} and this process runs as {os.geteuid()}: change its owner or mode"
    return ""


ProblemKind = Literal["not-event", "too-long", "torn", "gone", "shrunk"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a reader skipped: which file, at which byte, and why.

    * ``not-event``: a line that is not JSON, or not an event;
    * ``too-long``: a line of more than a megabyte;
    * ``torn``: the last line of a rotated file is unfinished;
    * ``gone``: a file was removed before it was read to its end;
    * ``shrunk``: a file is shorter than what was read of it, so reading started again at its beginning.
    """

    kind: ProblemKind
    file: str
    offset: int
    detail: str

    def __str__(self) -> str:
        return f"{self.file}, byte {self.offset:,}: {self.detail}"
