"""Counts of journal lines: per day, hour and general, and the data of the anomaly rules.

Everything here derives from journal lines, and is stored in one file with the position up to which they were read
(:mod:`kingdom.court.chamberlain.memory`). So each line counts once, even if the process is killed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kingdom.base.times import minute_start
from kingdom.court.days import ONE_DAY, day_of
from kingdom.journal import CATALOG, Problem, Reader

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from kingdom.court.chamberlain.memory import ChamberlainMemory
    from kingdom.court.home import Home


HOURS_KEPT: Final = 48
DAYS_KEPT: Final = 62
UNKNOWN: Final = "unknown"  # counts all types that are not in the catalog, so that they do not grow the file
_MAX_OPEN_KEPT: Final = 10_000  # events and soldiers whose end was not seen
_MAX_TIMEOUTS_KEPT: Final = 1_000
_MAX_BUCKETS_CACHED: Final = 2_000
_HOUR_SECONDS: Final = 3600.0
_INFINITE: Final = float("inf")

Counts = dict[str, int]


@dataclass(slots=True)
class GeneralDayCounts:
    """The counts of one general on one day."""

    created: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    needs_human: int = 0
    timeouts: int = 0
    duration_seconds: float = 0.0  # of all completed tasks together

    @property
    def average_seconds(self) -> float | None:
        """The average duration of a completed task; None when there is none."""
        return self.duration_seconds / self.completed if self.completed else None


@dataclass(slots=True)
class DayCounts:
    """The counts of one day in the court's time zone."""

    types: Counts = field(default_factory=dict)
    generals: dict[str, GeneralDayCounts] = field(default_factory=dict)

    def count(self, kind: str) -> int:
        """Return the number of lines of a type."""
        return self.types.get(kind, 0)

    def general(self, name: str) -> GeneralDayCounts:
        found = self.generals.get(name)
        if found is None:
            found = self.generals[_check_text(name)] = GeneralDayCounts()
        return found


class CountBucket(NamedTuple):
    """The day and hour in which the lines of one minute are counted."""

    day: DayCounts
    hour: Counts
    began: float

    def moment(self, second: str) -> float:
        """Return the epoch seconds of a second in this minute."""
        try:
            return self.began + int(second)
        except ValueError:
            return self.began


