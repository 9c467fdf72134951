"""One stream on disk: its directories, its ledger and its state in memory; and the watch that wakes its subscribers.

Every change follows one protocol, under the stream's lock:

1. read what others wrote into the ledger;
2. decide, on the state in memory, what to do;
3. note ``dirty``; append one line to the ledger; rename the files; note ``clean``.

The line is the commit. If the process dies before it, nothing has happened (an incomplete line is removed). If it dies
after it, the note is still ``dirty``, and the next holder of the lock reads the line and finishes its renames. If a
rename fails, the renames are undone and the line is removed: no process has read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kingdom.base.files import sync_directory, write_atomic
from kingdom.base.inotify import CLOSE_WRITE, MODIFY, MOVED_TO, OVERFLOW, FileChange, FileWatcher
from kingdom.base.syncer import Syncer
from kingdom.bus.errors import InvalidOption
from kingdom.bus.stream_state import StreamStateMachine
from kingdom.bus.transports.files.directories import DirectoryScanner, FileMover, marked_invalid
from kingdom.bus.transports.files.layout import StreamLock, StreamPaths
from kingdom.bus.transports.files.ledger import FileMove, StreamLedger, apply_line, makes_claimable, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kingdom.bus.delivery import DocumentForm, Status, StreamOptions
    from kingdom.bus.transport import Clock
    from kingdom.bus.transports.files.ledger import LedgerLine


COMPACT_BYTES: Final = 4 << 20  # the ledger is replaced when it exceeds this and twice the size of a snapshot
_DIRTY: Final = b"dirty"
_ROW_BYTES: Final = 200  # of one entry in a snapshot, roughly

log = logging.getLogger("kingdom.bus.files")


class FileStream:
    """One stream as one process uses it. Its methods block, and may be called from any thread."""

    def __init__(
        self, root: str, name: str, clock: Clock, lock_timeout: float, max_bytes: int, syncer: Syncer | None = None
    ) -> None:
        self.name = name
        self.clock = clock
        self.max_bytes = max_bytes
        self.paths = StreamPaths(root, name)
        self.mover = FileMover(self.paths, syncer or Syncer())
        self.ledger = StreamLedger(self.paths.ledger)
        self.state = StreamStateMachine()
        self._mutex = threading.Lock()
        self._guard = StreamLock(self.paths.lock, lock_timeout, self.paths.make)
        self._scanner = DirectoryScanner(self)
        self.news = False  # other processes made events claimable; reset when the subscribers are woken
        self._loaded = False
        self._clean = b""
        self._compact_at = COMPACT_BYTES

    def close(self) -> None:
        with self._mutex:
            self.ledger.close()
            self._guard.close()
            self._loaded = False

    @contextlib.contextmanager
    def locked(self) -> Iterator[StreamStateMachine]:
        """Hold the stream's lock, with the state up to date."""
        with self._mutex, self._guard.held():
            self._catch_up()
            yield self.state
            if self.ledger.offset > self._compact_at + 2 * _ROW_BYTES * len(self.state):
                self._compact()

    def prepare(self) -> None:
        """Create the stream's directories and ledger, so that they can be watched. Takes no lock."""
        self.know_options()
        self.paths.make()
        os.close(os.open(self.paths.ledger, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))

    def know_options(self) -> None:
        """Read the options unless they are loaded. Takes no lock."""
        if not self._loaded:
            self.paths.read_options()

    @property
    def exists(self) -> bool:
        """Whether the stream has been used."""
        return os.path.isdir(self.paths.home)

    def changed_outside(self) -> bool:
        """Return whether files or ledger were changed by others. Takes no lock, so it is a hint."""
        if not self._loaded:
            return True
        if self._mutex.locked():
            return False
        return self._scanner.due or self.ledger.size_on_disk() != self.ledger.offset or self._note() != self._clean

    def look_soon(self) -> None:
        """Make the next operation scan the directories. Takes no lock."""
        self._scanner.hurry()

    # ── change ────────────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, line: LedgerLine) -> list[FileMove]:
        """Apply a line in the ledger, in memory and in the directories, or not at all.

        Returns the moves whose file does not exist: it was removed by hand, and the event is forgotten.
        """
        self._guard.write(_DIRTY)
        try:
            start = self.ledger.append(line)
        except OSError:
            self._guard.write(self._clean)
            raise
        try:
            missing = self.mover.carry_out(apply_line(self.state, line))
        except OSError:
            self._loaded = False  # the state is ahead of the directories: read it again
            self.ledger.rewind(start)
            self._tidy()
            raise
        # It is committed. If the note cannot be written, it stays dirty, and the next holder finds nothing to finish.
        with contextlib.suppress(OSError):
            self._tidy()
        if missing:
            self._forget(missing)
        return missing

    def sync(self, statuses: set[Status], *, ledger: bool) -> None:
        """Make the names in these directories durable, and optionally the ledger. Takes no lock."""
        for folder in {self.paths.states[status] for status in statuses}:
            sync_directory(folder)
        if ledger:
            self.ledger.sync()

    def configure(self, options: StreamOptions) -> None:
        """Store the options if they differ."""
        with self.locked():
            before = self.paths.load_options()
            if self.paths.declared and before == options:
                return
            if _fields_of(before.document) != _fields_of(options.document) and len(self.state):
                raise InvalidOption(
                    f"{self.name} holds {len(self.state)} events, whose documents have another form: "
                    "declare the form before the first one is published, or when they are done"
                )
            self.paths.store_options(options)
            self.ledger.append({"op": "options"})
            self.state.configure(ordered=options.ordered, dead_head=options.dead_head)
            self._tidy()

    def set_aside(self, path: str, reason: str) -> None:
        """Move an invalid file to ``invalid/``, with a .reason file. Call it under the lock."""
        name = os.path.basename(path)
        target = f"{self.paths.invalid}{name}"
        if os.path.lexists(target) and target != path:
            target = f"{target}.{time.time_ns()}"
        os.makedirs(self.paths.invalid, exist_ok=True)
        # On a full disk the file is still moved; then only the log has the reason.
        with contextlib.suppress(OSError), open(f"{target}.reason", "w", encoding="utf-8") as file:
            file.write(f"{reason}\n")
        with contextlib.suppress(FileNotFoundError):
            # A status in it would contradict the directory. On a full disk it stays as it is.
            marked = marked_invalid(path, self.paths.form, reason, self.max_bytes)
            with contextlib.suppress(OSError):
                if marked is not None:
                    write_atomic(path, marked)
            os.rename(path, target)
        log.warning("set aside %s: %s", target, reason, extra={"stream": self.name})

    def _forget(self, missing: Sequence[FileMove]) -> None:
        ids = [move.event_id for move in missing if move.event_id in self.state]
        if ids:
            log.warning("forgetting %d events whose files are gone, such as %s", len(ids), ids[0])
            self.commit({"op": "forget", "ids": ids})

    # ── catch up ──────────────────────────────────────────────────────────────────────────────────────────────

    def _catch_up(self) -> None:
        note = self._guard.read()
        if not self._loaded:
            self.ledger.close()
        reset, lines = self.ledger.read()
        if reset:
            options = self.paths.load_options()
            self.state = StreamStateMachine(ordered=options.ordered, dead_head=options.dead_head)
        moves: list[FileMove] = []
        for line in lines:
            moves = self._apply(line)
        self._loaded = True
        if note == _DIRTY:
            # Only the last line can be unfinished: its writer died under the lock, and no process had it since.
            self.mover.carry_out(moves)
        self._clean = self._note()
        if self._scanner.look(self._clean, urgent=reset or note == _DIRTY, changed=note != self._clean):
            self._clean = self._note()
        if note != self._clean:
            self._guard.write(self._clean)
        if self.ledger.vanished:
            self._compact()

    def _apply(self, line: LedgerLine) -> list[FileMove]:
        try:
            self.news = self.news or makes_claimable(line, self.state.ordered)
            if line.get("op") == "options":
                options = self.paths.load_options()
                self.state.configure(ordered=options.ordered, dead_head=options.dead_head)
            return apply_line(self.state, line)
        except (KeyError, TypeError, ValueError, IndexError):
            log.warning("skipping an invalid line of %s: %.80r", self.paths.ledger, line)
            return []

    def _note(self) -> bytes:
        return b"clean " + self.paths.fingerprint()

    def _tidy(self) -> None:
        self._clean = self._note()
        self._guard.write(self._clean)

    def _compact(self) -> None:
        try:
            self.ledger.replace(snapshot(self.state))
            self._compact_at = COMPACT_BYTES
        except OSError as error:
            self._compact_at = 2 * self.ledger.offset  # not at every operation while the disk is full
            log.warning("the ledger %s could not be compacted: %s", self.paths.ledger, error)


