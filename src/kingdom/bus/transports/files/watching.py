"""Waking the subscribers of one stream: from this process directly, from others and from hands by inotify."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Final

from kingdom.bus.inotify import CLOSE_WRITE, MODIFY, MOVED_TO, OVERFLOW, Change, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.bus.transports.files.stream import FileStream

_SETTLE: Final = 0.005  # seconds after a file appeared before we look: our own renames come in bursts
_POLL: Final = 0.25  # seconds between looks where there is no inotify


class StreamWatch:
    """The subscribers of one stream, and the watches that serve them. Used from the event loop only."""

    def __init__(self, stream: FileStream, watch: Watch) -> None:
        self._stream = stream
        self._watch = watch
        self._wakers: list[Callable[[], None]] = []
        self._undo: list[Callable[[], None]] = []
        self._inode = 0
        self._timer: asyncio.TimerHandle | None = None

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Add a subscriber; returns the undo."""
        self._wakers.append(wake)
        self.refresh()
        if not self._watch.available and self._timer is None:
            self._look_after(_POLL)

        def undo() -> None:
            with contextlib.suppress(ValueError):
                self._wakers.remove(wake)
            if not self._wakers:
                self.close()

        return undo

    def close(self) -> None:
        """Stop watching."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        self._inode = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def wake(self) -> None:
        """Tell the subscribers."""
        self.refresh()
        for wake in list(self._wakers):
            wake()

    def refresh(self) -> None:
        """Watch the files as they are now; the ledger is replaced from time to time."""
        if not self._wakers:
            return
        paths = self._stream.paths
        with contextlib.suppress(OSError):  # replaced again, or removed: the workers poll
            inode = os.stat(paths.ledger).st_ino
            if inode == self._inode:
                return
            for undo in self._undo:
                undo()
            self._undo.clear()
            self._undo.append(self._watch.add(paths.ledger, MODIFY, self._ledger_changed))
            self._undo.append(self._watch.add(paths.states["PENDING"], MOVED_TO | CLOSE_WRITE, self._file_appeared))
            self._inode = inode

    def _ledger_changed(self, _: list[Change]) -> None:
        self._look()

    def _file_appeared(self, changes: list[Change]) -> None:
        # Ours are renamed into place; one that was closed after writing is somebody else's, and finished now.
        if any(change.mask & (CLOSE_WRITE | OVERFLOW) for change in changes):
            self._stream.look_soon()
        if self._timer is None:
            self._look_after(_SETTLE)

    def _look_after(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        self._look()
        if not self._watch.available and self._wakers:
            self._look_after(_POLL)

    def _look(self) -> None:
        with contextlib.suppress(OSError):
            if self._stream.changed_outside():
                self.wake()
