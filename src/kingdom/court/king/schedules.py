"""Work at set times: each slot of a schedule becomes one task, also over restarts and changes of the clock.

``state/king/schedule-sent.json`` says for each schedule up to which moment its slots are dealt with (``until``), the
last slot that became a task, and the one that is due but may not start yet (``due``). It is written before a task is
forgotten and read when the king starts, so a slot that was held over a restart is still due, and a slot that was sent
over midnight is not sent again.
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
MISSED_SECONDS: Final = 120.0  # a slot that is found later than this was missed: nobody was there
_MAX_CLOCK_SKEW_SECONDS: Final = (
    25 * 3600.0
)  # dealt with further into the future than this: the clock had been set wrongly


@dataclass(slots=True)
class _ScheduleState:
    """A schedule of a general, and where it stands."""

    general: str
    schedule: Schedule
    cron: Cron
    zone: ZoneInfo
    until: float  # slots up to here are dealt with
    due: float | None = None
    sent: str | None = None
    following: float | None = None  # the next slot, when it has been worked out

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
        """What the file says of it."""
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
        """Read where the schedules stand."""
        document = read_json(self._path)
        self._stored = {key: value for key, value in _items(document) if isinstance(value, dict)}
        self._planned.clear()

    def store(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Write down where some of them stand now. Schedules that no longer exist are forgotten."""
        known = self._planned or self._stored
        kept = {key: to_dict for key, to_dict in self._stored.items() if key in known}
        self._stored = {**kept, **states}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, self._stored)

    def use(self, state: KingState, generals: Generals, now: float) -> None:
        """Take the schedules from the manifests. One that is new, or has new times, begins now."""
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
                to_dict = known.to_dict() if known else self._stored.get(planned.key)
                if to_dict is None or to_dict.get("times") != planned.times:
                    state.plan.slots[planned.key] = planned.to_dict()
                else:
                    planned.until = _seconds(to_dict.get("until"), now)
                    planned.due = epoch_seconds(to_dict.get("due"))
                    planned.sent = to_dict.get("sent")
                self._planned[planned.key] = planned

    def look(self, state: KingState, now: float) -> float | None:
        """Start what is due and may start; return the seconds until the next slot, if there is one."""
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
        assert last is not None, "there is a slot between, the next one"
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
