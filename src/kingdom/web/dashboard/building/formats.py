"""Times and amounts as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Final

from kingdom.court.king.times import seconds_of

if TYPE_CHECKING:
    from kingdom.web.dashboard.words import Words

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400


def lasting(seconds: float | None, words: Words, *, step: int = 5) -> str:
    """A span of time in its two greatest units; below a minute in steps, so that it does not change all the time."""
    if seconds is None:
        return "–"
    whole = int(max(seconds, 0))
    if whole < _MINUTE:
        return words("time.seconds", n=whole // step * step)
    if whole < _HOUR:
        return words("time.minutes", n=whole // _MINUTE)
    if whole < _DAY:
        return words("time.hours", n=whole // _HOUR, m=whole % _HOUR // _MINUTE)
    return words("time.days", n=whole // _DAY, h=whole % _DAY // _HOUR)


def ago(seconds: float | None, words: Words) -> str:
    """How long ago something was."""
    if seconds is None:
        return words("time.never")
    return words("time.now") if seconds < 10 else words("time.ago", span=lasting(seconds, words, step=10))


def clock(timestamp: object, zone: tzinfo, *, now: float | None = None) -> str:
    """The time of day of an ISO timestamp; with its date when it was not on the day of ``now``."""
    seconds = timestamp if isinstance(timestamp, float) else seconds_of(timestamp)
    if seconds is None:
        return str(timestamp or "–")
    at = datetime.fromtimestamp(seconds, zone)
    today = datetime.fromtimestamp(seconds if now is None else now, zone).date()
    return at.strftime("%H:%M:%S" if at.date() == today else "%Y-%m-%d %H:%M")


def day_and_time(timestamp: object, zone: tzinfo = UTC) -> str:
    """Date and time of an ISO timestamp."""
    seconds = timestamp if isinstance(timestamp, float) else seconds_of(timestamp)
    if seconds is None:
        return str(timestamp or "–")
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M:%S")


def money(usd: float | None) -> str:
    """An amount in USD."""
    if usd is None:
        return "–"
    return f"${usd:,.2f}" if usd == 0 or usd >= 0.01 else f"${usd:.4f}"


def short(number: float) -> str:
    """A large number in few characters: 12.3k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit:
            return f"{number / (1e3 if unit == 'k' else limit):.1f}{unit}"
    return f"{number:,.0f}"