class JournalTally:
    """Counts journal lines."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._buckets: dict[str, CountBucket] = {}  # by minute
        self.days: dict[str, DayCounts] = {}
        self.hours: dict[str, Counts] = {}  # by UTC hour (2026-02-07T10), which no clock change repeats
        self.streaks: dict[str, int] = {}  # failures in a row, by general
        self.timeouts: list[float] = []  # times of recent timeouts
        self.waiting: dict[str, float] = {}  # events that are not dispatched, with their time
        self.soldiers: dict[str, list[str]] = {}  # started and not ended: [task, general]
        self.skipped = 0  # lines without a type or a time

    def feed(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Count lines of the journal."""
        current = None
        for record in records:
            try:
                ts, kind = record["ts"], record["type"]
                minute = ts[:16] + ts[19:]
                if minute != current:  # lines of one minute stand together
                    current, bucket = minute, self.bucket(ts)
                    by_day, by_hour = bucket.day.types, bucket.hour
                known = kind if kind in _HANDLERS else _check_unknown(kind)
            except (KeyError, TypeError, ValueError):
                self.skipped += 1
                continue
            by_day[known] = by_day.get(known, 0) + 1
            by_hour[known] = by_hour.get(known, 0) + 1
            handler = _HANDLERS[known]
            if handler is not None:
                try:
                    handler(self, record["actor"], record["data"], bucket, ts)
                except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                    continue  # a field of its type is missing: the line is only counted

    def day(self, name: str) -> DayCounts:
        """Return the counts of a date (2026-02-07); empty counts when there are none."""
        return self.days.get(name) or DayCounts()

    def timeouts_since(self, moment: float) -> int:
        """Return the number of timeouts since then."""
        return sum(at > moment for at in self.timeouts)

    def prune(self, now: float) -> None:
        """Drop what is too old."""
        self._buckets.clear()
        first_day = (day_of(now, self._zone) - DAYS_KEPT * ONE_DAY).isoformat()
        self.days = {name: day for name, day in self.days.items() if name >= first_day}
        first_hour = _hour_name(now - HOURS_KEPT * _HOUR_SECONDS)
        self.hours = {name: counts for name, counts in self.hours.items() if name >= first_hour}
        self.timeouts = [at for at in self.timeouts if at > now - _HOUR_SECONDS][-_MAX_TIMEOUTS_KEPT:]
        _keep_newest(self.waiting)
        _keep_newest(self.soldiers)

    def bucket(self, ts: str) -> CountBucket:
        """Return the bucket of a timestamp. Raises :class:`ValueError` when it is not a valid time."""
        minute, rest = ts[:16], ts[19:]
        found = self._buckets.get(minute + rest)
        if found is not None:
            return found
        seconds = minute_start(ts)
        try:
            day, hour = day_of(seconds, self._zone).isoformat(), _hour_name(seconds)
        except (OverflowError, OSError):
            raise ValueError(f"{ts!r:.40} is not a time") from None
        if len(self._buckets) >= _MAX_BUCKETS_CACHED:
            self._buckets.clear()
        found = CountBucket(self.days.setdefault(day, DayCounts()), self.hours.setdefault(hour, {}), seconds)
        self._buckets[minute + rest] = found
        return found

    # ── single types ──────────────────────────────────────────────────────────────────────────────────────────────

    def _detected(self, actor: str, data: Mapping[str, Any], bucket: CountBucket, ts: str) -> None:
        self.waiting[_check_text(data["event_id"])] = bucket.moment(ts[17:19])

    def _left(self, actor: str, data: Mapping[str, Any], bucket: CountBucket, ts: str) -> None:
        self.waiting.pop(data["event_id"], None)

    def _created(self, actor: str, data: Mapping[str, Any], bucket: CountBucket, ts: str) -> None:
        bucket.day.general(data["target_general"]).created += 1

    def _completed(self, actor: str, data: Mapping[str, Any], bucket: CountBucket, ts: str) -> None:
        day, seconds = bucket.day.general(_check_text(actor)), data.get("duration_seconds", 0)
        day.completed += 1
        self.streaks.pop(actor, None)
        if 0 <= seconds < _INFINITE:
            day.duration_seconds += seconds

    def _failed(self, actor: str, data: Mapping[str, Any], bucket: CountBucket, ts: str) -> None:
        bucket.day.general(actor).failed += 1
        self.streaks[actor] = self.streaks.get(actor, 0) + 1

    def _cancelled(self, actor: str, data: Mapping[str, Any], bucket: CountBucket, ts: str) -> None:
        bucket.day.general(actor).cancelled += 1  # and the streak stays: it says nothing about the general

    def _needs_human(self, actor: str, data: Mapping[str, Any], bucket: CountBucket, ts: str) -> None:
        bucket.day.general(actor).needs_human += 1
        self.streaks.pop(actor, None)

    def _spawned(self, actor: str, data: Mapping[str, Any], bucket: CountBucket, ts: str) -> None:
        self.soldiers[_check_text(data["soldier_id"])] = [_check_text(data["task_id"]), _check_text(actor)]

    def _soldier_ended(self, actor: str, data: Mapping[str, Any], bucket: CountBucket, ts: str) -> None:
        self.soldiers.pop(data["soldier_id"], None)

    def _timeout(self, actor: str, data: Mapping[str, Any], bucket: CountBucket, ts: str) -> None:
        bucket.day.general(actor).timeouts += 1
        self.timeouts.append(bucket.moment(ts[17:19]))
        self.soldiers.pop(data["soldier_id"], None)

    # ── serialization ─────────────────────────────────────────────────────────────────────────────────────────────

    def to_dict(self) -> dict[str, Any]:
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
        tally = cls(zone)
        tally.days = {
            name: DayCounts(
                dict(day["types"]), {who: GeneralDayCounts(**fields) for who, fields in day["generals"].items()}
            )
            for name, day in document["days"].items()
        }
        tally.hours = {name: dict(counts) for name, counts in document["hours"].items()}
        tally.streaks, tally.waiting = dict(document["streaks"]), dict(document["waiting"])
        tally.soldiers = {name: list(item) for name, item in document["soldiers"].items()}
        tally.timeouts, tally.skipped = list(document["timeouts"]), int(document["skipped"])
        return tally


