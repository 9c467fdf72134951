"""Schedules: each slot becomes one task, also across restarts and clock changes.

``state/king/schedule-sent.json`` holds for each schedule the time up to which its slots are handled (``until``), the
last slot that became a task (``sent``), and a slot that is due but may not start yet (``due``). It is read at start:
a slot that was waiting before a restart is still due after it, and no slot is sent twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from kingdom.base.files import read_json, write_json
from kingdom.base.text import storable
from kingdom.base.times import epoch_seconds, utc_datetime
from kingdom.court.cron import parse_cron
from kingdom.court.king.admission import NotAdmitted
from kingdom.court.king.cases import Case
from kingdom.court.models import Task, timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kingdom.court.cron import Cron
    from kingdom.court.home import Home
    from kingdom.court.king.state import KingState
    from kingdom.court.packages.installed import Generals
    from kingdom.court.packages.manifest import Schedule

SCHEDULE_FILE: Final = "schedule-sent.json"
MISSED_SECONDS: Final = 120.0  # a slot found later than this was missed: the court was down
_MAX_CLOCK_SKEW_SECONDS: Final = 25 * 3600.0  # with ``until`` further in the future, the clock was wrong before


@dataclass(slots=True)
class _ScheduleState:
    """A schedule of a general, and which of its slots are handled."""

    general: str
    schedule: Schedule
    cron: Cron
    zone: ZoneInfo
    until: float  # slots up to this time are handled
    due: float | None = None
    sent: str | None = None
    following: float | None = None  # the next slot, once it is computed

    @property
    def key(self) -> str:
        return f"{self.general}/{self.schedule.name}"

    @property
    def times(self) -> str:
        return f"{self.schedule.cron} {self.zone.key}"

    def slot_id(self, slot: float) -> str:
        wall = utc_datetime(slot).astimezone(self.zone).strftime("%Y%m%dT%H%M")
        return f"schedule-{self.general}-{self.schedule.name}-{wall}"

    def to_dict(self) -> dict[str, Any]:
        """Return the form in the state file."""
        due = None if self.due is None else timestamp(self.due)
        return {"times": self.times, "until": timestamp(self.until), "due": due, "sent": self.sent}


class Schedules:
    """The schedules of all generals."""

    def __init__(self, home: Home, default_zone: str) -> None:
        self._path: Path = home.role("king") / SCHEDULE_FILE
        self._default_zone = default_zone
        self._planned: dict[str, _ScheduleState] = {}
        self._stored: dict[str, Any] = {}  # as in the file

    def load(self) -> None:
        document = read_json(self._path)
        self._stored = {key: value for key, value in _items(document) if isinstance(value, dict)}
        self._planned.clear()

    def store(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Update some schedules in the state file. Schedules that no longer exist are removed from it."""
        known = self._planned or self._stored
        kept = {key: document for key, document in self._stored.items() if key in known}
        self._stored = {**kept, **states}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, self._stored)

    def use(self, state: KingState, generals: Generals, now: float) -> None:
        """Take over the schedules of all manifests. A new schedule, or one with new times, starts from now."""
        before, self._planned = self._planned, {}
        for name, general in generals.by_name.items():
            for schedule in general.manifest.schedules:
                planned = _ScheduleState(
                    general=name,
                    schedule=schedule,
                    cron=parse_cron(schedule.cron),
                    zone=ZoneInfo(schedule.timezone or self._default_zone),
                    until=now,
                )
                known = before.get(planned.key)
                stored = known.to_dict() if known else self._stored.get(planned.key)
                if stored is None or stored.get("times") != planned.times:
                    state.plan.slots[planned.key] = planned.to_dict()
                else:
                    planned.until = _seconds(stored.get("until"), now)
                    planned.due = epoch_seconds(stored.get("due"))
                    planned.sent = stored.get("sent")
                self._planned[planned.key] = planned

    def start_due(self, state: KingState, now: float) -> float | None:
        """Start the due tasks that are admitted; return the seconds until the next slot, if there is one."""
        nearest: float | None = None
        for planned in self._planned.values():
            self._find_due(state, planned, now)
            if planned.due is not None:
                self._start(state, planned, planned.due)
            if planned.following is not None:
                wait = max(planned.following - now, 0.0)
                nearest = wait if nearest is None else min(nearest, wait)
        return nearest

    def _find_due(self, state: KingState, planned: _ScheduleState, now: float) -> None:
        if planned.until - now > _MAX_CLOCK_SKEW_SECONDS:
            planned.until, planned.following = now, None
        start = utc_datetime(planned.until)
        if planned.following is None:
            planned.following = planned.cron.next_after(start, planned.zone).timestamp()
        if planned.following > now:
            return
        last = planned.cron.last_between(start, utc_datetime(now), planned.zone)
        assert last is not None, "planned.following is such a slot"
        slot = last.timestamp()
        planned.until, planned.following = slot, planned.cron.next_after(last, planned.zone).timestamp()
        if now - slot <= MISSED_SECONDS or planned.schedule.missed == "run_once":
            planned.due = slot
        state.plan.slots[planned.key] = planned.to_dict()

    def _start(self, state: KingState, planned: _ScheduleState, slot: float) -> None:
        schedule, root = planned.schedule, planned.slot_id(slot)
        try:
            task_id = state.admission.admit(planned.general, schedule.priority)
        except NotAdmitted as held:
            state.admission.holds.add(str(held), [root])
            return
        planned.due, planned.sent = None, root
        state.plan.slots[planned.key] = planned.to_dict()
        case = Case(
            root=root,
            task=task_id,
            general=planned.general,
            type=schedule.task_type,
            priority=schedule.priority,
            title=schedule.name,
            thread=task_id,
            scheduled=True,
        )
        task = Task(
            id=task_id,
            event_id=root,
            target_general=planned.general,
            type=schedule.task_type,
            payload={
                **storable(schedule.payload),
                "schedule": schedule.name,
                "slot": utc_datetime(slot).astimezone(planned.zone).isoformat(timespec="minutes"),
            },
            priority=schedule.priority,
            created_at=utc_datetime(state.clock()),
        )
        state.open_case(case, task)


def _items(document: Any) -> list[tuple[str, Any]]:
    return list(document.items()) if isinstance(document, dict) else []


def _seconds(value: object, otherwise: float) -> float:
    seconds = epoch_seconds(value)
    return otherwise if seconds is None else seconds
