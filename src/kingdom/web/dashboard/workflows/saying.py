"""Times for people, and addresses of pages."""

from __future__ import annotations

from datetime import datetime, tzinfo
from urllib.parse import quote, urlencode


def moment(at: datetime, zone: tzinfo) -> str:
    """A day and a time."""
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"


def address(*parts: str, **query: str | None) -> str:
    """The address of a page of ours: ``address("workflows", id, tab="plan")``."""
    asked = urlencode({name: value for name, value in query.items() if value})
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return f"{path}?{asked}" if asked else path
