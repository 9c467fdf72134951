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

from kingdom.court.files import read_json, write_json
from kingdom.court.king.admission import Held
from kingdom.court.king.cases import Case
from kingdom.court.king.cleaning import storable
from kingdom.court.king.cron import parse_cron
from kingdom.court.king.times import moment_of, seconds_of
from kingdom.court.models import Task, timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.court.king.cron import Cron
    from kingdom.court.king.desk import Desk
    from kingdom.court.packages.loading import Generals
    from kingdom.court.packages.manifest import Schedule

NAME: Final = "schedule-sent.json"
MISSED_SECONDS: Final = 120.0  # a slot that is found later than this was missed: nobody was there
_CLOCK_WAS_WRONG: Final = 25 * 3600.0  # dealt with further into the future than this: the clock had been set wrongly


@dataclass(slots=True)
class _Planned:
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
        wall = moment_of(slot).astimezone(self.zone).strftime("%Y%m%dT%H%M")
        return f"schedule-{self.general}-{self.schedule.name}-{wall}"

    def stand(self) -> dict[str, Any]:
        """What the file says of it."""
        due = None if self.due is None else timestamp(self.due)
        return {"times": self.times, "until": timestamp(self.until), "due": due, "sent": self.sent}


class Schedules:
    """The schedules of all generals."""

    def __init__(self, home: Home, default_zone: str) -> None:
        self._path: Path = home.role("king") / NAME
        self._default_zone = default_zone
        self._planned: dict[str, _Planned] = {}
        self._stands: dict[str, Any] = {}  # as in the file

    def load(self) -> None:
        """Read where the schedules stand."""
        document = read_json(self._path)
        self._stands = {key: value for key, value in _items(document) if isinstance(value, dict)}
        self._planned.clear()

    def store(self, stands: Mapping[str, Mapping[str, Any]]) -> None:
        """Write down where some of them stand now. Schedules that no longer exist are forgotten."""
        known = self._planned or self._stands
        kept = {key: stand for key, stand in self._stands.items() if key in known}
        self._stands = {**kept, **stands}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, self._stands)

    def use(self, desk: Desk, generals: Generals, now: float) -> None:
        """Take the schedules from the manifests. One that is new, or has new times, begins now."""
        before, self._planned = self._planned, {}
        for name, general in generals.by_name.items():
            for schedule in general.manifest.schedules:
                planned = _Planned(
                    general=name,
                    schedule=schedule,
                    cron=parse_cron(schedule.cron),
                    zone=ZoneInfo(schedule.timezone or self._default_zone),
                    until=now,
                )
                known = before.get(planned.key)
                stand = known.stand() if known else self._stands.get(planned.key)
                if stand is None or stand.get("times") != planned.times:
                    desk.plan.slots[planned.key] = planned.stand()
                else:
                    planned.until = _seconds(stand.get("until"), now)
                    planned.due = seconds_of(stand.get("due"))
                    planned.sent = stand.get("sent")
                self._planned[planned.key] = planned

    def look(self, desk: Desk, now: float) -> float | None:
        """Start what is due and may start; return the seconds until the next slot, if there is one."""
        nearest: float | None = None
        for planned in self._planned.values():
            self._find_due(desk, planned, now)
            if planned.due is not None:
                self._start(desk, planned, planned.due)
            if planned.following is not None:
                wait = max(planned.following - now, 0.0)
                nearest = wait if nearest is None else min(nearest, wait)
        return nearest

    def _find_due(self, desk: Desk, planned: _Planned, now: float) -> None:
        if planned.until - now > _CLOCK_WAS_WRONG:
            planned.until, planned.following = now, None
        start = moment_of(planned.until)
        if planned.following is None:
            planned.following = planned.cron.next_after(start, planned.zone).timestamp()
        if planned.following > now:
            return
        last = planned.cron.last_between(start, moment_of(now), planned.zone)
        assert last is not None, "there is a slot between, the next one"
        slot = last.timestamp()
        planned.until, planned.following = slot, planned.cron.next_after(last, planned.zone).timestamp()
        if now - slot <= MISSED_SECONDS or planned.schedule.missed == "run_once":
            planned.due = slot
        desk.plan.slots[planned.key] = planned.stand()

    def _start(self, desk: Desk, planned: _Planned, slot: float) -> None:
        schedule, root = planned.schedule, planned.slot_id(slot)
        try:
            task_id = desk.admission.admit(planned.general, schedule.priority)
        except Held as held:
            desk.admission.holds.add(str(held), [root])
            return
        planned.due, planned.sent = None, root
        desk.plan.slots[planned.key] = planned.stand()
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
                "slot": moment_of(slot).astimezone(planned.zone).isoformat(timespec="minutes"),
            },
            priority=schedule.priority,
            created_at=moment_of(desk.clock()),
        )
        desk.open_case(case, task)


def _items(document: Any) -> list[tuple[str, Any]]:
    return list(document.items()) if isinstance(document, dict) else []


def _seconds(value: object, otherwise: float) -> float:
    seconds = seconds_of(value)
    return otherwise if seconds is None else seconds
