"""``state/chamberlain/sessions.json``: the soldiers on record, and the cleanup of orphaned ones.

===================================================  ==========================================================
a soldier                                            action
===================================================  ==========================================================
runs, and its task is pending or in progress         stays on record
runs, but its task has ended or is unknown           ended after ``grace_seconds``: ``orphaned``
runs for longer than ``max_age_hours``               ended: ``over-age``; its general sees it as killed
is gone and left an outcome, or its task has ended   removed from the record
is gone without outcome while its task is open       ``system.session_orphaned``, its processes killed, removed
===================================================  ==========================================================

Only runs with an identity in ``state/soldiers/`` and a task of the court are considered. A signal is sent only to the
exact process on record: same pid, start time and boot.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from kingdom.agents.processes import boot_id, is_running, processes_of_run, send
from kingdom.base.files import read_json, read_object, write_json
from kingdom.court.models import timestamp
from kingdom.journal.catalog import RecoverySessionKilled, RecoverySessionsCleaned, SoldierKilled, SystemSessionOrphaned

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kingdom.bus import EventBus
    from kingdom.court.chamberlain.config import SoldierSection
    from kingdom.court.chamberlain.tally import JournalTally
    from kingdom.court.home import Home
    from kingdom.journal import EventData

    Emit = Callable[[EventData], None]


@dataclass(frozen=True, slots=True)
class SoldierProcess:
    """A run with an identity on disk."""

    id: str
    pid: int
    started_at: float
    running: bool
    ended: bool  # it has an outcome
    identity: dict[str, Any]


class SoldierProcesses(Protocol):
    """Finds and ends the processes of soldiers."""

    def soldiers(self) -> list[SoldierProcess]:
        """Return every run with an identity."""

    def stop(self, soldier: SoldierProcess) -> None:
        """Ask a run to end; after some seconds its shim kills it."""

    def kill(self, soldier: SoldierProcess) -> int:
        """Kill all processes of a run at once; return their number."""


class LocalSoldierProcesses:
    """The soldiers of a home on this machine."""

    def __init__(self, home: Home) -> None:
        self._folder = home.soldiers

    def soldiers(self) -> list[SoldierProcess]:
        """Return every run with an identity. Unreadable ones are left alone."""
        try:
            with os.scandir(self._folder) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []
        return [soldier for name in names if (soldier := self._read(name)) is not None]

    def stop(self, soldier: SoldierProcess) -> None:
        """Signal the shim, which stops the run gracefully."""
        if not _signal(soldier, "shim_pid", "shim_start", signal.SIGTERM):
            self.kill(soldier)

    def kill(self, soldier: SoldierProcess) -> int:
        """Kill the shim, the agent, and all processes with the id of the run in their environment."""
        killed = sum(
            _signal(soldier, pid, start, signal.SIGKILL)
            for pid, start in (("shim_pid", "shim_start"), ("pid", "start"))
        )
        return killed + sum(
            send(process.pid, process.start, signal.SIGKILL) for process in processes_of_run(soldier.id)
        )

    def _read(self, name: str) -> SoldierProcess | None:
        identity = read_json(self._folder / name / "identity.json")
        if not isinstance(identity, dict) or identity.get("run_id") != name:
            return None
        pid, started_at = identity.get("pid"), identity.get("started_at")
        if not isinstance(pid, int) or not isinstance(started_at, (int, float)):
            return None
        running = _is_alive(identity, "shim_pid", "shim_start") or _is_alive(identity, "pid", "start")
        return SoldierProcess(
            name, pid, float(started_at), running, (self._folder / name / "exit.json").is_file(), identity
        )


def _is_alive(identity: dict[str, Any], pid: str, start: str) -> bool:
    number, began = identity.get(pid), identity.get(start)
    sound = isinstance(number, int) and number > 1 and isinstance(began, int) and identity.get("boot_id") == boot_id()
    return sound and is_running(identity[pid], began)


def _signal(soldier: SoldierProcess, pid: str, start: str, number: signal.Signals) -> bool:
    return _is_alive(soldier.identity, pid, start) and send(soldier.identity[pid], soldier.identity[start], number)


_COURT_TASK_ID: Final = re.compile(r"task-\d{8}-\d{3,}")
_KILL_AFTER_SECONDS: Final = 60.0  # after the request to stop


class SoldierSessions:
    """Keeps the record of soldiers, and ends orphaned ones."""

    def __init__(self, path: Path, processes: SoldierProcesses, bus: EventBus, tally: JournalTally) -> None:
        self._path = path
        self._processes = processes
        self._bus = bus
        self._tally = tally
        self._record: dict[str, dict[str, Any]] = read_object(path)
        self._unwaited: dict[str, float] = {}  # since when the task of a running soldier is not open
        self._missing: dict[str, float] = {}  # since when a soldier on record has been gone
        self._stop_asked: dict[str, float] = {}  # when a soldier was asked to stop

    @property
    def running(self) -> int:
        """The number of soldiers on record."""
        return len(self._record)

    async def check(self, section: SoldierSection, now: float, emit: Emit) -> None:
        """Check all soldiers, and update the record."""
        before = {name: dict(entry) for name, entry in self._record.items()}
        found = {soldier.id: soldier for soldier in self._processes.soldiers()}
        removed = 0
        for soldier in found.values():
            if soldier.running:
                await self._check_running(soldier, section, now, emit)
        for name in [name for name in self._record if name not in found or not found[name].running]:
            if await self._is_over(name, found.get(name), section, now, emit):
                del self._record[name]
                removed += 1
        self._forget_others(found)
        if removed:
            emit(RecoverySessionsCleaned(removed_count=removed))
        if self._record != before:
            write_json(self._path, self._record, durable=False)

    async def _check_running(self, soldier: SoldierProcess, section: SoldierSection, now: float, emit: Emit) -> None:
        task_id, general = self._assignment(soldier.id)
        if task_id is None or not _COURT_TASK_ID.fullmatch(task_id):
            return  # not a task of the court: another program started and supervises it
        self._record[soldier.id] = {
            "task_id": task_id,
            "general": general,
            "pid": soldier.pid,
            "started_at": timestamp(soldier.started_at),
        }
        if now - soldier.started_at > section.max_age_hours * 3600:
            self._end(soldier, "over-age", now, emit)
        elif await self._is_open(task_id):
            self._unwaited.pop(soldier.id, None)
        elif now - self._unwaited.setdefault(soldier.id, now) >= section.grace_seconds:
            self._end(soldier, "orphaned", now, emit)

    async def _is_over(
        self, name: str, soldier: SoldierProcess | None, section: SoldierSection, now: float, emit: Emit
    ) -> bool:
        """Whether a soldier that does not run can be removed from the record."""
        task_id = self._record[name].get("task_id")
        if (soldier is not None and soldier.ended) or not isinstance(task_id, str) or not await self._is_open(task_id):
            return True
        if now - self._missing.setdefault(name, now) < section.grace_seconds:
            return False  # its general may notice it first
        emit(SystemSessionOrphaned(soldier_id=name, task_id=task_id))
        if soldier is not None:
            self._processes.kill(soldier)
        return True

    def _end(self, soldier: SoldierProcess, reason: str, now: float, emit: Emit) -> None:
        asked_at = self._stop_asked.get(soldier.id)
        if asked_at is None:
            self._stop_asked[soldier.id] = now
            self._processes.stop(soldier)
            emit(SoldierKilled(soldier_id=soldier.id, reason=reason))
            emit(RecoverySessionKilled(soldier_id=soldier.id, reason=reason))
        elif now - asked_at >= _KILL_AFTER_SECONDS:
            self._processes.kill(soldier)

    def _assignment(self, soldier_id: str) -> tuple[str | None, str | None]:
        """Return the task and the general of a soldier, from the journal or from the record."""
        if (known := self._tally.soldiers.get(soldier_id)) is not None:
            return known[0], known[1]
        entry = self._record.get(soldier_id, {})
        return entry.get("task_id"), entry.get("general")

    async def _is_open(self, task_id: str) -> bool:
        record = await self._bus.find(task_id)
        return record is not None and record.status in ("PENDING", "PROCESSING")

    def _forget_others(self, found: dict[str, SoldierProcess]) -> None:
        for times in (self._unwaited, self._stop_asked):
            for name in times.keys() - {soldier.id for soldier in found.values() if soldier.running}:
                del times[name]
        for name in self._missing.keys() - self._record.keys():
            del self._missing[name]
