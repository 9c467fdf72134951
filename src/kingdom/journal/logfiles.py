"""The files of a log: names of rotated files, one open file, and the sequence of files that a reader goes through.

``events.log`` is rotated to the name of the day it ends, ``events-20260207.log``; a second file of that day becomes
``events-20260207.1.log``, and so on. Names always sort in the order of rotation: rotation never chooses a name that
sorts before an existing one, whatever the clock says.
"""

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
from kingdom.journal.errors import InvalidLine, Problem, not_a_file
from kingdom.journal.lines import MAX_LINE_BYTES, parse_ts

_MAX_SNAPSHOT_TRIES: Final = 50
_BLOCK_BYTES: Final = 64 * 1024  # of whole lines at a time; larger blocks fall out of the processor's cache

RotationKey = tuple[str, int]  # the day as YYYYMMDD, the number of the file within it


class RotatedFile(NamedTuple):
    """A log file that was rotated: nobody opens it for writing any more."""

    key: RotationKey
    name: str
    inode: int


class LogSnapshot(NamedTuple):
    """A log's directory at one instant: the inode of the live file, if there is one, and the rotated files in order."""

    live: int | None
    rotated: tuple[RotatedFile, ...]


def rotated_name(path: Path, key: RotationKey) -> str:
    """Return the name of a rotated file: ``events-20260207.log``, ``events-20260207.1.log``."""
    day, number = key
    return f"{path.stem}-{day}{f'.{number}' if number else ''}{path.suffix}"


def rotation_key(path: Path, name: str) -> RotationKey | None:
    """Return the sort key of a rotated file of this log; None for any other name."""
    pattern = rf"{re.escape(path.stem)}-(\d{{8}})(?:\.([1-9]\d{{0,8}}))?{re.escape(path.suffix)}"
    match = re.fullmatch(pattern, name, re.ASCII)
    return (match[1], int(match[2] or 0)) if match else None


def next_rotation_key(day: date, rotated: tuple[RotatedFile, ...]) -> RotationKey:
    """Return the key for the next rotation: of this day, or of the newest rotated file's day if that is later."""
    wanted = f"{day:%Y%m%d}"
    if rotated and rotated[-1].key[0] >= wanted:
        newest, number = rotated[-1].key
        return newest, number + 1
    return wanted, 0


def list_rotated(path: Path) -> tuple[RotatedFile, ...]:
    """List the rotated files of a log in order."""
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
    """List a log's directory consistently while it may be rotated; None when it kept changing.

    One listing is not enough: a directory that is read during a rename may show neither name of the file. Two equal
    listings in a row are true of the time between them. If the live file was there, it stayed the same file, so nothing
    was rotated during the first listing. If it was not, each file of the first listing was rotated before that listing
    ended, so all files rotated earlier still appear in the second, which shows no more than the first.
    """
    before = None
    for _ in range(_MAX_SNAPSHOT_TRIES):
        now = LogSnapshot(live_inode(path), list_rotated(path))
        if now == before:
            return now
        before = now
    return None


def live_inode(path: Path) -> int | None:
    """Return the inode of the live file, or None."""
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


