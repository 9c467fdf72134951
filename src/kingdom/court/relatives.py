"""Which documents belong together: an event, its tasks, their messages, the answers, and what was asked of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.queues import EVENTS, MESSAGES, TASKS
from kingdom.journal import Reader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from kingdom.court.documents import Stored

# The fields that name others, by stream; a dot leads into an object. Nothing else in a payload counts: it was written
# outside, and could name anything.
_LINKS: Final = {
    EVENTS: ("payload.task_id",),
    TASKS: ("event_id", "payload.original_task_id", "payload.task_id"),
    MESSAGES: ("context.task_id", "context.event_id"),
}
_OWN_EVENTS: Final = (".human_response", ".task_cancel", ".task_retry")
_JOURNAL_IDS: Final = ("event_id", "task_id", "original_task_id", "msg_id", "soldier_id")


@dataclass(slots=True)
class Family:
    """Everything that belongs to one id."""

    ids: set[str]
    documents: list[Stored] = field(default_factory=list)
    journal: list[dict[str, Any]] = field(default_factory=list)  # lines, in the order of the file


def find_family(start: str, known: Sequence[tuple[Stored, AbstractSet[str]]], journal: Path) -> Family:
    """Follow every link from ``start``, in documents (``known``, with their links) and journal, to the last."""
    ids, before = {start}, 0
    lines: list[dict[str, Any]] = []
    while len(ids) != before:
        before = len(ids)
        _follow(ids, known)
        lines = _journal_lines(journal, ids)
        for line in lines:
            ids |= {value for key in _JOURNAL_IDS if isinstance(value := line["data"].get(key), str) and value}
    return Family(ids, [stored for stored, links in known if stored.id in ids or links & ids], lines)


def links_of(stored: Stored) -> AbstractSet[str]:
    """The ids a document names."""
    if stored.stream == EVENTS and not str(stored.document.get("type", "")).endswith(_OWN_EVENTS):
        return set()
    found = (_at(stored.document, path) for path in _LINKS[stored.stream])
    return {value for value in found if isinstance(value, str) and value}


def _follow(ids: set[str], known: Sequence[tuple[Stored, AbstractSet[str]]]) -> None:
    grown = True
    while grown:
        grown = False
        for stored, links in known:
            family = {stored.id, *links}
            if family & ids and not family <= ids:
                ids |= family
                grown = True


def _at(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _journal_lines(path: Path, ids: set[str]) -> list[dict[str, Any]]:
    """The lines that name one of the ids, from the oldest file there is to the newest."""
    needles = [json.dumps(one).encode() for one in ids]
    found = []
    with Reader(path, report=lambda _problem: None) as reader:
        for line in reader.read_lines():
            if any(needle in line for needle in needles):
                try:
                    document = json.loads(line)
                except ValueError:
                    continue
                data = document.get("data") if isinstance(document, dict) else None
                if isinstance(data, dict) and any(data.get(key) in ids for key in _JOURNAL_IDS):
                    found.append(document)
    return found
