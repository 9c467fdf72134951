"""``state/chamberlain/sessions.json``: the soldiers on record, and what happens to those that got lost.

===================================================  ==========================================================
a soldier                                            what is done
===================================================  ==========================================================
runs, and its task waits or is in progress           it stays on record
runs, but its task has ended or is not known         after ``grace_seconds`` it is ended: ``orphaned``
runs for longer than ``max_age_hours``               it is ended: ``over-age``; its general sees it as killed
is gone and left word of its end, or its task ended  it is taken off the record
is gone without a word while its task is in progress ``system.session_orphaned``, what is left of it is ended, off
===================================================  ==========================================================
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.files import read_json, write_json
from kingdom.court.models import timestamp
from kingdom.journal.catalog import (
    RecoverySessionKilled,
    RecoverySessionsCleaned,
    SoldierKilled,
    SystemSessionOrphaned,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kingdom.bus import EventBus
    from kingdom.court.chamberlain.config import SoldierSection
    from kingdom.court.chamberlain.soldiers import Barracks, Soldier
    from kingdom.court.chamberlain.tally import Tally
    from kingdom.journal import EventData

    Emit = Callable[[EventData], None]

_COURT_TASK: Final = re.compile(r"task-\d{8}-\d{3,}")
_KILL_AFTER: Final = 60.0  # seconds that a soldier has to end after it was told to


class Sessions:
    """Compares the record with who runs."""

    def __init__(self, path: Path, barracks: Barracks, bus: EventBus, tally: Tally) -> None:
        self._path = path
        self._barracks = barracks
        self._bus = bus
        self._tally = tally
        found = read_json(path)
        self._record: dict[str, dict[str, Any]] = found if isinstance(found, dict) else {}
        self._unwaited: dict[str, float] = {}  # since when nobody waits for a soldier that runs
        self._missing: dict[str, float] = {}  # since when a soldier on record has been gone
        self._told: dict[str, float] = {}  # when a soldier was told to end

    @property
    def running(self) -> int:
        """How many soldiers are on record."""
        return len(self._record)

    async def look(self, section: SoldierSection, now: float, emit: Emit) -> None:
        """Look at every soldier, and bring the record up to date."""
        before = {name: dict(entry) for name, entry in self._record.items()}
        found = {soldier.id: soldier for soldier in self._barracks.soldiers()}
        removed = 0
        for soldier in found.values():
            if soldier.running:
                await self._look_at_running(soldier, section, now, emit)
        for name in [name for name in self._record if name not in found or not found[name].running]:
            if await self._is_over(name, found.get(name), section, now, emit):
                del self._record[name]
                removed += 1
        self._forget_others(found)
        if removed:
            emit(RecoverySessionsCleaned(removed_count=removed))
        if self._record != before:
            write_json(self._path, self._record, durable=False)

    async def _look_at_running(self, soldier: Soldier, section: SoldierSection, now: float, emit: Emit) -> None:
        task_id, general = self._assignment(soldier.id)
        if task_id is None or not _COURT_TASK.fullmatch(task_id):
            return  # not the court's: somebody else started it and looks after it
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
        self, name: str, soldier: Soldier | None, section: SoldierSection, now: float, emit: Emit
    ) -> bool:
        """Whether a soldier that does not run can be taken off the record."""
        task_id = self._record[name].get("task_id")
        if (soldier is not None and soldier.ended) or not isinstance(task_id, str) or not await self._is_open(task_id):
            return True
        if now - self._missing.setdefault(name, now) < section.grace_seconds:
            return False  # its general may be about to notice by itself
        emit(SystemSessionOrphaned(soldier_id=name, task_id=task_id))
        if soldier is not None:
            self._barracks.kill(soldier)
        return True

    def _end(self, soldier: Soldier, reason: str, now: float, emit: Emit) -> None:
        told = self._told.get(soldier.id)
        if told is None:
            self._told[soldier.id] = now
            self._barracks.stop(soldier)
            emit(SoldierKilled(soldier_id=soldier.id, reason=reason))
            emit(RecoverySessionKilled(soldier_id=soldier.id, reason=reason))
        elif now - told >= _KILL_AFTER:
            self._barracks.kill(soldier)

    def _assignment(self, soldier_id: str) -> tuple[str | None, str | None]:
        """The task a soldier is on and its general, by the journal or by our own record."""
        if (known := self._tally.soldiers.get(soldier_id)) is not None:
            return known[0], known[1]
        entry = self._record.get(soldier_id, {})
        return entry.get("task_id"), entry.get("general")

    async def _is_open(self, task_id: str) -> bool:
        record = await self._bus.find(task_id)
        return record is not None and record.status in ("PENDING", "PROCESSING")

    def _forget_others(self, found: dict[str, Soldier]) -> None:
        for times in (self._unwaited, self._told):
            for name in times.keys() - {soldier.id for soldier in found.values() if soldier.running}:
                del times[name]
        for name in self._missing.keys() - self._record.keys():
            del self._missing[name]
