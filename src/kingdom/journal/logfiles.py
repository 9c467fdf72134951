"""The files of a log: the names of rotated files, one open file, and the order in which a reader goes through them."""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Final, NamedTuple, Self

from kingdom.base.locks import try_lock, unlock
from kingdom.journal.cursor import HEAD_BYTES, Cursor, FilePosition, head_of, same_head
from kingdom.journal.errors import Problem, not_a_file
from kingdom.journal.lines import MAX_LINE_BYTES

# The names of closed log files, and what lies in a log's directory.
#
# ``events.log`` is closed under the name of the day it ends, ``events-20260207.log``; a second file of that day is
# ``events-20260207.1.log``, and so on. The order of the names is the order in which the files were closed, always:
# rotation never gives a name that sorts before one that exists, whatever the clock says.


_TRIES: Final = 50

RotationKey = tuple[str, int]  # the day as YYYYMMDD, the number of the file within it


class RotatedFile(NamedTuple):
    """A closed log file."""

    key: RotationKey
    name: str
    inode: int


class LogSnapshot(NamedTuple):
    """What was there at one instant: the inode behind the log's own name, if any, and the closed files in order."""

    live: int | None
    splits: tuple[RotatedFile, ...]


def rotated_name(path: Path, key: RotationKey) -> str:
    """The name of a closed file: ``events-20260207.log``, ``events-20260207.1.log``."""
    day, number = key
    return f"{path.stem}-{day}{f'.{number}' if number else ''}{path.suffix}"


def rotation_key(path: Path, name: str) -> RotationKey | None:
    """The order of a closed file of this log; None for any other name."""
    pattern = rf"{re.escape(path.stem)}-(\d{{8}})(?:\.([1-9]\d{{0,8}}))?{re.escape(path.suffix)}"
    match = re.fullmatch(pattern, name, re.ASCII)
    return (match[1], int(match[2] or 0)) if match else None


def next_rotation_key(day: date, splits: tuple[RotatedFile, ...]) -> RotationKey:
    """The name to close a file under: of this day, or of the newest closed file's where that is later."""
    wanted = f"{day:%Y%m%d}"
    if splits and splits[-1].key[0] >= wanted:
        newest, number = splits[-1].key
        return newest, number + 1
    return wanted, 0


def list_rotated(path: Path) -> tuple[RotatedFile, ...]:
    """The closed files of a log, in order."""
    found = []
    with os.scandir(path.parent) as entries:
        for entry in entries:
            key = rotation_key(path, entry.name)
            if key is None:
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed this instant
                continue
            if stat.S_ISREG(info.st_mode):
                found.append(RotatedFile(key, entry.name, info.st_ino))
    return tuple(sorted(found))


def take_snapshot(path: Path) -> LogSnapshot | None:
    """Look at a log's directory while rotation may be at work in it; None when it never stood still.

    One look is not enough: a directory that is read while a file is renamed may show neither of its names. Two equal
    looks in a row are true of the time between them. Where the log's own name was there, it stayed the same file, so
    nothing was rotated during the first look. Where it was not, each closed file of the first look was closed before
    its end, so all files that were closed earlier still stand in the second, which shows no more than the first.
    """
    before = None
    for _ in range(_TRIES):
        now = LogSnapshot(live_inode(path), list_rotated(path))
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


# One log file, open for reading, and how much of it was taken.


_BLOCK_BYTES: Final = 64 * 1024  # of whole lines at a time; larger ones fall out of the processor's cache


class LogFile:
    """Gives whole lines from where it stands. Whoever takes them moves ``offset`` on."""

    def __init__(self, path: str, offset: int = 0, sealed: bool = False) -> None:
        # O_NONBLOCK: to open a pipe that lies there must not wait for its other end.
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        found = os.fstat(self.fd)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise not_a_file("read", path)
        self.path = path
        self.inode = found.st_ino
        self.offset = offset
        self.sealed = sealed
        self._head: str | None = None
        self._searched = 0  # up to here there is no end of a line that is too long

    @classmethod
    def at(cls, path: str, place: FilePosition) -> Self | None:
        """Open the file that a cursor means; None when this is another one."""
        try:
            file = cls(path, place.offset, place.sealed)
        except FileNotFoundError:
            return None
        if same_head(file.fd, place.head) and file.size() >= place.offset:
            return file
        file.close()
        return None

    @property
    def place(self) -> FilePosition:
        """What a cursor remembers of it."""
        if self._head is None:
            head = head_of(self.fd, self.offset)
            if self.offset < HEAD_BYTES:
                return FilePosition(self.inode, self.offset, head, self.sealed)
            self._head = head
        return FilePosition(self.inode, self.offset, self._head, self.sealed)

    def size(self) -> int:
        """How many bytes it has now."""
        return os.fstat(self.fd).st_size

    def block(self, upto: int) -> bytes:
        """Whole lines from ``offset`` on, none beyond ``upto``; empty when the next line is not complete."""
        for length in (_BLOCK_BYTES, MAX_LINE_BYTES):
            chunk = os.pread(self.fd, min(length, upto - self.offset), self.offset)
            if end := chunk.rfind(b"\n") + 1:
                return chunk[:end]
            if len(chunk) < length:
                break
        return b""

    def pass_overlong(self, upto: int) -> int | None:
        """Go past a line longer than any may be and return its length; None when there is none, or no end of it yet."""
        if upto - self.offset < MAX_LINE_BYTES:
            return None
        at = max(self._searched, self.offset)
        while at < upto:
            chunk = os.pread(self.fd, min(MAX_LINE_BYTES, upto - at), at)
            if (end := chunk.find(b"\n")) >= 0:
                length = at + end - self.offset
                self.offset = at + end + 1
                return length
            if not chunk:
                break
            at += len(chunk)
        self._searched = at
        return None

    def restart(self) -> None:
        """Begin again at the first byte: what was there is gone."""
        self.offset = self._searched = 0
        self._head = None

    def seal(self) -> None:
        """Find out whether it is closed for good. Only for a file that has lost its name to another one.

        Writers look at the name under the lock: once the lock was free, nobody writes to this file any more.
        """
        if not self.sealed and try_lock(self.fd, required=False):
            unlock(self.fd)
            self.sealed = True

    def sync(self) -> None:
        """Have on disk what was read: a cursor must not point past the end that a power cut leaves."""
        os.fsync(self.fd)

    def close(self) -> None:
        """Close it."""
        os.close(self.fd)