class LogFile:
    """One log file, open for reading. The caller moves ``offset`` past the lines it has taken."""

    def __init__(self, path: str, offset: int = 0, sealed: bool = False) -> None:
        # O_NONBLOCK: opening a pipe must not wait for its other end.
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
        self._searched = 0  # no newline between offset and here: the line is too long

    @classmethod
    def at(cls, path: str, position: FilePosition, *, shorter: bool = False) -> Self | None:
        """Open ``path`` if it is the file that a cursor refers to; else return None.

        ``shorter``: if it lacks its last bytes, which were read before they were lost. It is opened at its end.
        """
        try:
            file = cls(path, position.offset, position.sealed)
        except FileNotFoundError:
            return None
        if same_head(file.fd, position.head, os.path.dirname(path)):
            if file.size() >= position.offset:
                return file
            if shorter:
                file.offset = 0
                file.skip_to_end()
                return file
        file.close()
        return None

    @property
    def position(self) -> FilePosition:
        """How much of the file was read, as a cursor stores it."""
        if self._head is None:
            head = head_of(self.fd, self.offset)
            if self.offset < HEAD_BYTES:
                return FilePosition(self.inode, self.offset, head, self.sealed)
            self._head = head
        return FilePosition(self.inode, self.offset, self._head, self.sealed)

    def size(self) -> int:
        """Return its current size in bytes."""
        return os.fstat(self.fd).st_size

    def block(self, upto: int) -> bytes:
        """Return whole lines from ``offset`` on, none beyond ``upto``; empty when the next line is unfinished."""
        for length in (_BLOCK_BYTES, MAX_LINE_BYTES):
            chunk = os.pread(self.fd, min(length, upto - self.offset), self.offset)
            if end := chunk.rfind(b"\n") + 1:
                return chunk[:end]
            if len(chunk) < length:
                break
        return b""

    def skip_overlong(self, upto: int) -> int | None:
        """Skip a line that exceeds the limit and return its length; None when there is none, or it is unfinished."""
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

    def skip_to_end(self) -> None:
        """Move behind the last whole line."""
        size = self.size()
        while (block := self.block(size)) or self.skip_overlong(size) is not None:
            self.offset += len(block)

    def skip_before(self, since: float) -> None:
        """Move to the first line of a time or later, or some lines before it. Lines are roughly in order of time."""
        low, high = 0, self.size()  # the line is at low or later; nothing at high or later has to be looked at
        while high - low > _BLOCK_BYTES:
            middle = (low + high) // 2
            chunk = os.pread(self.fd, MAX_LINE_BYTES, middle)
            begin = chunk.find(b"\n") + 1
            at = _time_of(chunk[begin:]) if begin else None
            if at is None or at >= since:
                high = middle
            else:
                low = middle + begin
        self.offset = low

    def last_time(self) -> float | None:
        """Return the time of the last line that has one, in seconds since the epoch."""
        size = self.size()
        for length in (_BLOCK_BYTES, 2 * MAX_LINE_BYTES):
            chunk = os.pread(self.fd, length, max(size - length, 0))
            for line in reversed(chunk.split(b"\n")):
                if (at := _time_of(line)) is not None:
                    return at
        return None

    def restart(self) -> None:
        """Start again at the first byte: the file was truncated."""
        self.offset = self._searched = 0
        self._head = None

    def seal(self) -> None:
        """Check whether writing to a rotated file has ended.

        Writers check the file's name under the lock: once the lock was free, nobody writes to this file any more.
        """
        if not self.sealed and try_lock(self.fd, required=False):
            unlock(self.fd)
            self.sealed = True

    def sync(self) -> None:
        """Sync what was read: a cursor must not point past the end that a power cut leaves."""
        os.fsync(self.fd)

    def close(self) -> None:
        os.close(self.fd)


Report = Callable[[Problem], None]


