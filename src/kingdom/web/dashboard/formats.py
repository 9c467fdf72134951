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


_MINUTE_SECONDS: Final = 60
_HOUR_SECONDS: Final = 3600
_DAY_SECONDS: Final = 86400


def format_span(seconds: float | None, words: Translations, *, step: int = 5) -> str:
    """Format a time span in its two largest units.

    Below a minute it is rounded to ``step`` so that it changes rarely.
    """
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
    """Format how long ago something happened."""
    if seconds is None:
        return words("time.never")
    return words("time.now") if seconds < 10 else words("time.ago", span=format_span(seconds, words, step=10))


def format_clock(timestamp: object, zone: tzinfo, *, now: float | None = None) -> str:
    """Format the time of day of an ISO timestamp, with the date if it is not on the day of ``now``."""
    seconds = timestamp if isinstance(timestamp, float) else epoch_seconds(timestamp)
    if seconds is None:
        return str(timestamp or "–")
    at = datetime.fromtimestamp(seconds, zone)
    today = datetime.fromtimestamp(seconds if now is None else now, zone).date()
    return at.strftime("%H:%M:%S" if at.date() == today else "%Y-%m-%d %H:%M")


def format_datetime(timestamp: object, zone: tzinfo = UTC) -> str:
    """Format the date and time of an ISO timestamp."""
    seconds = timestamp if isinstance(timestamp, float) else epoch_seconds(timestamp)
    if seconds is None:
        return str(timestamp or "–")
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M:%S")


def format_usd(usd: float | None) -> str:
    if usd is None:
        return "–"
    return f"${usd:,.2f}" if usd == 0 or usd >= 0.01 else f"${usd:.4f}"


def format_count(number: float) -> str:
    """Abbreviate a large number: 12.3k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit:
            return f"{number / (1e3 if unit == 'k' else limit):.1f}{unit}"
    return f"{number:,.0f}"


_TIMEZONE_SECONDS: Final = 60.0  # how long the setting is cached


async def court_timezone(visit: Visit) -> tzinfo:
    """Return the time zone in which times are shown: the court's, else UTC."""
    services = visit.context.services
    if services is None:
        return UTC

    async def read() -> tzinfo:
        return ZoneInfo((await asyncio.to_thread(load_system, services.home)).timezone)

    return await visit.shared.read("zone", read, _TIMEZONE_SECONDS)


def format_minute(at: datetime, zone: tzinfo) -> str:
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"


_PAGE_BY_PREFIX: Final = {"task": "tasks", "evt": "events", "msg": "messages"}


def document_url(document_id: str) -> str:
    """Return the URL of the page of a task, event or message, by its id."""
    return page_url(_PAGE_BY_PREFIX.get(document_id.partition("-")[0], "tasks"), document_id)


def page_url(*parts: str, **query: str | None) -> str:
    """Return the URL of a page: ``page_url("workflows", id, show="failed")``."""
    asked = urlencode({name: value for name, value in query.items() if value})
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return f"{path}?{asked}" if asked else path
