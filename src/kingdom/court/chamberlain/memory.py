"""What the chamberlain remembers, in one file that is replaced as a whole: ``state/chamberlain/memory.json``.

The place in the journal stands beside the counts made of the lines before it, and what has been told to people beside
the messages that tell it. So after a kill at any instant no line counts twice and nobody is told twice.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from kingdom.base.files import write_json
from kingdom.court.chamberlain.health import CourtHealth
from kingdom.court.chamberlain.tally import JournalTally
from kingdom.journal import Cursor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from zoneinfo import ZoneInfo

    from kingdom.court.home import Home

log = logging.getLogger("kingdom.court.chamberlain")

TokenStatus = Literal["ok", "warning", "critical"]
_VERSION: Final = 1


@dataclass(slots=True)
class ChamberlainMemory:
    """Everything that outlives the process."""

    tally: JournalTally
    cursor: Cursor | None = None
    health: CourtHealth = field(default_factory=CourtHealth)
    told: dict[str, str] = field(default_factory=dict)  # alerts that stand, by key
    outbox: list[dict[str, Any]] = field(default_factory=list)  # messages that may not be in their queue yet
    silent: dict[str, dict[str, Any]] = field(default_factory=dict)  # roles without a sign of life
    pids: dict[str, list[int]] = field(default_factory=dict)  # of each role: its process and who supervised it
    token_status: TokenStatus = field(default="ok")
    token_day: str | None = None
    reported: str | None = None  # the last day that has its report
    cleaned: str | None = None  # the last day that was cleaned up
    stale_threads: list[str] = field(default_factory=list)  # thread mappings that were warned of

    def save(self, path: Path, *, durable: bool) -> None:
        """Replace the file."""
        plain = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        document = {
            "version": _VERSION,
            "cursor": None if self.cursor is None else self.cursor.to_dict(),
            "tally": self.tally.to_dict(),
            "health": self.health.to_dict(),
            **plain,
        }
        write_json(path, document, durable=durable)


_PLAIN_FIELDS: Final = (
    "told",
    "outbox",
    "silent",
    "pids",
    "token_status",
    "token_day",
    "reported",
    "cleaned",
    "stale_threads",
)


def memory_path(home: Home) -> Path:
    """Where the file lies."""
    return home.role("chamberlain") / "memory.json"


def load_memory(path: Path, zone: ZoneInfo) -> ChamberlainMemory:
    """What was remembered. A file that makes no sense is set aside, and what is still in the journal counted anew."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return ChamberlainMemory(JournalTally(zone))
    try:
        return _parse_memory(json.loads(text), zone)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        aside = path.with_name(f"{path.name}.damaged")
        path.rename(aside)
        log.warning("%s made no sense (%s: %s): set aside as %s", path, type(error).__name__, error, aside.name)
        return ChamberlainMemory(JournalTally(zone))


def _parse_memory(document: Mapping[str, Any], zone: ZoneInfo) -> ChamberlainMemory:
    if document["version"] != _VERSION:
        raise ValueError(f"version {document['version']!r:.40} is not known here")
    fresh = ChamberlainMemory(JournalTally(zone))
    plain = {name: document[name] for name in _PLAIN_FIELDS}
    for name, value in plain.items():
        expected = getattr(fresh, name)
        if expected is not None and not isinstance(value, type(expected)):
            raise TypeError(f"{name} is of another kind")
    return ChamberlainMemory(
        tally=JournalTally.from_dict(zone, document["tally"]),
        cursor=None if document["cursor"] is None else Cursor.from_dict(document["cursor"]),
        health=CourtHealth.from_dict(document["health"]),
        **plain,
    )