_DEBOUNCE_SECONDS: Final = 0.005  # after a file appeared: our own renames come in bursts
_POLL_SECONDS: Final = 0.25  # without inotify


class StreamWatch:
    """The subscribers of one stream, and the inotify watches for them. Used in the event loop only."""

    def __init__(self, stream: FileStream, watch: FileWatcher) -> None:
        self._stream = stream
        self._watch = watch
        self._wakers: list[Callable[[], None]] = []
        self._undo: list[Callable[[], None]] = []
        self._inode = 0
        self._timer: asyncio.TimerHandle | None = None

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Add a subscriber; return the undo."""
        self._wakers.append(wake)
        self.refresh()
        if not self._watch.available and self._timer is None:
            self._look_after(_POLL_SECONDS)

        def undo() -> None:
            with contextlib.suppress(ValueError):
                self._wakers.remove(wake)
            if not self._wakers:
                self.close()

        return undo

    def close(self) -> None:
        for undo in self._undo:
            undo()
        self._undo.clear()
        self._inode = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def wake(self) -> None:
        """Wake the subscribers."""
        self.refresh()
        for wake in list(self._wakers):
            wake()

    def refresh(self) -> None:
        """Watch the current files; the ledger is replaced now and then."""
        if not self._wakers:
            return
        paths = self._stream.paths
        with contextlib.suppress(OSError):  # replaced again, or removed: workers poll
            inode = os.stat(paths.ledger).st_ino
            if inode == self._inode:
                return
            for undo in self._undo:
                undo()
            self._undo.clear()
            self._undo.append(self._watch.add(paths.ledger, MODIFY, self._ledger_changed))
            self._undo.append(self._watch.add(paths.states["PENDING"], MOVED_TO | CLOSE_WRITE, self._file_appeared))
            self._inode = inode

    def _ledger_changed(self, _: list[FileChange]) -> None:
        self._look()

    def _file_appeared(self, changes: list[FileChange]) -> None:
        # Our files are renamed into place; one that was closed after writing comes from outside, and is complete.
        if any(change.mask & (CLOSE_WRITE | OVERFLOW) for change in changes):
            self._stream.look_soon()
        if self._timer is None:
            self._look_after(_DEBOUNCE_SECONDS)

    def _look_after(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        self._look()
        if not self._watch.available and self._wakers:
            self._look_after(_POLL_SECONDS)

    def _look(self) -> None:
        with contextlib.suppress(OSError):
            if self._stream.changed_outside():
                self.wake()


def _fields_of(form: DocumentForm | None) -> DocumentForm | None:
    """Return a form without its outcomes, of which a stream may get more at any time."""
    return None if form is None else replace(form, outcomes=())
