"""Rotate a log: rename the file and create a new one.

The ``rename`` is the whole rotation. The new file is created right after it, or else by the next writer, so a killed
rotation leaves nothing to repair. Writers (:mod:`kingdom.journal.writer`) and readers notice the new file themselves.
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
_HEAD_BYTES: Final = 64 * 1024  # of the file's start, in which to look for a line with a time


@dataclass(frozen=True, slots=True)
class Rotation:
    """A finished rotation: the rotated file, its size, and the reason."""

    file: Path
    size: int
    reason: Literal["day", "size"]


def rotate(path: str | os.PathLike[str], now: datetime, *, max_bytes: int = MAX_BYTES) -> Rotation | None:
    """Rotate the log if its first line is of an earlier day than ``now``, or if it has ``max_bytes``.

    Days are those of ``now``'s time zone. At the turn of a day the file is named for the day that ended, so it has the
    lines up to the end of that day, and those of earlier days if a rotation was missed. A file rotated for its size is
    named for the current day. No existing file is overwritten. Returns None when no rotation was due, or another
    process is rotating.
    """
    log = Path(path)
    today = _day(now)
    try:
        with _rotator_lock(log.parent) as folder:
            if folder is None:
                return None
            found = _stat_regular(log)
            if found is None or found.st_size == 0:
                return None
            if _first_day(log, now, found) < today:
                return _rotate_file(log, folder, today - timedelta(days=1), found.st_size, "day")
            return _rotate_file(log, folder, today, found.st_size, "size") if found.st_size >= max_bytes else None
    except OSError as error:
        raise unavailable(error, "rotate", log) from error


def rotate_to_old(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Rotation | None:
    """Rename a log of plain text to ``NAME.old`` when it has ``max_bytes``. The ``.old`` before it is replaced."""
    log = Path(path)
    try:
        found = _stat_regular(log)
        if found is None or found.st_size < max_bytes:
            return None
        old = log.with_name(f"{log.name}.old")
        os.rename(log, old)
    except OSError as error:
        raise unavailable(error, "rotate", log) from error
    return Rotation(old, found.st_size, "size")


def copy_to_old(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Rotation | None:
    """Do the same for a log that processes hold open as their output: copy it to ``NAME.old`` and truncate it.

    The processes must append (``O_APPEND``), or they would continue at their old offset. What is written between the
    end of the copy and the truncation is lost. An interrupted copy changes nothing.
    """
    log = Path(path)
    try:
        found = _stat_regular(log)
        if found is None or found.st_size < max_bytes:
            return None
        old, copy = log.with_name(f"{log.name}.old"), log.with_name(f".tmp-{log.name}.old")
        with log.open("r+b") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
            target.flush()
            os.rename(copy, old)
            shutil.copyfileobj(source, target)  # what was written since
            target.flush()
            size = source.tell()
            os.ftruncate(source.fileno(), 0)
    except OSError as error:
        raise unavailable(error, "rotate", log) from error
    return Rotation(old, size, "size")


def _rotate_file(log: Path, folder: int, day: date, size: int, reason: Literal["day", "size"]) -> Rotation:
    # Only rotators create names of this form, and we hold their lock: a name that is free now is free at the rename.
    target = log.with_name(rotated_name(log, next_rotation_key(day, list_rotated(log))))
    os.rename(log, target)
    os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    os.fsync(folder)
    return Rotation(target, size, reason)


@contextmanager
def _rotator_lock(folder: Path) -> Iterator[int | None]:
    """Lock the directory against other rotators. Yields its descriptor, or None when another one is rotating."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd if try_lock(fd, required=False) else None
    finally:
        os.close(fd)  # releases the lock


def _stat_regular(log: Path) -> os.stat_result | None:
    try:
        found = os.lstat(log)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise not_a_file("rotate", log)
    return found


def _first_day(log: Path, now: datetime, found: os.stat_result) -> date:
    """Return the day of the first line that has a time; if none has, the day of the last write."""
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
        raise ValueError(f"now={now!r} has no time zone: the turn of the day is unknown")
    return now.date()
