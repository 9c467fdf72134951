"""Looking at the documents of a court from outside: all of them, whatever state they are in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.home import checked
from kingdom.court.journal_tail import journal_tail
from kingdom.court.queues import EVENTS, MESSAGES, TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kingdom.bus.delivery import Record
    from kingdom.court.home import Home
    from kingdom.court.loop import Services

STREAMS: Final = (EVENTS, TASKS, MESSAGES)
_NAMED_IN: Final = {EVENTS: "event_id", TASKS: "task_id", MESSAGES: "msg_id"}


@dataclass(frozen=True, slots=True)
class Stored:
    """A document and where it lies."""

    stream: str
    state: str  # the directory, or what the store calls it
    document: dict[str, Any]
    path: Path | None = None  # None when the queues are not files
    problem: str | None = None  # why it is in invalid/
    locked_by: str | None = None

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.document.get("id", ""))


async def all_documents(services: Services, streams: tuple[str, ...] = STREAMS) -> list[Stored]:
    """Every document the court still has.

    On a store that is not files, those that wait and those the recent journal speaks of: no store lists everything.
    """
    if services.bus.url.startswith("files:"):
        queue = services.home.queue
        return await asyncio.to_thread(
            lambda: [stored for stream in streams for stored in _in_folders(queue / stream, stream)]
        )
    found: dict[str, Stored] = {}
    entries = journal_tail(services.home.journal)
    for stream in streams:
        ids = [record.envelope.event_id for record in await services.bus.peek(stream, limit=1000)]
        ids += [entry.fields[_NAMED_IN[stream]] for entry in entries if _NAMED_IN[stream] in entry.fields]
        for one in dict.fromkeys(ids):
            if isinstance(one, str) and (record := await services.bus.find(one)) is not None:
                found[one] = of_record(record)
    return list(found.values())


async def find_document(services: Services, document_id: str) -> Stored | None:
    """One document by its id."""
    record = await services.bus.find(document_id)
    return None if record is None else of_record(record)


def invalid_files(home: Home) -> Iterator[tuple[str, str]]:
    """What was put aside because it could not be understood: its path below the home, and why. The newest first."""
    found = []
    for stream in STREAMS:
        for path in (home.queue / stream / "invalid").glob("[!.]*"):
            with contextlib.suppress(OSError):
                if path.suffix != ".reason":
                    found.append((path.stat().st_mtime, path))
    for _, path in sorted(found, reverse=True):
        yield str(path.relative_to(home.root)), _reason(path) or "no reason given"


def answered(home: Home, task_id: str) -> bool:
    """Whether an answer to the question of a task is on its way; where queues are not files, nobody can say."""
    return _was_asked(home, task_id, "response")


def cancelled(home: Home, task_id: str) -> bool:
    """Whether somebody wants a task to be cancelled; where queues are not files, nobody can say."""
    return _was_asked(home, task_id, "cancel")


def _was_asked(home: Home, task_id: str, word: str) -> bool:
    return any((home.queue / EVENTS).glob(f"*/evt-*-{word}-{checked('task', task_id)}-*.json"))


def of_record(record: Record) -> Stored:
    """A document as the bus found it."""
    payload = record.envelope.payload
    document = dict(payload) if isinstance(payload, dict) else {"id": record.envelope.event_id}
    state = str(document.get("status") or record.status.lower())
    return Stored(
        record.stream, state, document, problem=record.error_message or None, locked_by=record.locked_by or None
    )


def of_file(path: Path, stream: str, state: str) -> Stored | None:
    """The document in a file of a queue; None when it went on to another state meanwhile."""
    document = _document(path)
    if document is None or state != "invalid":
        return None if document is None else Stored(stream, state, document, path)
    # Known by its file, as status names it: what it says of itself may be anything.
    return Stored(stream, state, {**document, "id": path.name.removesuffix(".json")}, path, _reason(path))


def _in_folders(folder: Path, stream: str) -> Iterator[Stored]:
    for state in sorted(_directories(folder)):
        with os.scandir(folder / state) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".")]
        for name in names:
            if name.endswith(".reason") or (state != "invalid" and not name.endswith(".json")):
                continue
            stored = of_file(folder / state / name, stream, state)
            if stored is not None:
                yield stored


def _directories(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except FileNotFoundError:
        return []


def _document(path: Path) -> dict[str, Any] | None:
    """What a file holds; for one that cannot be read, only its name. None: it went on to another state meanwhile."""
    try:
        document = json.loads(path.read_bytes(), parse_constant=_no_constant)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        document = None
    return document if isinstance(document, dict) else {"id": path.name.removesuffix(".json")}


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _reason(path: Path) -> str | None:
    try:
        return path.with_name(path.name + ".reason").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
