"""What sources say, made fit for a document: no half characters, no endless texts, ids that can be file names."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Any, Final

MAX_TEXT: Final = 100_000  # characters of one text
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9._@+\-]+")
_MAX_ID: Final = 180


def plain(value: Any, most: int = MAX_TEXT) -> str:
    """A text that every queue can hold; nothing for what is no text."""
    if not isinstance(value, str):
        return ""
    text = value.encode("utf-8", "replace").decode().replace("\0", "")
    return text if len(text) <= most else f"{text[:most]}\n[… {len(text) - most} characters left out …]"


def event_id(source: str, *parts: object) -> str:
    """The id of an event from what names it; a long one ends in a hash instead."""
    name = "-".join(_NOT_IN_IDS.sub("_", str(part)) for part in parts)
    if len(name) > _MAX_ID:
        name = f"{name[: _MAX_ID - 33]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return f"evt-{source}-{name}"


def moment(value: Any) -> datetime | None:
    """A time as sources write it (2026-02-07T10:00:00Z, 2026-02-07T19:00:00.000+0900); None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def instant(value: Any) -> float:
    """The same as seconds of the clock; 0 for anything that is no time."""
    found = moment(value)
    return found.timestamp() if found is not None else 0.0
