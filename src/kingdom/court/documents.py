"""Looking at the documents of a court from outside: all of them, whatever state they are in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.home import checked
from kingdom.court.queues import EVENTS, MESSAGES, STATES, TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kingdom.bus import EventBus
    from kingdom.bus.delivery import Record
    from kingdom.court.home import Home
    from kingdom.court.loop import Services

STREAMS: Final = (EVENTS, TASKS, MESSAGES)


@dataclass(frozen=True, slots=True)
class Stored:
    """A document and where it lies."""

    stream: str
    state: str  # the directory, or what the store calls it
    document: dict[str, Any]
    path: Path | None = None  # None when the queues are in a database
    problem: str | None = None  # why it is in invalid/
    locked_by: str | None = None

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.document.get("id", ""))


async def all_documents(services: Services, streams: tuple[str, ...] = STREAMS) -> list[Stored]:
    """Every document the court still has."""
    if on_files(services.bus):
        queue = services.home.queue
        return await asyncio.to_thread(
            lambda: [stored for stream in streams for stored in _in_folders(queue / stream, stream)]
        )
    return [of_record(record) for stream in streams async for record in services.bus.records(stream)]


def on_files(bus: EventBus) -> bool:
    """Whether the queues are files, which anybody can look at; else they are in a database."""
    return bus.url.startswith("files:")


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


async def answered(services: Services, task_id: str) -> bool:
    """Whether an answer to the question of a task is there, or was."""
    return await _was_asked(services, task_id, "response")


async def cancelled(services: Services, task_id: str) -> bool:
    """Whether somebody wants a task to be cancelled, or wanted it."""
    return await _was_asked(services, task_id, "cancel")


def answered_in_files(home: Home, task_id: str) -> bool:
    """As :func:`answered`, from the files alone: where queues are in a database, those tell nothing."""
    return _is_file(home, _asked_ids(task_id, "response"))


async def _was_asked(services: Services, task_id: str, word: str) -> bool:
    ids = _asked_ids(task_id, word)
    if on_files(services.bus):
        return await asyncio.to_thread(_is_file, services.home, ids)
    async for _ in services.bus.records(EVENTS, ids=ids):
        return True
    return False


def _asked_ids(task_id: str, word: str) -> str:
    return f"evt-*-{word}-{checked('task', task_id)}-*"


def _is_file(home: Home, ids: str) -> bool:
    return any((home.queue / EVENTS).glob(f"*/{ids}.json"))


def of_record(record: Record) -> Stored:
    """A document as the bus found it."""
    payload = record.envelope.payload
    document = dict(payload) if isinstance(payload, dict) else {"id": record.envelope.event_id}
    # A database keeps the document as it was put into it: it does not know how that spells its state.
    state = record.outcome or STATES.get(record.stream, {}).get(record.status, record.status.lower())
    document["status"] = state
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
