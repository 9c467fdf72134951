"""The files a reader has in hand, oldest first, and how it finds the next one.

The last file is the one being read. The ones before it are closed; each stays until no writer can reach it any more,
and the newest of them until the next rotation, for those who write without asking for the lock.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

from kingdom.journal.cursor import HEAD_BYTES, Cursor, Place
from kingdom.journal.logfile import LogFile
from kingdom.journal.problems import Problem
from kingdom.journal.splits import Split, Survey, live_inode, split_key, survey

Report = Callable[[Problem], None]


class Chain:
    """Opens the files of one log in the order in which they were written, starting from a cursor."""

    def __init__(self, path: Path, report: Report) -> None:
        self._path = path
        self._report = report
        self._after: str | None = None
        self._ahead: deque[Split] = deque()  # closed files that follow the last one in hand
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
                seen = survey(self._path)
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

    def _take_ahead(self, seen: Survey) -> None:
        """Note the closed files that follow the last one in hand."""
        last = self.files[-1].inode if self.files else None
        found = next((split for split in seen.splits if split.inode == last), None)
        if found is not None and self._follows(found):
            self._after = found.name
        self._ahead = deque(split for split in seen.splits if self._follows(split))

    def _follows(self, split: Split) -> bool:
        after = split_key(self._path, self._after) if self._after else None
        return after is None or split.key > after

    def _open_split(self, split: Split) -> bool:
        self._after = split.name
        path = str(self._path.with_name(split.name))
        try:
            self.files.append(LogFile(path))
        except FileNotFoundError:
            self._report(Problem("gone", path, 0, "the file was removed before it was read"))
            return False
        return True

    def _open_live(self, seen: Survey) -> bool:
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

    def _find(self, place: Place, seen: Survey) -> LogFile | None:
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


def _wait_for_survey(path: Path) -> Survey:
    while (seen := survey(path)) is None:
        pass
    return seen


def _named_otherwise(path: Path, inode: int) -> list[Path]:
    """The file of this inode under a name that is not ours: somebody rotated it with another tool."""
    with os.scandir(path.parent) as entries:
        return [Path(entry.path) for entry in entries if entry.is_file() and entry.stat().st_ino == inode]
