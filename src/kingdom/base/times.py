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