_Handler = Callable[[JournalTally, str, Mapping[str, Any], CountBucket, str], None]
_HANDLERS: Final[dict[str, _Handler | None]] = {  # every known type, and what is done besides counting
    **dict.fromkeys((*CATALOG, UNKNOWN)),
    "event.detected": JournalTally._detected,
    "event.dispatched": JournalTally._left,
    "event.discarded": JournalTally._left,
    "task.created": JournalTally._created,
    "task.completed": JournalTally._completed,
    "task.failed": JournalTally._failed,
    "task.cancelled": JournalTally._cancelled,
    "task.needs_human": JournalTally._needs_human,
    "soldier.spawned": JournalTally._spawned,
    "soldier.completed": JournalTally._soldier_ended,
    "soldier.ended": JournalTally._soldier_ended,
    "soldier.timeout": JournalTally._timeout,
}


def _check_unknown(kind: Any) -> str:
    """Return the name under which unknown types are counted. Raises :class:`TypeError` when it is not a string."""
    _check_text(kind)
    return UNKNOWN


def _keep_newest(items: dict[str, Any]) -> None:
    for name in list(items)[: max(len(items) - _MAX_OPEN_KEPT, 0)]:
        del items[name]


def _fields(general: GeneralDayCounts) -> dict[str, Any]:
    return {name: getattr(general, name) for name in GeneralDayCounts.__slots__}


def _check_text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("a name must be a string")
    return value


def _hour_name(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H")


_STEP_SECONDS: Final = 1.0  # of reading in one tick
_MAX_PROBLEMS_LOGGED: Final = 5  # in one tick: a broken file has very many
log = logging.getLogger("kingdom.court.chamberlain")


class JournalCounter:
    """Reads the journal into the tally. Its position is stored in the memory, with the counts."""

    def __init__(self, home: Home, memory: ChamberlainMemory) -> None:
        self._home = home
        self._memory = memory
        self._problems = 0
        self._reader: Reader | None = None

    def read(self) -> bool:
        """Count new lines; return whether the end was reached. Raises :class:`kingdom.journal.JournalError`."""
        if self._reader is None:
            self._reader = Reader(self._home.journal, cursor=self._memory.cursor, report=self._report)
        until = time.monotonic() + _STEP_SECONDS
        self._problems = 0
        try:
            for records in self._reader.read_records():
                self._memory.tally.feed(records)
                if time.monotonic() > until:
                    return False
        except BaseException:
            self.close()
            raise
        finally:
            self._remember()
            if self._problems > _MAX_PROBLEMS_LOGGED:
                log.warning("journal: %d more lines could not be read", self._problems - _MAX_PROBLEMS_LOGGED)
        return True

    @property
    def reading(self) -> bool:
        """Whether the last read ended without an error."""
        return self._reader is not None

    def close(self) -> None:
        """Close the files."""
        self._remember()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _remember(self) -> None:
        """Store the position after the counted lines, also after an error."""
        if self._reader is not None:
            self._memory.cursor = self._reader.cursor

    def _report(self, problem: Problem) -> None:
        self._problems += 1
        self._memory.tally.skipped += 1
        if self._problems <= _MAX_PROBLEMS_LOGGED:
            log.warning("journal: %s", problem)
