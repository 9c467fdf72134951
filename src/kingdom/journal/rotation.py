"""Closing a log file and beginning a new one.

The whole of it is one ``rename``: before it nothing happened, after it everything did. The new file is made right
after, and would be made by the next writer otherwise; so there is no instant at which a killed rotation leaves
anything to mend. Writers notice by themselves (:mod:`kingdom.journal.writer`), and so do readers.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from kingdom.base.locks import try_lock
from kingdom.journal.errors import InvalidLine, not_a_file, unavailable
from kingdom.journal.lines import parse_ts
from kingdom.journal.logfiles import list_rotated, next_rotation_key, rotated_name

MAX_BYTES: Final = 100 * 1024 * 1024
_HEAD_BYTES: Final = 64 * 1024  # in which a line with a time is looked for


@dataclass(frozen=True, slots=True)
class Rotation:
    """What was rotated: the closed file, its size then, and why."""

    file: Path
    size: int
    reason: Literal["day", "size"]


def rotate(path: str | os.PathLike[str], now: datetime, *, max_bytes: int = MAX_BYTES) -> Rotation | None:
    """Close the log if it is due: its first line is of an earlier day than ``now``, or it has ``max_bytes``.

    Days are those of ``now``'s time zone. At the turn of a day the file is named for the day that ended, so it holds
    lines up to the end of that day (and, if rotation was missed, of days before it); a file closed for its size is
    named for the current day. An existing file is never written over. None: nothing was due, or another process is
    rotating. Call it as often as you like.
    """
    log = Path(path)
    today = _day(now)
    try:
        with _only_rotator(log.parent) as folder:
            if folder is None:
                return None
            found = _regular(log)
            if found is None or found.st_size == 0:
                return None
            if _first_day(log, now, found) < today:
                return _close(log, folder, today - timedelta(days=1), found.st_size, "day")
            return _close(log, folder, today, found.st_size, "size") if found.st_size >= max_bytes else None
    except OSError as error:
        raise unavailable(error, "rotate", log) from error


def rotate_to_old(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Rotation | None:
    """Rename a log of plain text to ``NAME.old`` when it has ``max_bytes``. The ``.old`` before it is replaced."""
    log = Path(path)
    try:
        found = _regular(log)
        if found is None or found.st_size < max_bytes:
            return None
        old = log.with_name(f"{log.name}.old")
        os.rename(log, old)
    except OSError as error:
        raise unavailable(error, "rotate", log) from error
    return Rotation(old, found.st_size, "size")


def copy_to_old(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Rotation | None:
    """The same for a log that processes hold open as their output: it is copied to ``NAME.old`` and emptied.

    They must append (``O_APPEND``), or they would go on where they were. What somebody writes in the instant between
    the end of the copy and the emptying is lost; a copy that was cut off changes nothing.
    """
    log = Path(path)
    try:
        found = _regular(log)
        if found is None or found.st_size < max_bytes:
            return None
        old, copy = log.with_name(f"{log.name}.old"), log.with_name(f".tmp-{log.name}.old")
        with log.open("r+b") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
            target.flush()
            os.rename(copy, old)
            shutil.copyfileobj(source, target)  # what was written meanwhile
            target.flush()
            size = source.tell()
            os.ftruncate(source.fileno(), 0)
    except OSError as error:
        raise unavailable(error, "rotate", log) from error
    return Rotation(old, size, "size")


def _close(log: Path, folder: int, day: date, size: int, reason: Literal["day", "size"]) -> Rotation:
    # Only rotators make names of this form, and we are the only one: what is free now is free at the rename.
    target = log.with_name(rotated_name(log, next_rotation_key(day, list_rotated(log))))
    os.rename(log, target)
    os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    os.fsync(folder)
    return Rotation(target, size, reason)


@contextmanager
def _only_rotator(folder: Path) -> Iterator[int | None]:
    """Lock the directory against other rotators and give its descriptor; None: there is one at work."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd if try_lock(fd, required=False) else None
    finally:
        os.close(fd)  # and with it the lock


def _regular(log: Path) -> os.stat_result | None:
    try:
        found = os.lstat(log)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise not_a_file("rotate", log)
    return found


def _first_day(log: Path, now: datetime, found: os.stat_result) -> date:
    """The day of the first line that has a time; where none has, the day of the last write."""
    with open(log, "rb") as file:
        head = file.read(_HEAD_BYTES)
    for line in head.split(b"\n")[:-1]:
        try:
            return parse_ts(json.loads(line)["ts"]).astimezone(now.tzinfo).date()
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError, InvalidLine):
            continue
    return datetime.fromtimestamp(found.st_mtime, now.tzinfo).date()


def _day(now: datetime) -> date:
    if now.tzinfo is None:
        raise ValueError(f"now={now!r} has no time zone: the turn of the day would be unknown")
    return now.date()
