"""Append to the journal from any number of processes, while it may be rotated at any time.

Steps of one append:

1. lock the file (:mod:`kingdom.base.locks`);
2. if the path now names another file, because the log was rotated, close this one, open that one, and start again;
3. if the file does not end in a newline (a writer died, or the disk was full, in the middle of a line), start with one;
4. append the line with one ``write`` on an ``O_APPEND`` descriptor;
5. release the lock.

So a line is whole or ends where its writer died; no other writer continues it. A renamed file gets no more lines once
its lock was free: a writer that takes the lock after the rename finds another file in step 2.
:mod:`kingdom.journal.reader` relies on that.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, overload
from weakref import WeakSet

from kingdom.base.locks import lock, unlock
from kingdom.journal.catalog import EventData, event_type
from kingdom.journal.errors import InvalidEvent, not_a_file, unavailable
from kingdom.journal.lines import compose, encode_data, format_ts

Clock = Callable[[], float]  # seconds since the epoch, as time.time

PATIENCE: Final = 1.0  # seconds to wait for the lock before writing without it
_SHORT_PATIENCE: Final = 0.01  # after a holder was found stuck, until the lock is free again
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class Journal:
    """Appends internal events to one file. Threads may share it, and it may be used after a fork."""

    def __init__(self, path: str | os.PathLike[str], clock: Clock = time.time) -> None:
        self._path = os.fspath(path)
        self._clock = clock
        self._opened: tuple[int, int, int] | None = None  # descriptor, device, inode
        self._end = -1  # where the file ended after our last line
        self._patience = PATIENCE
        self._second, self._ts = -1, ""
        self._mutex = threading.Lock()  # threads share the descriptor, and so its lock
        _journals.add(self)

    @overload
    def emit(self, event: EventData, actor: str | None = None) -> None: ...

    @overload
    def emit(self, event: str, actor: str, data: Mapping[str, Any] | None = None) -> None: ...

    def emit(self, event: EventData | str, actor: str | None = None, data: Mapping[str, Any] | None = None) -> None:
        """Append an event: ``emit(TaskStarted("task-1"), "gen-pr")``.

        Or by name: ``emit("task.started", "gen-pr", {"task_id": "task-1"})``. The first form needs no actor where the
        catalog allows only one. Raises :class:`InvalidEvent` for an event that the catalog does not allow, and
        :class:`JournalUnavailable` when the line could not be written.
        """
        if isinstance(event, str):
            event = event_type(event).data_from({} if data is None else data)
        elif data is not None:
            raise InvalidEvent(f"{event.spec.name}: data is given twice, as an object and as a mapping")
        spec = event.spec
        signed, encoded = spec.actor_or_error(actor), encode_data(event)
        try:
            with self._mutex:
                # The time is taken under the lock: a line in a new file is never older than the rotation.
                self._append(lambda: compose(self._now(), spec.name, signed, encoded))
        except OSError as error:
            raise unavailable(error, "write to", self._path) from error

    def copy(self, lines: Iterable[bytes]) -> None:
        """Append lines of another journal as they are, each with its newline, all of them together."""
        together = b"".join(lines)
        if not together:
            return
        try:
            with self._mutex:
                self._append(lambda: together)
        except OSError as error:
            raise unavailable(error, "write to", self._path) from error

    def close(self) -> None:
        """Close the file. The next event opens it again."""
        with self._mutex:
            self._close()

    def _append(self, make: Callable[[], bytes]) -> None:
        try:
            fd, size = self._lock_live_file()
            line = make()
            if size and size != self._end and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line
            self._end = -1
            written = os.write(fd, line)
            if written < len(line):
                self._write_rest(fd, memoryview(line)[written:])
            self._end = size + len(line)
        finally:
            if self._opened is not None:
                unlock(self._opened[0])

    def _lock_live_file(self) -> tuple[int, int]:
        """Return the locked descriptor of the live file, and its size.

        Without the lock, because its holder is stuck, two things may happen: our line may be appended to an unfinished
        line of the holder, or go to a file that is being renamed. Readers report the first. They see the second,
        because they keep reading the last rotated file until the next rotation.
        """
        while True:
            if self._opened is None:
                self._open()
            assert self._opened is not None
            fd, device, inode = self._opened
            self._patience = PATIENCE if lock(fd, self._patience, required=False) else _SHORT_PATIENCE
            try:
                found = os.stat(self._path)
            except FileNotFoundError:
                found = None
            if found is not None and found.st_ino == inode and found.st_dev == device:
                return fd, found.st_size
            self._close()

    def _open(self) -> None:
        fd = os.open(self._path, _FLAGS, 0o644)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise not_a_file("write to", self._path)
        self._opened = fd, found.st_dev, found.st_ino
        self._end = -1

    def _close(self) -> None:
        if self._opened is not None:
            fd, self._opened = self._opened[0], None
            os.close(fd)  # releases the lock

    @staticmethod
    def _write_rest(fd: int, rest: memoryview) -> None:
        """Finish a line that was written in part. No other writer can intervene: we hold the lock."""
        while rest:
            rest = rest[os.write(fd, rest) :]

    def _now(self) -> str:
        seconds = self._clock()
        if int(seconds) != self._second:
            self._second, self._ts = int(seconds), format_ts(seconds)
        return self._ts

    def _after_fork(self) -> None:
        # A lock belongs to the open file, which parent and child share: the child must open the file itself. The mutex
        # may be held by a thread that does not exist in the child.
        self._mutex = threading.Lock()
        self._close()


_journals: WeakSet[Journal] = WeakSet()


def _reopen_all() -> None:
    for journal in list(_journals):
        journal._after_fork()


os.register_at_fork(after_in_child=_reopen_all)
