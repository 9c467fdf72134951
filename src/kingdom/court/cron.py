"""When a schedule is due: the five fields of cron, in a time zone of its own.

A schedule means times on a wall clock. Where that clock skips a time (a night in spring) the run happens once, at the
first minute that exists again; where it shows a time twice (a night in autumn) the run happens the first time only.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHORTCUTS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LONGEST_GAP_DAYS: Final = 8 * 366 + 2  # 29 February, over a century that is no leap year
_MINUTE: Final = timedelta(minutes=1)


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # what the numbers from ``low`` on are called


_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed cron expression. Days and weekdays are joined as cron does: either, when both are restricted."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # Sunday is 0
    either_day: bool  # neither of the two day fields begins with *

    def next_after(self, moment: datetime, tz: tzinfo) -> datetime:
        """The first slot after ``moment``, in the time zone ``tz``."""
        for slot in self._slots(moment, tz):
            return slot
        raise ValueError(f"cron {self.text!r} is never due")  # pragma: no cover - parse_cron refuses those

    def slots_between(self, start: datetime, end: datetime, tz: tzinfo) -> list[datetime]:
        """Every slot after ``start`` up to and including ``end``, in order."""
        found = []
        for slot in self._slots(start, tz):
            if slot > end:
                break
            found.append(slot)
        return found

    def last_between(self, start: datetime, end: datetime, tz: tzinfo) -> datetime | None:
        """The latest slot after ``start`` up to and including ``end``; quick for a span of years, too."""
        for back in range((end.astimezone(tz).date() - start.astimezone(tz).date()).days + 1):
            day = end.astimezone(tz).date() - timedelta(days=back)
            due = [slot for wall in self._walls_of(day) if start < (slot := _instant(wall, tz)) <= end]
            if due:
                return due[-1]
        return None

    def _slots(self, after: datetime, tz: tzinfo) -> Iterator[datetime]:
        local = after.astimezone(tz)
        last = after
        for offset in range(_LONGEST_GAP_DAYS):
            for wall in self._walls_of(local.date() + timedelta(days=offset)):
                if wall < local.replace(tzinfo=None, second=0, microsecond=0):
                    continue
                slot = _instant(wall, tz)
                if slot > last:  # a skipped hour falls together into one slot
                    last = slot
                    yield slot

    def _walls_of(self, day: date) -> Iterator[datetime]:
        if day.month in self.months and self._has_day(day):
            for hour in self.hours:
                for minute in self.minutes:
                    yield datetime.combine(day, time(hour, minute))

    def _has_day(self, day: date) -> bool:
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.either_day else by_date and by_weekday


def parse_cron(text: str) -> Cron:
    """Read a cron expression (``30 9 * * MON-FRI``, ``@daily``) or raise ``ValueError`` that says what is wrong."""
    shortcut = text.strip().lower()
    if shortcut.startswith("@") and shortcut not in _SHORTCUTS:
        raise ValueError(f"cron {text!r}: {shortcut} is not known; use one of {', '.join(_SHORTCUTS)}, or five fields")
    parts = _SHORTCUTS.get(shortcut, text).split()
    if len(parts) != len(_FIELDS):
        names = ", ".join(field.name for field in _FIELDS)
        raise ValueError(f"cron {text!r}: five fields are needed ({names}), not {len(parts)}")
    try:
        minutes, hours, days, months, weekdays = (
            _values(part, field) for part, field in zip(parts, _FIELDS, strict=True)
        )
    except ValueError as error:
        raise ValueError(f"cron {text!r}: {error}") from None
    either = not parts[2].startswith("*") and not parts[4].startswith("*")
    if not either and not any(day <= calendar.monthrange(2024, month)[1] for day in days for month in months):
        raise ValueError(f"cron {text!r}: no month given has that day, it would never be due")
    return Cron(
        text=text,
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(day % 7 for day in weekdays),
        either_day=either,
    )


def _values(text: str, field: _Field) -> set[int]:
    values: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        low, high = _span(span, field, open_end=bool(slash))
        stride = _step(step, part, field) if slash else 1
        values.update(range(low, high + 1, stride))
    return values


def _span(text: str, field: _Field, *, open_end: bool) -> tuple[int, int]:
    if text == "*":
        return field.low, min(field.high, 6) if field.names is _DAYS else field.high
    first, dash, last = text.partition("-")
    low = _number(first, field)
    if not dash:
        return low, field.high if open_end else low
    high = _number(last, field)
    if field.names is _DAYS and high == 0 < low:
        high = 7  # FRI-SUN
    if high < low:
        raise ValueError(f"{field.name}: the range {text} runs backwards")
    return low, high


def _number(text: str, field: _Field) -> int:
    name = text.upper()
    if name in field.names:
        return field.low + field.names.index(name)
    if text.isascii() and text.isdigit() and field.low <= int(text[:9]) <= field.high:
        return int(text)
    names = f" or {field.names[0]}-{field.names[-1]}" if field.names else ""
    raise ValueError(
        f"{field.name}: {text[:40]!r} is not one of {field.low}-{field.high}{names}, *, a list, range or step"
    )


def _step(text: str, part: str, field: _Field) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= field.high:
        return int(text)
    raise ValueError(f"{field.name}: the step in {part[:40]!r} must be a number from 1 to {field.high}")


def _instant(wall: datetime, tz: tzinfo) -> datetime:
    """The moment at which a wall clock in ``tz`` first shows ``wall``, or the next minute that it does show."""
    while True:
        moment = wall.replace(tzinfo=tz).astimezone(UTC)
        if moment.astimezone(tz).replace(tzinfo=None) == wall:
            return moment
        wall += _MINUTE
