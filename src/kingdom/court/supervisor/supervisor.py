"""The loop that starts the roles, one process each, and restarts those that die or hang."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from kingdom import __version__
from kingdom.base.files import read_json
from kingdom.base.garbage import exclude_current
from kingdom.court.bootstrap import preload_modules, stop_order
from kingdom.court.loop import remove_stale_temporaries, role_lock
from kingdom.court.machines.capacity import leads_or_joined
from kingdom.court.machines.own_lead import forget_lead
from kingdom.court.models import timestamp
from kingdom.court.supervisor.policy import RestartBackoff, SupervisorTiming, WantedRoles
from kingdom.court.supervisor.process import RoleProcess, fork_role
from kingdom.court.supervisor.record import SUPERVISOR, RoleRecord, SupervisorRecord, own_process, read_record
from kingdom.journal import Journal, JournalError
from kingdom.journal.catalog import SystemShutdown, SystemStartup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kingdom.court.home import Home
    from kingdom.court.supervisor.logs import Announce
    from kingdom.journal import EventData

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_DEFAULT_INTERVAL_SECONDS: Final = 60.0  # of a role whose heartbeat has no interval


class Supervisor:
    """Runs a court. It has no threads and no event loop, because it forks.

    ``only`` names the roles; by default all of them run. ``meanwhile`` is called between two checks, at least every
    ``meanwhile_every`` seconds.
    """

    def __init__(
        self,
        home: Home,
        say: Announce,
        *,
        only: Sequence[str] | None = None,
        timing: SupervisorTiming | None = None,
        meanwhile: Callable[[], None] | None = None,
        meanwhile_every: float = 0.5,
    ) -> None:
        self._home = home
        self._say = say
        self._timing = timing or SupervisorTiming()
        self._wanted = WantedRoles(home, only, say)
        self._meanwhile = meanwhile
        self._meanwhile_every = meanwhile_every
        self._children: dict[str, RoleProcess] = {}
        self._made_from: dict[str, object] = {}
        self._restarts: dict[str, RestartBackoff] = {}
        self._crashes: Counter[str] = Counter()
        self._journal = Journal(home.journal)
        self._held = contextlib.ExitStack()  # what a forked role must close
        self._stop_reason: str | None = None
        self._impatient = False
        self._announced = False
        self._written: object = None

    def run(self, ready: Callable[[], None] = lambda: None) -> str:
        """Supervise until a stop signal; return its name. ``ready`` is called once the roles are started.

        Raises :class:`~kingdom.court.errors.AlreadyRunning` when this court already has a supervisor.
        """
        folder = self._home.role(SUPERVISOR)
        folder.mkdir(parents=True, exist_ok=True)
        self._home.logs.mkdir(parents=True, exist_ok=True)
        self._wanted.check()
        with self._held:
            self._held.enter_context(role_lock(folder, SUPERVISOR))
            remove_stale_temporaries(folder)
            self._end_leftovers()
            forget_lead(self._home)
            preload_modules()
            exclude_current()
            self._listen()
            self._record = SupervisorRecord(own_process(), timestamp(time.time()), "processes")
            self._look()
            ready()
            self._loop()
            reason = self._stop_reason or "stopped"
            self._stop_all()
            if self._announced:
                self._emit(SystemShutdown(reason))
            self._remember()
            if self._meanwhile is not None:
                self._meanwhile()
            self._journal.close()
        return reason

    # ── the loop ──────────────────────────────────────────────────────────────────────────────────────────────

    def _loop(self) -> None:
        next_look = time.monotonic() + self._timing.look
        while self._stop_reason is None:
            if self._meanwhile is not None:
                self._meanwhile()
            died = self._reap()
            now = time.monotonic()
            due = any(restarts.due <= now for name, restarts in self._restarts.items() if name not in self._children)
            if died or due or now >= next_look:
                self._look()
                next_look = now + self._timing.look
            self._wait(self._seconds_to_wait(next_look))

    def _look(self) -> None:
        """Start, stop and restart roles, so that the wanted ones run."""
        now = time.monotonic()
        wanted = self._wanted.roles(self._children)
        if leads_or_joined(self._home) != self._announced:  # the journal belongs to the machine that leads
            self._announced = not self._announced
            if self._announced:
                self._emit(SystemStartup(__version__))
        for name, child in self._children.items():
            changed = name in wanted and wanted[name] is not None and wanted[name] != self._made_from[name]
            if (name not in wanted or changed) and not child.stopping:
                self._say(name, "its manifest changed: restarting it" if changed else "was removed: stopping it")
                self._restarts.pop(name, None)
                self._ask_to_stop(child, now)
            self._watch(child, now)
        for name in list(self._restarts):
            if name not in wanted:
                del self._restarts[name]
        for name, made_from in wanted.items():
            if name not in self._children and (name not in self._restarts or self._restarts[name].due <= now):
                self._start(name, made_from, now)
        self._remember()

    def _start(self, name: str, made_from: object, now: float) -> None:
        try:
            child = fork_role(self._home, name, now, self._lifeline, self._close_inherited)
        except OSError as error:  # too many processes, or no memory for one more
            self._note_death(name, now, 0.0, str(error))
            return
        self._children[name] = child
        self._made_from[name] = made_from
        self._say(name, f"started (pid {child.process.pid})")

    def _watch(self, child: RoleProcess, now: float) -> None:
        """Kill a role that hangs or does not stop. Uses monotonic time, because the wall clock can be set."""
        if child.kill_at is not None and now >= child.kill_at:
            self._say(child.name, "does not stop: killing it")
            child.signal(signal.SIGKILL)
            child.kill_at = now + self._timing.stop
            return
        path = self._home.heartbeat(child.name)
        try:
            found = path.stat()
        except OSError:
            beat = None
        else:
            beat = (found.st_ino, found.st_mtime_ns)
        if beat != child.beat:
            child.beat, child.beat_seen = beat, now
        silent = now - child.beat_seen
        if silent > self._timing.hang and not child.stopping:
            heartbeat = read_json(path)
            interval = heartbeat.get("interval") if isinstance(heartbeat, dict) else None
            interval = interval if isinstance(interval, (int, float)) else _DEFAULT_INTERVAL_SECONDS
            if silent > self._timing.hang + self._timing.hang_intervals * interval:
                self._say(child.name, f"hangs: no heartbeat for {silent:.0f} s; killing it")
                child.signal(signal.SIGKILL)

    def _reap(self) -> bool:
        """Collect the roles that have ended; return whether there were any."""
        ended = []
        for child in self._children.values():
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(child.process.pid, os.WNOHANG)
                if pid:
                    ended.append((child, status))
        for child, status in ended:
            del self._children[child.name]
            why = child.exit_reason(status)
            if child.stopping:
                self._say(child.name, "stopped")
                continue
            now = time.monotonic()
            self._note_death(child.name, now, now - child.began, why)
        return bool(ended)

    def _note_death(self, name: str, now: float, lived: float, why: str) -> None:
        restarts = self._restarts.setdefault(name, RestartBackoff())
        delay = restarts.died(now, lived, why)
        self._crashes[name] += 1
        word = "failed too often, retrying only" if restarts.failed else "died, restarting it"
        self._say(name, f"{word} in {delay:g} s: {why}")

    # ── stopping ──────────────────────────────────────────────────────────────────────────────────────────────

    def _stop_all(self) -> None:
        for place in sorted({stop_order(name) for name in self._children}):
            for name, child in self._children.items():
                if stop_order(name) == place:
                    self._ask_to_stop(child, time.monotonic())
            while any(stop_order(name) == place for name in self._children):
                now = time.monotonic()
                for child in self._children.values():
                    if self._impatient and child.stopping:
                        child.signal(signal.SIGKILL)
                    elif child.stopping:
                        self._watch(child, now)
                if not self._reap():
                    self._wait(min(self._timing.stop, 1.0))

    def _ask_to_stop(self, child: RoleProcess, now: float) -> None:
        if not child.stopping:
            child.stopping = True
            child.kill_at = now + self._timing.stop
            child.signal(signal.SIGTERM)

    def _end_leftovers(self) -> None:
        """End the roles of a supervisor that was killed: they stop by themselves, unless they hang."""
        record = read_record(self._home)
        for name, role in (record.roles if record else {}).items():
            if role.process is not None and role.process.send(signal.SIGTERM):
                self._say(name, f"ending the process of a previous supervisor (pid {role.process.pid})")
                if not role.process.wait(self._timing.stop):
                    role.process.send(signal.SIGKILL)
                    role.process.wait(self._timing.stop)

    # ── signals and waiting ───────────────────────────────────────────────────────────────────────────────────

    def _listen(self) -> None:
        self._woken, waker = socket.socketpair()
        reading, self._lifeline_end = os.pipe()
        self._lifeline = reading
        for end in (self._woken, waker):
            end.setblocking(False)
            self._held.callback(end.close)
        self._held.callback(os.close, self._lifeline_end)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        self._held.callback(signal.set_wakeup_fd, -1)
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGCHLD:
            return
        self._impatient = self._stop_reason is not None and number == signal.SIGINT
        self._stop_reason = self._stop_reason or signal.Signals(number).name

    def _close_inherited(self) -> None:
        """In a forked role: close what belongs to the supervisor, above all its end of the lifeline."""
        self._held.close()
        for child in self._children.values():
            os.close(child.reason_pipe)

    def _wait(self, seconds: float) -> None:
        with contextlib.suppress(InterruptedError):
            if select.select([self._woken], [], [], max(seconds, 0))[0]:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)

    def _seconds_to_wait(self, next_look: float) -> float:
        dues = [restarts.due for name, restarts in self._restarts.items() if name not in self._children]
        seconds = min([next_look, *dues]) - time.monotonic()
        return min(seconds, self._meanwhile_every) if self._meanwhile is not None else seconds

    # ── reporting ─────────────────────────────────────────────────────────────────────────────────────────────

    def _remember(self) -> None:
        """Write the record for ``status``, ``down`` and the next supervisor, when something has changed."""
        roles: dict[str, RoleRecord] = {}
        for name in {*self._children, *self._restarts}:
            child, restarts = self._children.get(name), self._restarts.get(name, RestartBackoff())
            state = "failed" if restarts.failed else "waiting"
            began = None
            if child is not None:
                state = "stopping" if child.stopping else "running"
                began = timestamp(time.time() - (time.monotonic() - child.began))
            before = self._record.roles.get(name)
            if before is not None and child is not None and before.process == child.process:
                began = before.started_at
            roles[name] = RoleRecord(
                state,  # type: ignore[arg-type]
                child.process if child else None,
                began,
                restarts.deaths,
                restarts.why,
                self._crashes[name],
            )
        self._record.roles = roles
        content = {name: role.document() for name, role in roles.items()}
        if content != self._written:
            with contextlib.suppress(OSError):  # a full disk must not end the court; the next change is written again
                self._record.write(self._home)
                self._written = content

    def _emit(self, event: EventData) -> None:
        try:
            self._journal.emit(event)
        except JournalError as error:
            self._say(SUPERVISOR, f"warning: {error}")