# The files a reader has in hand, oldest first, and how it finds the next one.
#
# The last file is the one being read. The ones before it are closed; each stays until no writer can reach it any more,
# and the newest of them until the next rotation, for those who write without asking for the lock.


Report = Callable[[Problem], None]


class LogSequence:
    """Opens the files of one log in the order in which they were written, starting from a cursor."""

    def __init__(self, path: Path, report: Report) -> None:
        self._path = path
        self._report = report
        self._after: str | None = None
        self._ahead: deque[RotatedFile] = deque()  # closed files that follow the last one in hand
        self.files: list[LogFile] = []

    @property
    def cursor(self) -> Cursor:
        """The place where everything stands."""
        return Cursor(tuple(file.place for file in self.files), self._after)

    def resume(self, cursor: Cursor) -> None:
        """Find again the files that a cursor means. One that is gone is reported; reading goes on after it."""
        self._after = cursor.after
        seen = _wait_for_survey(self._path)
        for place in cursor.files:
            file = self._find(place, seen)
            if file is not None:
                self.files.append(file)
            elif not place.sealed:
                detail = "the file that was being read is gone; going on with the next one there is"
                self._report(Problem("gone", str(self._path), place.offset, detail))

    def skip_to_end(self) -> None:
        """Stand behind the last whole line there is."""
        seen = _wait_for_survey(self._path)
        self._after = seen.splits[-1].name if seen.splits else None
        if seen.live is not None:
            file = LogFile(str(self._path))
            size = file.size()
            while (block := file.block(size)) or file.pass_overlong(size) is not None:
                file.offset += len(block)
            self.files.append(file)

    def extend(self) -> bool:
        """Take the next file in hand, if there is one."""
        while True:
            if not self._ahead:
                if self.files and live_inode(self._path) == self.files[-1].inode:
                    return False
                seen = take_snapshot(self._path)
                if seen is None:
                    return False
                self._take_ahead(seen)
                if not self._ahead:
                    return self._open_live(seen)
            if self._open_split(self._ahead.popleft()):
                return True

    def drop_finished(self) -> None:
        """Let go of closed files that were read to their end, but for the newest of them."""
        keep = []
        for number, file in enumerate(self.files):
            if number < len(self.files) - 2 and file.sealed and file.offset >= file.size():
                file.close()
            else:
                keep.append(file)
        self.files = keep

    def close(self) -> None:
        """Close every file."""
        for file in self.files:
            file.close()
        self.files = []

    def _take_ahead(self, seen: LogSnapshot) -> None:
        """Note the closed files that follow the last one in hand."""
        last = self.files[-1].inode if self.files else None
        found = next((split for split in seen.splits if split.inode == last), None)
        if found is not None and self._follows(found):
            self._after = found.name
        self._ahead = deque(split for split in seen.splits if self._follows(split))

    def _follows(self, split: RotatedFile) -> bool:
        after = rotation_key(self._path, self._after) if self._after else None
        return after is None or split.key > after

    def _open_split(self, split: RotatedFile) -> bool:
        self._after = split.name
        path = str(self._path.with_name(split.name))
        try:
            self.files.append(LogFile(path))
        except FileNotFoundError:
            self._report(Problem("gone", path, 0, "the file was removed before it was read"))
            return False
        return True

    def _open_live(self, seen: LogSnapshot) -> bool:
        if seen.live is None:
            return False
        try:
            file = LogFile(str(self._path))
        except FileNotFoundError:
            return False
        if file.inode != seen.live:  # rotated since: the next look finds it among the closed ones
            file.close()
            return False
        self.files.append(file)
        if seen.splits:
            self._after = seen.splits[-1].name
        return True

    def _find(self, place: FilePosition, seen: LogSnapshot) -> LogFile | None:
        log = self._path
        candidates = [log.with_name(split.name) for split in seen.splits if split.inode == place.inode]
        # An empty file has no first bytes to be known by; but if something was closed since, this is not the one.
        if place.inode == seen.live and (place.offset or not any(map(self._follows, seen.splits))):
            candidates.append(log)
        if not candidates and place.inode != seen.live:
            candidates = _named_otherwise(log, place.inode)
        if place.offset >= HEAD_BYTES:  # enough to be known by in a copy of the directory
            candidates += [log, *(log.with_name(split.name) for split in reversed(seen.splits))]
        for path in candidates:
            if file := LogFile.at(str(path), place):
                return file
        return None


def _wait_for_survey(path: Path) -> LogSnapshot:
    while (seen := take_snapshot(path)) is None:
        pass
    return seen


def _named_otherwise(path: Path, inode: int) -> list[Path]:
    """The file of this inode under a name that is not ours: somebody rotated it with another tool."""
    with os.scandir(path.parent) as entries:
        return [Path(entry.path) for entry in entries if entry.is_file() and entry.stat().st_ino == inode]
