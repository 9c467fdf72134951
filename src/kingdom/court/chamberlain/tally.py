"""Counting the lines of the journal: per day, per hour, per general, and what the anomaly rules look at.

Everything here is made of journal lines only, and is kept in one file with the place up to which they were read
(:mod:`kingdom.court.chamberlain.memory`). So each line counts once, whenever the process is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

from kingdom.court.days import ONE_DAY, day_of
from kingdom.journal import CATALOG

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

HOURS_KEPT: Final = 48
DAYS_KEPT: Final = 62
UNKNOWN: Final = "unknown"  # all types that are not in the catalog: their number must not grow what we keep
_OPEN_KEPT: Final = 10_000  # things whose end was not seen
_TIMEOUTS_KEPT: Final = 1_000
_MINUTES_CACHED: Final = 2_000
_HOUR: Final = 3600.0

Counts = dict[str, int]


@dataclass(slots=True)
class GeneralDay:
    """What one general did in one day."""

    created: int = 0
    completed: int = 0
    failed: int = 0
    needs_human: int = 0
    timeouts: int = 0
    duration_seconds: float = 0.0  # of the completed ones, together

    @property
    def average_seconds(self) -> float | None:
        """How long a completed task took; None when there is none."""
        return self.duration_seconds / self.completed if self.completed else None


@dataclass(slots=True)
class Day:
    """One day of the court's time zone."""

    types: Counts = field(default_factory=dict)
    generals: dict[str, GeneralDay] = field(default_factory=dict)

    def count(self, kind: str) -> int:
        """How many lines of a type."""
        return self.types.get(kind, 0)

    def general(self, name: str) -> GeneralDay:
        """What a general did."""
        found = self.generals.get(name)
        if found is None:
            found = self.generals[name] = GeneralDay()
        return found


