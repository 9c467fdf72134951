"""Stopping a king between any two things he does to the disk, to see whether the next one finds his way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kingdom.base import files
from kingdom.bus import EventBus
from kingdom.court.king import write_ahead_log

CHANGES = ("publish", "claim", "settle", "release", "recall")


class Stopped(BaseException):
    """The king is dead. Not an Exception: nothing on the way may catch it and go on."""


class Stopper:
    """Counts what is done and stops at the points it is told to.

    Each act has a point before it, which is after the one before. Those that may be the last of a look have one after
    them, too.
    """

    def __init__(self, *points: int) -> None:
        self._points = set(points)
        self.passed = 0
        self.trail: list[str] = []

    def point(self, what: str) -> None:
        """Stop here, if this is a point to stop at."""
        self.passed += 1
        self.trail.append(what)
        if self.passed in self._points:
            raise Stopped(f"at point {self.passed}: {what}")


class StoppableBus:
    """A bus whose changes are points to stop at."""

    def __init__(self, bus: EventBus, stopper: Stopper) -> None:
        self._bus = bus
        self._stopper = stopper

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._bus, name)
        return self._stoppable(name, found) if name in CHANGES else found

    def _stoppable(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        async def stoppable(*args: Any, **kwargs: Any) -> Any:
            self._stopper.point(f"before {name} {args[:1]}")
            done = await act(*args, **kwargs)
            if name == "settle":
                self._stopper.point("after settle")
            return done

        return stoppable


@contextlib.contextmanager
def stoppable_files(stopper: Stopper) -> Iterator[None]:
    """Make writing state files and the king's book points to stop at, too; the book's line may also be torn."""

    def stoppable_write(path: Any, data: Any, **options: Any) -> None:
        stopper.point(f"before writing {path.name}")
        written(path, data, **options)

    def stoppable_append(self: write_ahead_log.WriteAheadLog, entry: write_ahead_log.LogEntry) -> None:
        stopper.point("before the entry")
        with (self._path).open("rb") as file:
            whole = file.read()
        appended(self, entry)
        try:
            stopper.point("in the middle of the entry")
        except Stopped:
            line = self._path.read_bytes()[len(whole) :]
            self._path.write_bytes(whole + line[: len(line) // 2])
            raise

    written, appended = files.write_atomic, write_ahead_log.WriteAheadLog.append
    with pytest.MonkeyPatch.context() as patch:
        for module in (files, write_ahead_log):
            patch.setattr(module, "write_atomic", stoppable_write)
        patch.setattr("kingdom.court.queues.write_atomic", stoppable_write)
        patch.setattr(write_ahead_log.WriteAheadLog, "append", stoppable_append)
        yield
