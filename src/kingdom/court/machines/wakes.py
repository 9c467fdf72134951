"""Who waits for notifications of new tasks: one process of a machine for all of its generals.

For each notification PostgreSQL signals every connection that listens. With a listener for each general, the cost of an
event would grow with all generals of the court. So ``link`` listens, and wakes the generals of its machine by touching
a folder that they watch. While it does not run, each listens for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING

from kingdom.base.inotify import ATTRIB, MOVED_TO, FileWatcher
from kingdom.base.locks import FileLock
from kingdom.court.cancellations import requests_folder
from kingdom.court.queues import TASKS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from kingdom.bus import EventBus
    from kingdom.court.home import Home


class WakeCarrier:
    """Listens for the generals of a machine, and wakes them."""

    def __init__(self, home: Home, bus: EventBus) -> None:
        self._home = home
        self._bus = bus
        self._carried: dict[str, Callable[[], None]] = {}  # how to end it
        self._lock: FileLock | None = None

    def carry_for(self, generals: Collection[str]) -> None:
        """Listen for these generals, and no others."""
        for name in self._carried.keys() - set(generals):
            self._carried.pop(name)()
        for name in set(generals) - self._carried.keys():
            wake = partial(_touch, requests_folder(self._home, name))
            self._carried[name] = self._bus.subscribe(TASKS, wake, types=[name])
            wake()  # a task may have come before
        if self._lock is None:  # not if a general looks just now: at the next call
            self._lock = FileLock.take(_lock_path(self._home))

    def close(self) -> None:
        """Listen no more."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        for undo in self._carried.values():
            undo()
        self._carried.clear()


class TaskWakes:
    """Wakes one general for its tasks and requests. It listens for tasks while no other process of its machine does."""

    def __init__(self, home: Home, bus: EventBus, general: str, wake: Callable[[], None]) -> None:
        self._folder = requests_folder(home, general)
        self._path = _lock_path(home)
        self._bus = bus
        self._general = general
        self._wake = wake
        self._watch: FileWatcher | None = None
        self._undo: Callable[[], None] | None = None

    def open(self) -> None:
        """Begin to wait."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._watch = FileWatcher(asyncio.get_running_loop())
        with contextlib.suppress(OSError):
            self._watch.add(self._folder, MOVED_TO | ATTRIB, lambda _: self._wake())
        self.check()

    def check(self) -> None:
        """Begin to listen, or end it, if the other process went or came."""
        if self._watch is None:
            return
        if self._watch.available and self._path.exists() and FileLock.is_held(self._path):
            self._listen_no_more()
        elif self._undo is None:
            self._undo = self._bus.subscribe(TASKS, self._wake, types=[self._general])

    def close(self) -> None:
        """Wait no more."""
        self._listen_no_more()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _listen_no_more(self) -> None:
        if self._undo is not None:
            self._undo()
            self._undo = None


def _touch(folder: Path) -> None:
    with contextlib.suppress(OSError):  # its general makes the folder, and then looks for tasks
        os.utime(folder)


def _lock_path(home: Home) -> Path:
    return home.role("link") / ".wakes"