class Tally:
    """The counts, and how they grow."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._minutes: dict[str, tuple[Day, Counts, float]] = {}  # where lines of a minute go, and when it began
        self.days: dict[str, Day] = {}
        self.hours: dict[str, Counts] = {}  # by UTC hour, as 2026-02-07T10: no clock change makes it double
        self.streaks: dict[str, int] = {}  # failures in a row, by general
        self.timeouts: list[float] = []  # when soldiers took too long, lately
        self.waiting: dict[str, float] = {}  # events that are not dispatched, and since when
        self.soldiers: dict[str, list[str]] = {}  # who was started and has not ended by itself: [task, general]
        self.skipped = 0  # lines without a type or a time

    def feed(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Count some lines."""
        minutes, handlers = self._minutes, _HANDLERS
        for record in records:
            kind, ts = record.get("type"), record.get("ts")
            if type(kind) is not str or type(ts) is not str:
                self.skipped += 1
                continue
            place = minutes.get(ts[:16]) if ts[-1:] == "Z" else None
            if place is None:
                place = self._place(ts)
                if place is None:
                    self.skipped += 1
                    continue
            day, hour, at = place
            if kind not in CATALOG:
                kind = UNKNOWN
            day.types[kind] = day.types.get(kind, 0) + 1
            hour[kind] = hour.get(kind, 0) + 1
            handler = handlers.get(kind)
            if handler is not None:
                actor, data = record.get("actor"), record.get("data")
                if isinstance(actor, str) and isinstance(data, dict):
                    handler(self, day, actor, data, at + _second_of(ts))

    def day(self, name: str) -> Day:
        """A day by its date, as 2026-02-07; an empty one when nothing was counted."""
        return self.days.get(name) or Day()

    def timeouts_since(self, moment: float) -> int:
        """How many soldiers took too long since then."""
        return sum(at > moment for at in self.timeouts)

    def prune(self, now: float) -> None:
        """Forget what is too old to be asked for."""
        self._minutes.clear()
        first_day = (day_of(now, self._zone) - DAYS_KEPT * ONE_DAY).isoformat()
        self.days = {name: day for name, day in self.days.items() if name >= first_day}
        first_hour = _hour_name(now - HOURS_KEPT * _HOUR)
        self.hours = {name: counts for name, counts in self.hours.items() if name >= first_hour}
        self.timeouts = [at for at in self.timeouts if at > now - _HOUR][-_TIMEOUTS_KEPT:]
        _keep_newest(self.waiting)
        _keep_newest(self.soldiers)

    def _place(self, ts: str) -> tuple[Day, Counts, float] | None:
        try:
            moment = datetime.fromisoformat(ts)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            seconds = moment.timestamp()
            name, hour_name = day_of(seconds, self._zone).isoformat(), _hour_name(seconds)
        except (ValueError, OverflowError, OSError):
            return None
        place = self.days.setdefault(name, Day()), self.hours.setdefault(hour_name, {}), seconds // 60 * 60
        if len(self._minutes) >= _MINUTES_CACHED:
            self._minutes.clear()
        if ts[-1:] == "Z":
            self._minutes[ts[:16]] = place
        return place

    # ── what single types mean ────────────────────────────────────────────────────────────────────────────────────

    def _detected(self, day: Day, actor: str, data: Mapping[str, Any], at: float) -> None:
        if isinstance(event_id := data.get("event_id"), str):
            self.waiting[event_id] = at

    def _left(self, day: Day, actor: str, data: Mapping[str, Any], at: float) -> None:
        if isinstance(event_id := data.get("event_id"), str):
            self.waiting.pop(event_id, None)

    def _created(self, day: Day, actor: str, data: Mapping[str, Any], at: float) -> None:
        if isinstance(general := data.get("target_general"), str):
            day.general(general).created += 1

    def _completed(self, day: Day, actor: str, data: Mapping[str, Any], at: float) -> None:
        general = day.general(actor)
        general.completed += 1
        duration = data.get("duration_seconds")
        if isinstance(duration, (int, float)) and not isinstance(duration, bool) and 0 <= duration < float("inf"):
            general.duration_seconds += duration
        self.streaks.pop(actor, None)

    def _failed(self, day: Day, actor: str, data: Mapping[str, Any], at: float) -> None:
        day.general(actor).failed += 1
        self.streaks[actor] = self.streaks.get(actor, 0) + 1

    def _needs_human(self, day: Day, actor: str, data: Mapping[str, Any], at: float) -> None:
        day.general(actor).needs_human += 1
        self.streaks.pop(actor, None)

    def _spawned(self, day: Day, actor: str, data: Mapping[str, Any], at: float) -> None:
        soldier, task = data.get("soldier_id"), data.get("task_id")
        if isinstance(soldier, str) and isinstance(task, str):
            self.soldiers[soldier] = [task, actor]

    def _soldier_ended(self, day: Day, actor: str, data: Mapping[str, Any], at: float) -> None:
        if isinstance(soldier := data.get("soldier_id"), str):
            self.soldiers.pop(soldier, None)

    def _timeout(self, day: Day, actor: str, data: Mapping[str, Any], at: float) -> None:
        day.general(actor).timeouts += 1
        self.timeouts.append(at)
        self._soldier_ended(day, actor, data, at)

    # ── kept and found again ──────────────────────────────────────────────────────────────────────────────────────

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "days": {
                name: {
                    "types": day.types,
                    "generals": {who: _fields(general) for who, general in day.generals.items()},
                }
                for name, day in self.days.items()
            },
            "hours": self.hours,
            "streaks": self.streaks,
            "timeouts": self.timeouts,
            "waiting": self.waiting,
            "soldiers": self.soldiers,
            "skipped": self.skipped,
        }

    @classmethod
    def from_dict(cls, zone: ZoneInfo, document: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` gave."""
        tally = cls(zone)
        tally.days = {
            name: Day(dict(day["types"]), {who: GeneralDay(**fields) for who, fields in day["generals"].items()})
            for name, day in document["days"].items()
        }
        tally.hours = {name: dict(counts) for name, counts in document["hours"].items()}
        tally.streaks, tally.waiting = dict(document["streaks"]), dict(document["waiting"])
        tally.soldiers = {name: list(item) for name, item in document["soldiers"].items()}
        tally.timeouts, tally.skipped = list(document["timeouts"]), int(document["skipped"])
        return tally


_Handler = Callable[[Tally, Day, str, Mapping[str, Any], float], None]
_HANDLERS: Final[dict[str, _Handler]] = {
    "event.detected": Tally._detected,
    "event.dispatched": Tally._left,
    "event.discarded": Tally._left,
    "task.created": Tally._created,
    "task.completed": Tally._completed,
    "task.failed": Tally._failed,
    "task.needs_human": Tally._needs_human,
    "soldier.spawned": Tally._spawned,
    "soldier.completed": Tally._soldier_ended,
    "soldier.timeout": Tally._timeout,
}


def _keep_newest(items: dict[str, Any]) -> None:
    for name in list(items)[: max(len(items) - _OPEN_KEPT, 0)]:
        del items[name]


def _fields(general: GeneralDay) -> dict[str, Any]:
    return {name: getattr(general, name) for name in GeneralDay.__slots__}


def _second_of(ts: str) -> int:
    second = ts[17:19]
    return int(second) if second.isascii() and second.isdecimal() else 0


def _hour_name(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H")
