"""The time, passed in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """A moment as part of a ref: ``20260131T235959.123456Z``."""
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def git_date(moment: datetime) -> str:
    """A moment as git's environment wants it."""
    return f"{int(moment.timestamp())} +0000"
