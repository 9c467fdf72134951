"""The names of closed log files, and what lies in a log's directory.

``events.log`` is closed under the name of the day it ends, ``events-20260207.log``; a second file of that day is
``events-20260207.1.log``, and so on. The order of the names is the order in which the files were closed, always:
rotation never gives a name that sorts before one that exists, whatever the clock says.
"""

from __future__ import annotations

import os
import re
import stat
from datetime import date
from pathlib import Path
from typing import Final, NamedTuple

_TRIES: Final = 50

Key = tuple[str, int]  # the day as YYYYMMDD, the number of the file within it


class Split(NamedTuple):
    """A closed log file."""

    key: Key
    name: str
    inode: int


class Survey(NamedTuple):
    """What was there at one instant: the inode behind the log's own name, if any, and the closed files in order."""

    live: int | None
    splits: tuple[Split, ...]


def split_name(path: Path, key: Key) -> str:
    """The name of a closed file: ``events-20260207.log``, ``events-20260207.1.log``."""
    day, number = key
    return f"{path.stem}-{day}{f'.{number}' if number else ''}{path.suffix}"


def split_key(path: Path, name: str) -> Key | None:
    """The order of a closed file of this log; None for any other name."""
    pattern = rf"{re.escape(path.stem)}-(\d{{8}})(?:\.([1-9]\d{{0,8}}))?{re.escape(path.suffix)}"
    match = re.fullmatch(pattern, name, re.ASCII)
    return (match[1], int(match[2] or 0)) if match else None


def next_key(day: date, splits: tuple[Split, ...]) -> Key:
    """The name to close a file under: of this day, or of the newest closed file's where that is later."""
    wanted = f"{day:%Y%m%d}"
    if splits and splits[-1].key[0] >= wanted:
        newest, number = splits[-1].key
        return newest, number + 1
    return wanted, 0


def list_splits(path: Path) -> tuple[Split, ...]:
    """The closed files of a log, in order."""
    found = []
    with os.scandir(path.parent) as entries:
        for entry in entries:
            key = split_key(path, entry.name)
            if key is None:
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed this instant
                continue
            if stat.S_ISREG(info.st_mode):
                found.append(Split(key, entry.name, info.st_ino))
    return tuple(sorted(found))


def survey(path: Path) -> Survey | None:
    """Look at a log's directory while rotation may be at work in it; None when it never stood still.

    One look is not enough: a directory that is read while a file is renamed may show neither of its names. Two equal
    looks in a row are true of the time between them. Where the log's own name was there, it stayed the same file, so
    nothing was rotated during the first look. Where it was not, each closed file of the first look was closed before
    its end, so all files that were closed earlier still stand in the second, which shows no more than the first.
    """
    before = None
    for _ in range(_TRIES):
        now = Survey(live_inode(path), list_splits(path))
        if now == before:
            return now
        before = now
    return None


def live_inode(path: Path) -> int | None:
    """The inode behind the log's own name."""
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None
