"""The persistent state of the chamberlain: ``state/chamberlain/memory.json``, always replaced as a whole.

It holds the position in the journal together with the counts of the lines before it, and the announced alerts together
with their messages. So after a kill at any instant, no line is counted twice and no message is sent twice.
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
    """The state that survives a restart."""

    tally: JournalTally
    cursor: Cursor | None = None
    health: CourtHealth = field(default_factory=CourtHealth)
    told: dict[str, str] = field(default_factory=dict)  # announced alerts, by key
    told_texts: dict[str, str] = field(default_factory=dict)  # of those alerts
    outbox: list[dict[str, Any]] = field(default_factory=list)  # messages that may not be in the queue yet
    silent: dict[str, dict[str, Any]] = field(default_factory=dict)  # roles without a heartbeat
    crashes: dict[str, dict[str, float]] = field(default_factory=dict)  # of each role that crashed (checks.py)
    token_status: TokenStatus = field(default="ok")
    token_day: str | None = None
    reported: str | None = None  # the last day with a report
    cleaned: str | None = None  # the last day with a cleanup
    invalid: list[str] = field(default_factory=list)  # documents that were set aside, and reported
    stale_threads: list[str] = field(default_factory=list)  # thread mappings with a logged warning

    def save(self, path: Path, *, durable: bool) -> None:
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
    "told_texts",
    "outbox",
    "silent",
    "crashes",
    "token_status",
    "token_day",
    "reported",
    "cleaned",
    "invalid",
    "stale_threads",
)


def memory_path(home: Home) -> Path:
    return home.role("chamberlain") / "memory.json"


def load_memory(path: Path, zone: ZoneInfo) -> ChamberlainMemory:
    """Load the memory. An invalid file is renamed, and the journal is counted again from its oldest line."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return ChamberlainMemory(JournalTally(zone))
    try:
        return _parse_memory(json.loads(text), zone)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        aside = path.with_name(f"{path.name}.damaged")
        path.rename(aside)
        log.warning("%s is invalid (%s: %s): renamed to %s", path, type(error).__name__, error, aside.name)
        return ChamberlainMemory(JournalTally(zone))


def _parse_memory(document: Mapping[str, Any], zone: ZoneInfo) -> ChamberlainMemory:
    if document["version"] != _VERSION:
        raise ValueError(f"unknown version {document['version']!r:.40}")
    fresh = ChamberlainMemory(JournalTally(zone))
    plain = {name: document.get(name, getattr(fresh, name)) for name in _PLAIN_FIELDS}
    for name, value in plain.items():
        expected = getattr(fresh, name)
        if expected is not None and not isinstance(value, type(expected)):
            raise TypeError(f"{name} has the wrong type")
    return ChamberlainMemory(
        tally=JournalTally.from_dict(zone, document["tally"]),
        cursor=None if document["cursor"] is None else Cursor.from_dict(document["cursor"]),
        health=CourtHealth.from_dict(document["health"]),
        **plain,
    )
