"""Check the numbers, spans of time and collections that callers pass, and name the option that is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TypeVar

from kingdom.bus.errors import InvalidOption

Seconds = float | int | timedelta
C = TypeVar("C", bound=Iterable[str] | None)


def seconds(what: str, value: Seconds) -> float:
    """Return a span of time in seconds, or raise :class:`InvalidOption`."""
    try:
        return value.total_seconds() if isinstance(value, timedelta) else float(value)
    except (TypeError, ValueError):
        raise InvalidOption(f"{what} = {value!r}: must be seconds, as a number or a timedelta") from None


def positive_seconds(what: str, value: Seconds) -> float:
    """Return a span of time in seconds, or raise :class:`InvalidOption` unless it is positive."""
    span = seconds(what, value)
    if not 0 < span < float("inf"):
        raise InvalidOption(f"{what} = {value!r}: must be more than zero seconds")
    return span


def check_count(call: str, name: str, value: int) -> None:
    """Raise :class:`InvalidOption` unless ``value`` is a whole number of 1 or more."""
    if not isinstance(value, int):
        raise InvalidOption(f"{call}({name}={value!r}): must be a whole number, 1 or more")
    if value < 1:
        raise InvalidOption(f"{call}({name}={value}): must be 1 or more")


def texts(call: str, name: str, value: C) -> C:
    """Return a collection of texts, or raise :class:`InvalidOption` for one text: it is a collection of characters."""
    if isinstance(value, (str, bytes)):
        raise InvalidOption(f"{call}({name}={value!r}): must be a collection, as [{value!r}]")
    return value
