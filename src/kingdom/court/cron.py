"""The times of a schedule: a cron expression of five fields, in a time zone.

``cronsim`` parses expressions and computes wall-clock times. A time that the clock skips (a night in spring) is run
once, at the next minute that exists; a time that the clock shows twice (a night in autumn) is run the first time only.
``cronsim`` handles neither for expressions that begin with ``*``, so it gets times without a zone, and
:func:`_instant` maps them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from cronsim import CronSim, CronSimError

_SHORTCUTS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS: Final = (  # the name, the allowed values, the largest step
    ("minute", "0-59", 59),
    ("hour", "0-23", 23),
    ("day of month", "1-31", 31),
    ("month", "1-12 or JAN-DEC", 12),
    ("day of week", "0-7 or SUN-SAT", 7),
)
_DAY, _WEEKDAY = 2, 4
_STEPS: Final = re.compile(r"/(\d+)")
# What cronsim reads in another way than cron: it refuses FRI-SUN, though not FRI-7, and takes 5-5/2 for 5/2.
_RANGE_TO_SUNDAY: Final = re.compile(r"\b([1-7]|MON|TUE|WED|THU|FRI|SAT)-(?:SUN|0)\b")
_SINGLE_VALUE_RANGE: Final = re.compile(r"\b(\w+)-\1/\d+")
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall-clock time
_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Cron:
    """A valid cron expression. When both day fields are restricted, a day that matches either one counts."""

    text: str
    expression: str  # without shortcuts, as cronsim reads it

    def next_after(self, moment: datetime, tz: tzinfo) -> datetime:
        """Return the first slot after ``moment``, in the time zone ``tz``."""
        wall = moment.astimezone(tz).replace(tzinfo=None, second=0, microsecond=0)
        for candidate in CronSim(self.expression, wall - _SECOND):
            # Earlier: the slot of this very minute, or of an hour that the clock shows for the second time.
            if (slot := _instant(candidate, tz)) > moment:
                return slot
        raise ValueError(f"cron {self.text!r} is never due")  # pragma: no cover - parse_cron refuses those

    def last_between(self, start: datetime, end: datetime, tz: tzinfo) -> datetime | None:
        """Return the last slot after ``start`` up to and including ``end``, if there is one."""
        local = end.astimezone(tz)
        wall = local.replace(tzinfo=None, fold=0)
        if local.fold:  # later wall-clock times have passed already, before the clock was set back
            wall += (local.replace(fold=0).utcoffset() or timedelta()) - (local.utcoffset() or timedelta())
        for candidate in CronSim(self.expression, wall.replace(microsecond=0) + _SECOND, reverse=True):
            slot = _instant(candidate, tz)
            if slot <= start:
                return None
            if slot <= end:
                return slot
        return None


def parse_cron(text: str) -> Cron:
    """Parse a cron expression (``30 9 * * MON-FRI``, ``@daily``). Raises ``ValueError`` that names the wrong field."""
    shortcut = text.strip().lower()
    if shortcut.startswith("@") and shortcut not in _SHORTCUTS:
        raise ValueError(f"cron {text!r}: {shortcut} is unknown; use one of {', '.join(_SHORTCUTS)}, or five fields")
    parts = _SHORTCUTS.get(shortcut, text).upper().split()
    if len(parts) != len(_FIELDS):
        names = ", ".join(name for name, _, _ in _FIELDS)
        raise ValueError(f"cron {text!r}: five fields are needed ({names}), not {len(parts)}")
    parts[_WEEKDAY] = _RANGE_TO_SUNDAY.sub(r"\1-7", parts[_WEEKDAY])
    for number, (part, (name, allowed, largest)) in enumerate(zip(parts, _FIELDS, strict=True)):
        if not _is_valid(part, number):
            raise ValueError(f"cron {text!r}: {name} {part[:40]!r}: use {allowed}, *, a list, a range or a step")
        if any(int(step[:9]) > largest for step in _STEPS.findall(part)):
            raise ValueError(f"cron {text!r}: {name} {part[:40]!r}: the step must be a number from 1 to {largest}")
    expression = _SINGLE_VALUE_RANGE.sub(r"\1", " ".join(parts))
    try:
        due = next(CronSim(expression, _EPOCH), None)
    except CronSimError:  # each field is valid, but not together
        due = None
    if due is None:
        raise ValueError(f"cron {text!r}: {_FIELDS[_DAY][0]} {parts[_DAY]!r}: it is never due in the months given")
    return Cron(text, expression)


def _is_valid(part: str, number: int) -> bool:
    fields = ["*"] * len(_FIELDS)
    fields[number] = part
    try:
        CronSim(" ".join(fields), _EPOCH)
    except (CronSimError, ValueError):  # ValueError: more digits than int() accepts
        return False
    return True


def _instant(wall: datetime, tz: tzinfo) -> datetime:
    """Return the first moment at which a clock in ``tz`` shows ``wall``, or the next minute that it does show."""
    while True:
        moment = wall.replace(tzinfo=tz).astimezone(UTC)
        if moment.astimezone(tz).replace(tzinfo=None) == wall:
            return moment
        wall += _MINUTE
