"""Days and times of day in a time zone, also when a clock change skips or repeats an hour."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

ONE_DAY: Final = timedelta(days=1)


def day_of(seconds: float, zone: ZoneInfo) -> date:
    """Return the date in the zone."""
    return datetime.fromtimestamp(seconds, zone).date()


def local_time(seconds: float, zone: tzinfo, *, millis: bool = False) -> str:
    """Format a time for people: ``2026-02-07 19:00:00``."""
    moment = datetime.fromtimestamp(seconds, zone)
    return moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{moment.microsecond // 1000:03d}" if millis else "")


def local_minute(seconds: float, zone: tzinfo) -> str:
    """Format a time for people, with its zone: ``2026-02-07 19:00 KST``."""
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M %Z")


def seconds_at(day: date, at: time, zone: ZoneInfo) -> float:
    """Return the epoch seconds of a local time on a day; of a repeated time, the first occurrence.

    A time that a clock change skips is moved forward by the length of the gap.
    """
    return datetime.combine(day, at, tzinfo=zone).timestamp()


def start_of_day(day: date, zone: ZoneInfo) -> float:
    return seconds_at(day, time(), zone)


def last_due_day(now: float, at: time, zone: ZoneInfo) -> date:
    """Return the latest day on which the time of day ``at`` has passed."""
    today = day_of(now, zone)
    return today if now >= seconds_at(today, at, zone) else today - ONE_DAY
