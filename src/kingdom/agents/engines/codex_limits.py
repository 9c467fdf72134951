"""What codex says when an account is over its limit: words only, with a time of day in the machine's own zone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

_LIMIT: Final = re.compile(r"usage limit|rate limit|\b429 Too Many Requests", re.IGNORECASE)
_AT: Final = re.compile(
    r"try again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th)?, (\d{4}),? )?(\d{1,2}):(\d{2}) ?([AP]M)", re.IGNORECASE
)
_IN: Final = re.compile(r"try again in ((?:\d+(?:\.\d+)?\s*(?:days?|hours?|minutes?|seconds?|ms|[dhms])[\s,]*)+)")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|d|h|m|s)")
_SECONDS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def is_limit(message: str) -> bool:
    """Whether an error is a limit that lifts by itself (a spent quota does not)."""
    return _LIMIT.search(message[:4000]) is not None


def resets_at(message: str, now: float) -> float | None:
    """When it lifts, in seconds since the epoch, as far as the message says."""
    message = message[:4000]
    if found := _IN.search(message):
        return now + sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(found.group(1)))
    if found := _AT.search(message):
        try:
            return _at(found, now)
        except ValueError:  # the 31st of a short month, hour 25
            return None
    return None


def _at(found: re.Match[str], now: float) -> float:
    month, day, year, hour, minute, half = found.groups()
    here = datetime.fromtimestamp(now).astimezone()
    twelve = int(hour)
    if not 1 <= twelve <= 12:
        raise ValueError(f"no hour {hour} on a twelve-hour clock")
    when = here.replace(hour=twelve % 12 + (12 if half.upper() == "PM" else 0), minute=int(minute), second=0)
    if month is not None:
        when = when.replace(year=int(year), month=_MONTHS.index(month.lower()) + 1, day=int(day))
    elif when <= here - timedelta(minutes=1):
        when += timedelta(days=1)  # a time of day that has passed means tomorrow's
    return when.timestamp()
