"""The loop of a role."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

from kingdom.base.files import write_json
from kingdom.base.locks import FileLock
from kingdom.court.errors import AlreadyRunning
from kingdom.court.models import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from kingdom.bus import EventBus
    from kingdom.court.home import Home
    from kingdom.journal import Journal


# What killed processes were writing, and nobody will rename into place any more.


_STALE_TEMPORARY_SECONDS: Final = 60.0  # seconds: no write takes that long


def remove_stale_temporaries(folder: Path) -> None:
    """Remove it from a folder. Work goes on where that is not possible."""
    with contextlib.suppress(OSError):
        for path in folder.glob(".tmp-*"):
            if time.time() - path.lstat().st_mtime > _STALE_TEMPORARY_SECONDS:
                path.unlink()


# The loop every role runs: look at what lies there, act, wait to be woken.
#
# A role is level-triggered. ``tick`` looks at everything it is responsible for, every time; a wake-up only makes it look
# earlier. So nothing depends on having been awake when something happened.


_RETRY_SECONDS: Final = (1.0, 30.0)  # seconds before the next look after a tick that raised: at first, at most
current_role: Final = ContextVar[str | None]("current_role", default=None)
"""Whose code runs: roles may share a process."""
log = logging.getLogger("kingdom.court")


class Role(Protocol):
    """One role of the court."""

    name: str
    interval: float  # seconds: the longest it waits between two looks

    async def start(self) -> None:
        """Reconcile with what a former process of this role left behind."""

    async def tick(self) -> float | None:
        """Look at everything and act. Returns the seconds until it wants to look again, if before ``interval``."""

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Have ``wake`` called when a look is worth it; returns the undo."""

    def report(self) -> Mapping[str, Any]:
        """What the heartbeat tells about it."""

    async def stop(self) -> None:
        """Let go of everything. What runs on its own (soldiers) goes on."""


class Services:
    """What every role gets: the home, its queues, the journal and the time."""

    def __init__(self, home: Home, bus: EventBus, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        self.home = home
        self.bus = bus
        self.journal = journal
        self.clock = clock


async def run_role(role: Role, services: Services, stop: asyncio.Event) -> None:
    """Run a role until ``stop`` is set. Raises :class:`AlreadyRunning` when another process has it.

    A tick that raises is logged and tried again after a moment: one bad file or a full disk does not end a role.
    """
    folder = services.home.role(role.name)
    folder.mkdir(parents=True, exist_ok=True)
    current_role.set(role.name)
    with role_lock(folder, role.name):
        remove_stale_temporaries(folder)
        woken = asyncio.Event()
        undo = role.subscribe(woken.set)
        try:
            await role.start()
            await _run_loop(role, services, stop, woken)
        finally:
            undo()
            await role.stop()


async def _run_loop(role: Role, services: Services, stop: asyncio.Event, woken: asyncio.Event) -> None:
    path, began, failures = services.home.heartbeat(role.name), services.clock(), 0
    stopping = asyncio.ensure_future(stop.wait())
    try:
        while not stop.is_set():
            woken.clear()
            try:
                wait = await role.tick()
                failures = 0
            except Exception:
                log.exception("%s: a look at the court failed; trying again", role.name)
                wait = min(_RETRY_SECONDS[0] * 2**failures, _RETRY_SECONDS[1])
                failures += 1
            _write_heartbeat(path, role, services.clock(), began, failures)
            seconds = role.interval if wait is None else min(wait, role.interval)
            waking = asyncio.ensure_future(woken.wait())
            if failures:
                woken.clear()
            await asyncio.wait([stopping, waking], timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED)
            waking.cancel()
    finally:
        stopping.cancel()


def _write_heartbeat(path: Path, role: Role, now: float, began: float, failures: int) -> None:
    heartbeat = {
        "ts": timestamp(now),
        "pid": os.getpid(),
        "started_at": timestamp(began),
        "interval": role.interval,
        "failures": failures,
        **role.report(),
    }
    try:
        write_json(path, heartbeat, durable=False)
    except OSError:  # a full disk: what it says gets old, but its time shows that the role is no dead one
        with contextlib.suppress(OSError):
            os.utime(path)


@contextlib.contextmanager
def role_lock(folder: Path, name: str) -> Iterator[None]:
    """Be the only process that has the role. The kernel lets go when the process dies."""
    lock = FileLock.take(folder / ".lock")
    if lock is None:
        raise AlreadyRunning(
            f"{name} is already running in {folder.parent.parent}: kingdom status shows it, kingdom down stops it"
        )
    try:
        yield
    finally:
        lock.release()
