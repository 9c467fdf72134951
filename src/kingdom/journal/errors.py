"""The journal's exceptions, and the problems a reader reports without raising."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Final, Literal

# Every exception of the journal, in one place.
#
# ::
#
# JournalError              anything the journal itself raises
# ├── InvalidEvent          somebody tried to emit what the catalog does not allow (a ValueError too)
# ├── InvalidLine           a line that was read is not an event at all (a ValueError too)
# ├── InvalidCursor         the file that remembers a reader's place cannot be understood (a ValueError too)
# └── JournalUnavailable    the file system refused: no room, no permission, not a file (an OSError too)


_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED: Final = {errno.EACCES, errno.EPERM}


class JournalError(Exception):
    """Base of every error the journal raises by itself."""


class InvalidEvent(JournalError, ValueError):
    """An event that the catalog does not allow: its type, a field or its actor. The message names what is allowed."""


class InvalidLine(JournalError, ValueError):
    """A line that is not an event: not JSON, or without the fields that every event has."""


class InvalidCursor(JournalError, ValueError):
    """What remembers a reader's place is damaged, or was written by a newer version."""


class JournalUnavailable(JournalError, OSError):
    """The journal could not be written, read or rotated; ``errno`` is the operating system's."""


def unavailable(error: OSError, what: str, path: str | os.PathLike[str]) -> JournalUnavailable:
    """What to raise instead of an ``OSError``: what failed, where, why, and what to do."""
    if isinstance(error, JournalUnavailable):
        return error
    fault = JournalUnavailable(f"cannot {what} {os.fspath(path)}: {_reason(error, path)}")
    fault.errno = error.errno
    return fault


def not_a_file(what: str, path: str | os.PathLike[str]) -> JournalUnavailable:
    """The error for a directory, a pipe or a device where the journal should be."""
    fault = JournalUnavailable(
        f"cannot {what} {os.fspath(path)}: it is not a regular file; move it away, and the journal makes its own"
    )
    fault.errno = errno.EISDIR
    return fault


def _reason(error: OSError, path: str | os.PathLike[str]) -> str:
    said = error.strerror or str(error)
    if error.errno in _FULL:
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
    """Whose file or directory it is that we may not touch."""
    for place in (os.fspath(path), os.path.dirname(os.path.abspath(path))):
        try:
            owner = os.stat(place).st_uid
        except OSError:
            continue
        return f"; {place} belongs to user {owner} and this process runs as {os.geteuid()}: change its owner or mode"
    return ""


# What a reader could not take, and where.


ProblemKind = Literal["not-event", "too-long", "torn", "gone", "shrunk"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something was passed over: which file, at which byte, and why.

    * ``not-event``: a line that is not JSON, or not an event;
    * ``too-long``: a line of more than a megabyte;
    * ``torn``: the last line of a closed file has no end;
    * ``gone``: a file was removed before it was read to its end;
    * ``shrunk``: a file is shorter than what was read of it, so reading began again at its start.
    """

    kind: ProblemKind
    file: str
    offset: int
    detail: str

    def __str__(self) -> str:
        return f"{self.file}, byte {self.offset:,}: {self.detail}"
