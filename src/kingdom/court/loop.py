"""The loop of a role: check all its state, act, wait for a wake-up.

A role is level-triggered: every ``tick`` checks everything the role is responsible for, and a wake-up only makes the
next tick come earlier. So a missed wake-up loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

from kingdom.base.backoff import backoff
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


_STALE_TEMPORARY_SECONDS: Final = 60.0  # no write takes that long


def remove_stale_temporaries(folder: Path) -> None:
    """Remove the temporary files that killed processes left in a folder. Errors are ignored."""
    with contextlib.suppress(OSError):
        for path in folder.glob(".tmp-*"):
            if time.time() - path.lstat().st_mtime > _STALE_TEMPORARY_SECONDS:
                path.unlink()


_RETRY_SECONDS: Final = (1.0, 30.0)  # after a tick that raised: the first delay, and the longest
current_role: Final = ContextVar[str | None]("current_role", default=None)
"""The role whose code is running: roles can share a process."""
log = logging.getLogger("kingdom.court")


class Role(Protocol):
    """One role of the court."""

    name: str
    interval: float  # the longest time between two ticks, in seconds

    async def start(self) -> None:
        """Reconcile with the state that the previous process of this role left."""

    async def tick(self) -> float | None:
        """Check everything and act. Return the seconds until the next tick, if it should come before ``interval``."""

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when a tick is useful; return a function that unsubscribes."""

    def report(self) -> Mapping[str, Any]:
        """Return the role's own fields of the heartbeat."""

    async def stop(self) -> None:
        """Release all resources. Soldiers keep running."""


class Services:
    """What every role gets: home, queues, journal and clock."""

    def __init__(self, home: Home, bus: EventBus, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        self.home = home
        self.bus = bus
        self.journal = journal
        self.clock = clock


async def run_role(role: Role, services: Services, stop: asyncio.Event) -> None:
    """Run a role until ``stop`` is set. Raises :class:`AlreadyRunning` when another process runs it.

    A tick that raises is logged and retried after a delay: a bad file or a full disk does not end a role.
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
                log.exception("%s: a tick failed; retrying", role.name)
                wait = backoff(failures, *_RETRY_SECONDS)
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
    except OSError:  # a full disk: the content gets outdated, but the file's time shows that the role is alive
        with contextlib.suppress(OSError):
            os.utime(path)


@contextlib.contextmanager
def role_lock(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of a role: only one process runs it. The kernel releases the lock when the process dies."""
    lock = FileLock.take(folder / ".lock")
    if lock is None:
        raise AlreadyRunning(
            f"{name} is already running in {folder.parent.parent}: kingdom status shows it, kingdom down stops it"
        )
    try:
        yield
    finally:
        lock.release()
