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
from kingdom.base.inotify import FileWatcher
from kingdom.base.locks import FileLock
from kingdom.court.errors import AlreadyRunning, NotLeading
from kingdom.court.models import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from kingdom.base.inotify import FileChange
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


LINK: Final = "link"  # the role that connects the machines of a court, and knows which of them leads
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


class LeadCheck(Protocol):
    """What a role asks in a court that another machine can take over."""

    def check(self) -> None:
        """Raise :class:`~kingdom.court.errors.NotLeading` when another machine may lead the court now."""

    def workers(self, role: str) -> list[str]:
        """Return the names under which a role claims: its own first, then those of processes that led before.

        They differ, so that a process that was cut off cannot recall what its successor holds. Raises
        :class:`~kingdom.court.errors.NotLeading`.
        """

    async def save(self, *paths: Path) -> None:
        """Make files, or folders of files, available to the machine that would take over.

        A role calls it before it does what others see. Raises :class:`~kingdom.court.errors.NotLeading`.
        """

    async def discard_copy(self) -> None:
        """Remove the files of the court from the database, before they are changed; they are sent again later.

        Raises :class:`~kingdom.court.errors.NotLeading` when another machine led the court last.
        """


class NoOtherMachine:
    """The check of a court that no other machine can take over: it does nothing."""

    def check(self) -> None:
        """Do nothing."""

    def workers(self, role: str) -> list[str]:
        """Return the name of the role."""
        return [role]

    async def save(self, *paths: Path) -> None:
        """Do nothing: the files are durable on this machine."""

    async def discard_copy(self) -> None:
        """Do nothing: there is none."""


class Services:
    """What every role gets: home, queues, journal and clock."""

    def __init__(
        self,
        home: Home,
        bus: EventBus,
        journal: Journal,
        clock: Callable[[], float] = time.time,
        lead: LeadCheck | None = None,
    ) -> None:
        self.home = home
        self.bus = bus
        self.journal = journal
        self.clock = clock
        self.lead: LeadCheck = lead or NoOtherMachine()


def on_changes(folders: Iterable[Path], mask: int, changed: Callable[[list[FileChange]], None]) -> Callable[[], None]:
    """Call ``changed`` when something happens in a folder, which is made if it is missing; return how to end that.

    Without inotify nothing is called: the interval of a role is enough.
    """
    watch = FileWatcher(asyncio.get_running_loop())
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            watch.add(folder, mask, changed)
    return watch.close


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
    path, began, failures, waits_for = services.home.heartbeat(role.name), services.clock(), 0, ""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        while not stop.is_set():
            woken.clear()
            try:
                if role.name != LINK:
                    services.lead.check()
                wait = await role.tick()
                failures, waits_for = 0, ""
            except NotLeading as error:
                if str(error) != waits_for:
                    log.warning("%s: %s", role.name, error)
                wait, waits_for = _RETRY_SECONDS[0], str(error)
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
