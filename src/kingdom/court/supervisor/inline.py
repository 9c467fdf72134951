"""Run all roles as tasks of one process: for a small machine, a demo, a debugger."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, Literal

from kingdom import __version__
from kingdom.court.bootstrap import make_role, open_services, stop_order
from kingdom.court.loop import role_lock, run_role
from kingdom.court.machines.own_lead import forget_lead
from kingdom.court.models import timestamp
from kingdom.court.supervisor.policy import RestartBackoff, WantedRoles
from kingdom.court.supervisor.record import SUPERVISOR, RoleRecord, SupervisorRecord, own_process
from kingdom.journal import JournalError
from kingdom.journal.catalog import SystemShutdown, SystemStartup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.supervisor.logs import Announce
    from kingdom.journal import EventData

LOOK_SECONDS: Final = 2.0  # between two checks of the wanted roles
log = logging.getLogger("kingdom.court")


async def run_inline(
    home: Home,
    say: Announce,
    *,
    only: Sequence[str] | None = None,
    stop: asyncio.Event | None = None,
    ready: Callable[[], None] = lambda: None,
    meanwhile: Callable[[], None] | None = None,
    meanwhile_every: float = 0.5,
    look_every: float = LOOK_SECONDS,
) -> str:
    """Run a court in this process until a signal or ``stop``; return why it stopped.

    A role that raises is restarted, as in a process of its own. A role that blocks, blocks all of them.
    """
    stopping = stop or asyncio.Event()
    reasons: list[str] = []
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        reasons.append(number.name)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    wanted = WantedRoles(home, only, say)
    wanted.check()
    folder = home.role(SUPERVISOR)
    folder.mkdir(parents=True, exist_ok=True)
    with role_lock(folder, SUPERVISOR):
        forget_lead(home)
        async with open_services(home) as services:
            court = _InlineCourt(services, say, wanted)
            court.emit(SystemStartup(__version__))
            court.look()
            ready()
            following = asyncio.create_task(_repeat(meanwhile, meanwhile_every)) if meanwhile is not None else None
            while not stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(look_every):
                        await stopping.wait()
                court.look()
            await court.stop()
            reason = reasons[0] if reasons else "stopped"
            court.emit(SystemShutdown(reason))
            if following is not None and meanwhile is not None:
                following.cancel()
                meanwhile()
    return reason


async def _repeat(action: Callable[[], None], every: float) -> None:
    while True:
        action()
        await asyncio.sleep(every)


class _InlineCourt:
    def __init__(self, services: Services, say: Announce, wanted: WantedRoles) -> None:
        self._services = services
        self._say = say
        self._wanted = wanted
        self._running: dict[str, tuple[asyncio.Task[None], asyncio.Event, object, float]] = {}
        self._restarts: dict[str, RestartBackoff] = {}
        self._crashes: Counter[str] = Counter()
        self._record = SupervisorRecord(own_process(), timestamp(time.time()), "inline")

    def look(self) -> None:
        """Start, stop and restart roles, so that the wanted ones run."""
        now = time.monotonic()
        for name, (task, stop, _, began) in list(self._running.items()):
            if task.done():
                del self._running[name]
                if not stop.is_set():
                    self._note_death(name, task, now, began)
        wanted = self._wanted.roles(self._running)
        for name, (_, stop, made_from, _) in self._running.items():
            changed = name in wanted and wanted[name] is not None and wanted[name] != made_from
            if (changed or name not in wanted) and not stop.is_set():
                self._say(name, "its manifest changed: restarting it" if changed else "was removed: stopping it")
                stop.set()
        for name, made_from in wanted.items():
            if name not in self._running and (name not in self._restarts or self._restarts[name].due <= now):
                stop = asyncio.Event()
                task = asyncio.create_task(self._run(name, stop), name=f"role {name}")
                self._running[name] = (task, stop, made_from, now)
                self._say(name, "started")
        self._remember()

    async def stop(self) -> None:
        """Stop all roles in their order."""
        for place in sorted({stop_order(name) for name in self._running}):
            group = [entry for name, entry in self._running.items() if stop_order(name) == place]
            for _, stop, _, _ in group:
                stop.set()
            await asyncio.gather(*(task for task, _, _, _ in group), return_exceptions=True)
        self._running.clear()
        self._remember()

    def emit(self, event: EventData) -> None:
        """Write a system event to the journal; only warn when it cannot be written."""
        try:
            self._services.journal.emit(event)
        except JournalError as error:
            self._say(SUPERVISOR, f"warning: {error}")

    async def _run(self, name: str, stop: asyncio.Event) -> None:
        await run_role(make_role(name, self._services), self._services, stop)

    def _note_death(self, name: str, task: asyncio.Task[None], now: float, began: float) -> None:
        error = None if task.cancelled() else task.exception()
        why = "it ended" if error is None else f"{type(error).__name__}: {error}"
        restarts = self._restarts.setdefault(name, RestartBackoff())
        delay = restarts.died(now, now - began, why)
        self._crashes[name] += 1
        log.error("%s: died, restarting it in %g s", name, delay, exc_info=error)

    def _remember(self) -> None:
        roles: dict[str, RoleRecord] = {}
        for name in {*self._running, *self._restarts}:
            restarts = self._restarts.get(name, RestartBackoff())
            state: Literal["running", "waiting", "failed"] = "failed" if restarts.failed else "waiting"
            if name in self._running:
                state = "running"
            roles[name] = RoleRecord(state, None, None, restarts.deaths, restarts.why, self._crashes[name])
        if roles != self._record.roles:
            self._record.roles = roles
            with contextlib.suppress(OSError):
                self._record.write(self._services.home)
