"""Times for people, and addresses of pages."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote, urlencode


def moment(at: datetime) -> str:
    """A day and a time, as the clock of the server has it."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}"


def clock(at: datetime) -> str:
    """A time of day."""
    return f"{at.astimezone():%H:%M:%S}"


def address(*parts: str, **query: str | None) -> str:
    """The address of a page of ours: ``address("workflows", id, tab="plan")``."""
    asked = urlencode({name: value for name, value in query.items() if value})
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return f"{path}?{asked}" if asked else path
