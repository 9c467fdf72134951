"""Convert between times in documents and seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime


def epoch_seconds(value: object) -> float | None:
    """Convert an ISO 8601 text, a datetime or a number to seconds since the epoch; None for any other value."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return None


def utc_datetime(seconds: float) -> datetime:
    """Convert seconds since the epoch to a datetime in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def minute_start(ts: str) -> float:
    """Return the start of the minute of an ISO 8601 text, in seconds since the epoch; without a zone it is of UTC.

    Raises :class:`ValueError` for any other text.
    """
    try:
        moment = datetime.fromisoformat(f"{ts[:16]}:00{ts[19:]}")
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, OSError):
        raise ValueError(f"{ts!r:.40} is not a time") from None
