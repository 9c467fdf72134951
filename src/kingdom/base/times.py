"""Times as they stand in documents, back as seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def epoch_seconds(value: object) -> float | None:
    """Seconds since the epoch of an ISO 8601 text, a datetime or a number; None for anything else."""
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
    """A time of the clock as a datetime in UTC."""
    return datetime.fromtimestamp(seconds, UTC)
