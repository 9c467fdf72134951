"""Counting the lines of the journal: per day, per hour, per general, and what the anomaly rules look at.

Everything here is made of journal lines only, and is kept in one file with the place up to which they were read
(:mod:`kingdom.court.chamberlain.memory`). So each line counts once, whenever the process is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kingdom.court.days import ONE_DAY, day_of
from kingdom.journal import CATALOG

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

HOURS_KEPT: Final = 48
DAYS_KEPT: Final = 62
UNKNOWN: Final = "unknown"  # all types that are not in the catalog: their number must not grow what we keep
_OPEN_KEPT: Final = 10_000  # things whose end was not seen
_TIMEOUTS_KEPT: Final = 1_000
_PLACES_CACHED: Final = 2_000
_HOUR: Final = 3600.0
_INFINITE: Final = float("inf")

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
            found = self.generals[_text(name)] = GeneralDay()
        return found


class Place(NamedTuple):
    """Where the lines of one minute are counted."""

    day: Day
    hour: Counts
    began: float

    def add(self, counts: Counts) -> None:
        """Count lines of some types."""
        for types in (self.day.types, self.hour):
            for kind, count in counts.items():
                types[kind] = types.get(kind, 0) + count

    def moment(self, second: str) -> float:
        """A moment in this minute."""
        try:
            return self.began + int(second)
        except ValueError:
            return self.began


class Tally:
    """The counts, and how they grow."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._places: dict[str, Place] = {}  # of minutes, for as long as their days are kept
        self.days: dict[str, Day] = {}
        self.hours: dict[str, Counts] = {}  # by UTC hour, as 2026-02-07T10: no clock change makes it double
        self.streaks: dict[str, int] = {}  # failures in a row, by general
        self.timeouts: list[float] = []  # when soldiers took too long, lately
        self.waiting: dict[str, float] = {}  # events that are not dispatched, and since when
        self.soldiers: dict[str, list[str]] = {}  # who was started and has not ended by itself: [task, general]
        self.skipped = 0  # lines without a type or a time

    def feed(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Count some lines. Most of a log is counted in a faster way: :mod:`kingdom.court.chamberlain.scan`."""
        for record in records:
            try:
                ts, kind = record["ts"], record["type"]
                place = self.place(ts)
                known = kind if kind in _HANDLERS else _unknown(kind)
            except (KeyError, TypeError, ValueError):
                self.skipped += 1
                continue
            place.add({known: 1})
            handler = _HANDLERS[known]
            if handler is not None:
                try:
                    handler(self, record["actor"], record["data"], place, ts)
                except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                    continue  # a line that lacks what its type has: it was counted, and that is all it is good for

    def day(self, name: str) -> Day:
        """A day by its date, as 2026-02-07; an empty one when nothing was counted."""
        return self.days.get(name) or Day()

    def timeouts_since(self, moment: float) -> int:
        """How many soldiers took too long since then."""
        return sum(at > moment for at in self.timeouts)

    def prune(self, now: float) -> None:
        """Forget what is too old to be asked for."""
        self._places.clear()
        first_day = (day_of(now, self._zone) - DAYS_KEPT * ONE_DAY).isoformat()
        self.days = {name: day for name, day in self.days.items() if name >= first_day}
        first_hour = _hour_name(now - HOURS_KEPT * _HOUR)
        self.hours = {name: counts for name, counts in self.hours.items() if name >= first_hour}
        self.timeouts = [at for at in self.timeouts if at > now - _HOUR][-_TIMEOUTS_KEPT:]
        _keep_newest(self.waiting)
        _keep_newest(self.soldiers)

    def place(self, ts: str) -> Place:
        """Where the lines of a minute are counted, by the time of one. Raises :class:`ValueError` when it is none."""
        minute, rest = ts[:16], ts[19:]
        found = self._places.get(minute + rest)
        if found is not None:
            return found
        try:
            moment = datetime.fromisoformat(f"{minute}:00{rest}")
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
            day, hour = day_of(seconds, self._zone).isoformat(), _hour_name(seconds)
        except (OverflowError, OSError):
            raise ValueError(f"{ts!r:.40} is no time") from None
        if len(self._places) >= _PLACES_CACHED:
            self._places.clear()
        found = Place(self.days.setdefault(day, Day()), self.hours.setdefault(hour, {}), seconds)
        self._places[minute + rest] = found
        return found

    # ── what single types mean ────────────────────────────────────────────────────────────────────────────────────

    def event_waits(self, event_id: str, since: float) -> None:
        """An event came, and is not dispatched."""
        self.waiting[event_id] = since

    def event_left(self, event_id: str) -> None:
        """An event was dispatched or discarded."""
        self.waiting.pop(event_id, None)

    def task_completed(self, place: Place, general: str, seconds: float) -> None:
        """A task ended well."""
        day = place.day.general(general)
        day.completed += 1
        self.streaks.pop(general, None)
        if 0 <= seconds < _INFINITE:
            day.duration_seconds += seconds

    def soldier_began(self, soldier_id: str, task_id: str, general: str) -> None:
        """A soldier was started."""
        self.soldiers[soldier_id] = [task_id, general]

    def soldier_ended(self, soldier_id: str) -> None:
        """A soldier ended by itself, or took too long."""
        self.soldiers.pop(soldier_id, None)

    def _detected(self, actor: str, data: Mapping[str, Any], place: Place, ts: str) -> None:
        self.event_waits(_text(data["event_id"]), place.moment(ts[17:19]))

    def _left(self, actor: str, data: Mapping[str, Any], place: Place, ts: str) -> None:
        self.event_left(data["event_id"])

    def _created(self, actor: str, data: Mapping[str, Any], place: Place, ts: str) -> None:
        place.day.general(data["target_general"]).created += 1

    def _completed(self, actor: str, data: Mapping[str, Any], place: Place, ts: str) -> None:
        self.task_completed(place, _text(actor), data.get("duration_seconds", 0))

    def _failed(self, actor: str, data: Mapping[str, Any], place: Place, ts: str) -> None:
        place.day.general(actor).failed += 1
        self.streaks[actor] = self.streaks.get(actor, 0) + 1

    def _needs_human(self, actor: str, data: Mapping[str, Any], place: Place, ts: str) -> None:
        place.day.general(actor).needs_human += 1
        self.streaks.pop(actor, None)

    def _spawned(self, actor: str, data: Mapping[str, Any], place: Place, ts: str) -> None:
        self.soldier_began(_text(data["soldier_id"]), _text(data["task_id"]), _text(actor))

    def _soldier_ended(self, actor: str, data: Mapping[str, Any], place: Place, ts: str) -> None:
        self.soldier_ended(data["soldier_id"])

    def _timeout(self, actor: str, data: Mapping[str, Any], place: Place, ts: str) -> None:
        place.day.general(actor).timeouts += 1
        self.timeouts.append(place.moment(ts[17:19]))
        self.soldier_ended(data["soldier_id"])

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


_Handler = Callable[[Tally, str, Mapping[str, Any], Place, str], None]
_HANDLERS: Final[dict[str, _Handler | None]] = {  # every type there is, and what is done besides counting
    **dict.fromkeys((*CATALOG, UNKNOWN)),
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


def _unknown(kind: Any) -> str:
    """Where a type is counted that is not in the catalog. Raises :class:`TypeError` when it is none at all."""
    _text(kind)
    return UNKNOWN


def _keep_newest(items: dict[str, Any]) -> None:
    for name in list(items)[: max(len(items) - _OPEN_KEPT, 0)]:
        del items[name]


def _fields(general: GeneralDay) -> dict[str, Any]:
    return {name: getattr(general, name) for name in GeneralDay.__slots__}


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("a name is a text")
    return value


def _hour_name(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H")
