"""Times, amounts and addresses as pages show them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

from kingdom.base.times import epoch_seconds
from kingdom.court.config import load_system

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.dashboard.words import Translations


# Times and amounts as people read them.


_MINUTE_SECONDS: Final = 60
_HOUR_SECONDS: Final = 3600
_DAY_SECONDS: Final = 86400


def format_span(seconds: float | None, words: Translations, *, step: int = 5) -> str:
    """A span of time in its two greatest units; below a minute in steps, so that it does not change all the time."""
    if seconds is None:
        return "–"
    whole = int(max(seconds, 0))
    if whole < _MINUTE_SECONDS:
        return words("time.seconds", n=whole // step * step)
    if whole < _HOUR_SECONDS:
        return words("time.minutes", n=whole // _MINUTE_SECONDS)
    if whole < _DAY_SECONDS:
        return words("time.hours", n=whole // _HOUR_SECONDS, m=whole % _HOUR_SECONDS // _MINUTE_SECONDS)
    return words("time.days", n=whole // _DAY_SECONDS, h=whole % _DAY_SECONDS // _HOUR_SECONDS)


def format_age(seconds: float | None, words: Translations) -> str:
    """How long ago something was."""
    if seconds is None:
        return words("time.never")
    return words("time.now") if seconds < 10 else words("time.ago", span=format_span(seconds, words, step=10))


def format_clock(timestamp: object, zone: tzinfo, *, now: float | None = None) -> str:
    """The time of day of an ISO timestamp; with its date when it was not on the day of ``now``."""
    seconds = timestamp if isinstance(timestamp, float) else epoch_seconds(timestamp)
    if seconds is None:
        return str(timestamp or "–")
    at = datetime.fromtimestamp(seconds, zone)
    today = datetime.fromtimestamp(seconds if now is None else now, zone).date()
    return at.strftime("%H:%M:%S" if at.date() == today else "%Y-%m-%d %H:%M")


def format_datetime(timestamp: object, zone: tzinfo = UTC) -> str:
    """Date and time of an ISO timestamp."""
    seconds = timestamp if isinstance(timestamp, float) else epoch_seconds(timestamp)
    if seconds is None:
        return str(timestamp or "–")
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M:%S")


def format_usd(usd: float | None) -> str:
    """An amount in USD."""
    if usd is None:
        return "–"
    return f"${usd:,.2f}" if usd == 0 or usd >= 0.01 else f"${usd:.4f}"


def format_count(number: float) -> str:
    """A large number in few characters: 12.3k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit:
            return f"{number / (1e3 if unit == 'k' else limit):.1f}{unit}"
    return f"{number:,.0f}"


# The time zone times are shown in: the court's own, else UTC.


_TIMEZONE_SECONDS: Final = 60.0  # seconds


async def court_timezone(visit: Visit) -> tzinfo:
    """The time zone of the court."""
    services = visit.context.services
    if services is None:
        return UTC

    async def read() -> tzinfo:
        return ZoneInfo((await asyncio.to_thread(load_system, services.home)).timezone)

    return await visit.shared.read("zone", read, _TIMEZONE_SECONDS)


# Times for people, and addresses of pages.


def format_minute(at: datetime, zone: tzinfo) -> str:
    """A day and a time."""
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"


def page_url(*parts: str, **query: str | None) -> str:
    """The address of a page of ours: ``address("workflows", id, tab="plan")``."""
    asked = urlencode({name: value for name, value in query.items() if value})
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return f"{path}?{asked}" if asked else path
