"""Being woken when a run's files or its shim change; where the kernel cannot tell, by looking often."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kingdom.agents.processes import is_running, look
from kingdom.bus.inotify import CREATE, MODIFY, MOVED_TO, Watch

if TYPE_CHECKING:
    from pathlib import Path

_TOLD: Final = 5.0  # seconds between two looks when the kernel tells us of changes
_BLIND: Final = 0.2  # and when it does not


class Files:
    """One inotify instance for all runs of an event loop: there are few of them on a machine."""

    def __init__(self) -> None:
        self._watch: Watch | None = None
        self._users = 0

    @contextlib.contextmanager
    def follow(self, transcript: Path, folder: Path, wake: Callable[[], None]) -> Iterator[bool]:
        """Call ``wake`` when the transcript grows or a file appears in the folder. Yields whether that works."""
        if self._watch is None:
            self._watch = Watch(asyncio.get_running_loop())
        self._users += 1
        with contextlib.ExitStack() as stack:
            stack.callback(self._leave)
            try:
                stack.callback(self._watch.add(transcript, MODIFY, lambda _: wake()))
                stack.callback(self._watch.add(folder, CREATE | MOVED_TO, lambda _: wake()))
                works = self._watch.available
            except OSError:
                works = False
            yield works

    def _leave(self) -> None:
        self._users -= 1
        if self._users == 0 and self._watch is not None:
            self._watch.close()
            self._watch = None


class ShimWatch:
    """Tells when a shim is gone, whether it is our child or not."""

    def __init__(self, pid: int, start: int | None, wake: Callable[[], None]) -> None:
        self._pid = pid
        self._start = start
        self._handle: int | None = None
        with contextlib.suppress(AttributeError, OSError):
            self._handle = os.pidfd_open(pid)
            asyncio.get_running_loop().add_reader(self._handle, self._ended, wake)

    @property
    def tells(self) -> bool:
        """Whether ``wake`` is called at its end; if not, look often."""
        return self._handle is not None

    @property
    def running(self) -> bool:
        """Whether it is alive."""
        process = look(self._pid)
        if process is not None and not process.alive and self._start in (None, process.start):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, os.WNOHANG)  # if it is our child, it shall not stay behind as a zombie
        return is_running(self._pid, self._start)

    def close(self) -> None:
        """Stop watching it. Safe to call twice."""
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None

    def _ended(self, wake: Callable[[], None]) -> None:
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)  # it stays readable: once is enough
        wake()


def interval(*, told: bool) -> float:
    """How long to sleep at most between two looks."""
    return _TOLD if told else _BLIND