class LogSequence:
    """The open files of a log, oldest first. Opens further files in the order in which they were written.

    The last file is the one being read. The ones before it are rotated. Each stays open until no writer can reach it
    any more, and the newest of them until the next rotation, because of writers that went on without the lock.
    """

    def __init__(self, path: Path, report: Report) -> None:
        self._path = path
        self._report = report
        self._after: str | None = None
        self._ahead: deque[RotatedFile] = deque()  # rotated files after the last open one
        self.files: list[LogFile] = []

    @property
    def cursor(self) -> Cursor:
        """How much of each open file was read."""
        return Cursor(tuple(file.position for file in self.files), self._after)

    def resume(self, cursor: Cursor) -> None:
        """Open the files that a cursor refers to. A missing one is reported, and reading continues after it.

        Reading continues at the end of one that lost its last lines: a power cut took them, or the machine that led the
        court died before the next one had them. They were read, as was everything before them.
        """
        self._after = cursor.after
        seen = _wait_for_snapshot(self._path)
        for position in cursor.files:
            while (file := self._find(position, seen)) is None:
                before, seen = seen, _wait_for_snapshot(self._path)
                if seen == before:
                    break  # otherwise it may have been rotated between the snapshot and the opening
            if file is None and (file := self._find_shorter(position, seen)) is not None:
                detail = f"the file has {file.size():,} bytes only; continuing at its end"
                self._report(Problem("shrunk", file.path, position.offset, detail))
            if file is not None:
                self.files.append(file)
            elif not position.sealed:
                detail = "the file that was being read is gone; continuing with the next one"
                self._report(Problem("gone", str(self._path), position.offset, detail))

    def skip_to_end(self) -> None:
        """Move behind the last whole line of the log."""
        seen = _wait_for_snapshot(self._path)
        self._after = seen.rotated[-1].name if seen.rotated else None
        if seen.live is not None:
            file = LogFile(str(self._path))
            file.skip_to_end()
            self.files.append(file)

    def skip_before(self, since: float) -> None:
        """Move to the first line of a time, in seconds since the epoch, or later."""
        for rotated_file in reversed(_wait_for_snapshot(self._path).rotated):
            try:
                file = LogFile(str(self._path.with_name(rotated_file.name)))
            except FileNotFoundError:
                continue
            last = file.last_time()
            file.close()
            if last is not None and last < since:
                self._after = rotated_file.name
                break
        if self.extend():
            self.files[-1].skip_before(since)

    def extend(self) -> bool:
        """Open the next file; return False when there is none."""
        while True:
            if not self._ahead:
                if self.files and live_inode(self._path) == self.files[-1].inode:
                    return False
                seen = take_snapshot(self._path)
                if seen is None:
                    return False
                self._queue_ahead(seen)
                if not self._ahead:
                    return self._open_live(seen)
            if self._open_rotated(self._ahead.popleft()):
                return True

    def drop_finished(self) -> None:
        """Close rotated files that were read to their end, except the newest of them."""
        keep = []
        for number, file in enumerate(self.files):
            if number < len(self.files) - 2 and file.sealed and file.offset >= file.size():
                file.close()
            else:
                keep.append(file)
        self.files = keep

    def close(self) -> None:
        for file in self.files:
            file.close()
        self.files = []

    def _queue_ahead(self, seen: LogSnapshot) -> None:
        """Queue the rotated files that follow the last open one."""
        last = self.files[-1].inode if self.files else None
        found = next((rotated_file for rotated_file in seen.rotated if rotated_file.inode == last), None)
        if found is not None and self._follows(found):
            self._after = found.name
        self._ahead = deque(rotated_file for rotated_file in seen.rotated if self._follows(rotated_file))

    def _follows(self, rotated_file: RotatedFile) -> bool:
        after = rotation_key(self._path, self._after) if self._after else None
        return after is None or rotated_file.key > after

    def _open_rotated(self, rotated_file: RotatedFile) -> bool:
        self._after = rotated_file.name
        path = str(self._path.with_name(rotated_file.name))
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
        if file.inode != seen.live:  # rotated since: the next snapshot has it among the rotated files
            file.close()
            return False
        self.files.append(file)
        if seen.rotated:
            self._after = seen.rotated[-1].name
        return True

    def _find(self, position: FilePosition, seen: LogSnapshot) -> LogFile | None:
        log = self._path
        same = [
            log.with_name(rotated_file.name) for rotated_file in seen.rotated if rotated_file.inode == position.inode
        ]
        # An empty file has no first bytes to compare; but if something was rotated since, this is not the file.
        if position.inode == seen.live and (position.offset or not any(map(self._follows, seen.rotated))):
            same.append(log)
        if not same and position.inode != seen.live:
            same = _find_inode(log, position.inode)
        copies = []
        if position.offset:  # its first lines are enough to recognise the file in a copied directory
            copies = [log, *(log.with_name(rotated_file.name) for rotated_file in reversed(seen.rotated))]
        for number, path in enumerate((*same, *copies)):
            file = LogFile.at(str(path), position)
            if file is not None and (file.inode == position.inode or number >= len(same)):
                return file
            if file is not None:  # another one has its name since the snapshot
                file.close()
        return None

    def _find_shorter(self, position: FilePosition, seen: LogSnapshot) -> LogFile | None:
        names = [self._path.name, *(rotated_file.name for rotated_file in reversed(seen.rotated))]
        paths = (str(self._path.with_name(name)) for name in names if position.offset)
        found = (LogFile.at(path, position, shorter=True) for path in paths)
        return next((file for file in found if file is not None), None)


_TS: Final = re.compile(rb'\{\s*"ts"\s*:\s*"([^"]{1,40})"')


def _time_of(data: bytes) -> float | None:
    """Return the time of the line at the start of ``data``; None when it has none."""
    found = _TS.match(data)
    try:
        return None if found is None else parse_ts(found[1].decode()).timestamp()
    except (InvalidLine, UnicodeDecodeError):
        return None


def _wait_for_snapshot(path: Path) -> LogSnapshot:
    while (seen := take_snapshot(path)) is None:
        pass
    return seen


def _find_inode(path: Path, inode: int) -> list[Path]:
    """Find a file by inode that another tool rotated to a name of its own."""
    with os.scandir(path.parent) as entries:
        return [Path(entry.path) for entry in entries if entry.is_file() and entry.stat().st_ino == inode]
