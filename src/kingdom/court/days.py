"""Days and times of day in the court's time zone, also where a clock change makes an hour missing or double."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

ONE_DAY: Final = timedelta(days=1)


def day_of(seconds: float, zone: ZoneInfo) -> date:
    """The day that it is in the zone."""
    return datetime.fromtimestamp(seconds, zone).date()


def seconds_at(day: date, at: time, zone: ZoneInfo) -> float:
    """When a clock in the zone shows this time on this day: the first time, where it shows it twice.

    A time that the clock jumps over counts as just as long after the jump as it would have been before.
    """
    return datetime.combine(day, at, tzinfo=zone).timestamp()


def start_of_day(day: date, zone: ZoneInfo) -> float:
    """When the day begins."""
    return seconds_at(day, time(), zone)


def last_due_day(now: float, at: time, zone: ZoneInfo) -> date:
    """The latest day on which the time of day ``at`` has come."""
    today = day_of(now, zone)
    return today if now >= seconds_at(today, at, zone) else today - ONE_DAY
