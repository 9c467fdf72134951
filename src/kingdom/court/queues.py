"""The three queues of a court, as streams of the bus; reading their documents; ids of new documents.

============  =========  ============  ==================
stream        waiting    held          finished
============  =========  ============  ==================
``events``    pending    dispatched    completed
``tasks``     pending    in_progress   completed
``messages``  pending    (pending)     sent, failed
============  =========  ============  ==================

The documents are those of :mod:`kingdom.court.models`, one file each. The ``status`` of a document and its directory
always agree. Unreadable and invalid documents are in ``invalid/``, with the reason beside them.

A claimed document is ``delivery.envelope.payload``; :func:`parse_document` turns it into its model. Tasks are claimed
by the name of the general (``claim(TASKS, types=[name])``), events and messages by their type.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError

from kingdom.base.files import write_atomic
from kingdom.base.forms import problem_text
from kingdom.base.locks import exclusive
from kingdom.bus import DocumentForm, Envelope, connect
from kingdom.bus.transport import CONNECT_SECONDS
from kingdom.court.errors import InvalidDocument
from kingdom.court.home import check_name
from kingdom.court.models import CourtDocument, Event, Message, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from kingdom.bus import EventBus
    from kingdom.bus.delivery import Delivery, Record, Status
    from kingdom.court.home import Home
    from kingdom.court.loop import Services

EVENTS: Final = "events"
TASKS: Final = "tasks"
MESSAGES: Final = "messages"
MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024

STATES: Final[dict[str, dict[Status, str]]] = {
    EVENTS: {"PENDING": "pending", "PROCESSING": "dispatched", "DONE": "completed", "DEAD": "invalid"},
    TASKS: {"PENDING": "pending", "PROCESSING": "in_progress", "DONE": "completed", "DEAD": "invalid"},
    MESSAGES: {"PENDING": "pending", "PROCESSING": "pending", "DONE": "sent", "DEAD": "failed"},
}
_DOCUMENT_FORMS: Final = {
    EVENTS: DocumentForm(outcomes=("failed", "cancelled")),
    TASKS: DocumentForm(type="target_general", outcomes=("failed", "needs_human", "cancelled")),
    MESSAGES: DocumentForm(priority=None),
}
OUTCOMES: Final = {stream: form.outcomes for stream, form in _DOCUMENT_FORMS.items()}
"""How documents of each queue may end, other than well."""
_DOCUMENT_MODELS: Final[dict[str, type[CourtDocument]]] = {EVENTS: Event, TASKS: Task, MESSAGES: Message}
DocumentT = TypeVar("DocumentT", bound=CourtDocument)


def open_queues(url: str, connect_timeout: float = CONNECT_SECONDS) -> EventBus:
    """Connect to the queues: ``async with open_queues(url) as bus``. Call :func:`declare_queues` once before use."""
    return connect(url, max_bytes=MAX_DOCUMENT_BYTES, connect_timeout=connect_timeout)


async def declare_queues(bus: EventBus) -> None:
    """Create the queues. Idempotent."""
    await bus.setup()
    for stream, states in STATES.items():
        await bus.declare(stream, states=states, document=_DOCUMENT_FORMS[stream])


async def recall_held(services: Services, stream: str, workers: Iterable[str], lease: float) -> list[Delivery]:
    """Take over what former processes of a role hold in a queue."""
    return [one for worker in workers for one in await services.bus.recall(stream, worker=worker, lease=lease)]


async def put_documents(bus: EventBus, documents: Iterable[Event | Task | Message]) -> list[str]:
    """Put new documents into their queues, durably; return the accepted ids. Known ids are skipped."""
    accepted: list[str] = []
    batches: dict[str, list[Envelope]] = {EVENTS: [], TASKS: [], MESSAGES: []}
    for document in documents:
        stream = queue_of(document)
        batches[stream].append(envelope_of(stream, document))
    for stream, envelopes in batches.items():
        if envelopes:
            accepted += await bus.publish(stream, envelopes)
    return accepted


def queue_of(document: CourtDocument) -> str:
    """Return the queue of a document."""
    return next(stream for stream, model in _DOCUMENT_MODELS.items() if isinstance(document, model))


def envelope_of(stream: str, document: CourtDocument) -> Envelope:
    """Wrap a document in the envelope of its queue."""
    return raw_envelope(stream, document.document())


def raw_envelope(stream: str, payload: dict[str, Any]) -> Envelope:
    """Wrap a document as it was stored, which may be of an earlier version, in the envelope of its queue."""
    return _DOCUMENT_FORMS[stream].envelope(payload)


def parse_document(model: type[DocumentT], payload: Any, where: str) -> DocumentT:
    """Validate a claimed document. Raises :class:`InvalidDocument` with all problems and ``where``."""
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'the document'}: {problem_text(item)}"
            for item in error.errors()
        )
        raise InvalidDocument(f"{where}: {problems}") from None


# ── reading documents in any state ────────────────────────────────────────────────────────────────────────────────


STREAMS: Final = (EVENTS, TASKS, MESSAGES)


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document and its place in a queue."""

    stream: str
    state: str  # the name of its directory, also for a database
    document: dict[str, Any]
    path: Path | None = None  # None when the queues are in a database
    problem: str | None = None  # why it is in invalid/
    locked_by: str | None = None

    @property
    def id(self) -> str:
        return str(self.document.get("id", ""))


async def all_documents(services: Services, streams: tuple[str, ...] = STREAMS) -> list[StoredDocument]:
    """Return all documents of some queues."""
    if uses_files(services.bus):
        return await asyncio.to_thread(
            lambda: [stored for stream in streams for stored in documents_in_files(services.home, stream)]
        )
    return [document_from_record(record) for stream in streams async for record in services.bus.records(stream)]


def documents_in_files(home: Home, stream: str) -> list[StoredDocument]:
    """Return all documents of a queue on files."""
    return [*_documents_in(home.queue / stream, stream)]


def uses_files(bus: EventBus) -> bool:
    """Whether the queues are files; otherwise they are in a database."""
    return bus.url.startswith("files:")


async def find_document(services: Services, document_id: str) -> StoredDocument | None:
    """Return the document with this id, if there is one."""
    record = await services.bus.find(document_id)
    return None if record is None else document_from_record(record)


def invalid_files(home: Home) -> Iterator[tuple[str, str]]:
    """Yield the files in ``invalid/``, the newest first: path relative to the home, and reason."""
    found = []
    for stream in STREAMS:
        for path in (home.queue / stream / "invalid").glob("[!.]*"):
            with contextlib.suppress(OSError):
                if path.suffix != ".reason":
                    found.append((path.stat().st_mtime, path))
    for _, path in sorted(found, reverse=True):
        yield str(path.relative_to(home.root)), _read_reason(path) or "no reason given"


async def unusable_documents(services: Services, limit: int) -> list[tuple[str, str, str]]:
    """Return the documents that were set aside, newest first: queue, path or id, and reason."""
    aside = await asyncio.to_thread(lambda: [*invalid_files(services.home)])
    found = [(path.split("/")[1], path, why) for path, why in aside]
    if not uses_files(services.bus):
        for stream in (EVENTS, TASKS):
            letters = await services.bus.dead(stream, limit)
            found += [(stream, one.event_id, one.error_message or one.error_code or "no reason") for one in letters]
    return found[:limit]


def repair_hint(stream: str, path: str) -> str:
    """Say how to mend a document that was set aside."""
    if "/" not in path:
        return f"kingdom bus requeue {stream} {path} tries it again"
    return f"correct it and move it to queue/{stream}/pending/, or remove it"


async def is_answered(services: Services, task_id: str) -> bool:
    """Whether there is an event that answers the question of a task, in any state."""
    return await _command_exists(services, task_id, "response")


async def is_cancelled(services: Services, task_id: str) -> bool:
    """Whether there is an event that cancels a task, in any state."""
    return await _command_exists(services, task_id, "cancel")


async def command_events(services: Services, task_id: str, word: str) -> list[StoredDocument]:
    """Return the events with a command for a task: ``response``, ``cancel`` or ``retry``, the oldest first."""
    ids = _command_id_pattern(task_id, word)
    if uses_files(services.bus):
        paths = [*(services.home.queue / EVENTS).glob(f"*/{ids}.json")]
        read = [document_from_file(path, EVENTS, path.parent.name) for path in paths]
        found = [stored for stored in read if stored is not None]
    else:
        found = [document_from_record(record) async for record in services.bus.records(EVENTS, ids=ids)]
    return sorted(found, key=lambda stored: str(stored.document.get("created_at")))


def is_answered_in_files(home: Home, task_id: str) -> bool:
    """As :func:`is_answered`, for queues on files only; False when the queues are in a database."""
    return _event_file_exists(home, _command_id_pattern(task_id, "response"))


async def _command_exists(services: Services, task_id: str, word: str) -> bool:
    ids = _command_id_pattern(task_id, word)
    if uses_files(services.bus):
        return await asyncio.to_thread(_event_file_exists, services.home, ids)
    async for _ in services.bus.records(EVENTS, ids=ids):
        return True
    return False


def _command_id_pattern(task_id: str, word: str) -> str:
    return f"evt-*-{word}-{check_name('task', task_id)}-*"


def _event_file_exists(home: Home, ids: str) -> bool:
    return any((home.queue / EVENTS).glob(f"*/{ids}.json"))


def document_from_record(record: Record) -> StoredDocument:
    """Convert a record of the bus."""
    payload = record.envelope.payload
    document = dict(payload) if isinstance(payload, dict) else {"id": record.envelope.event_id}
    # A database keeps the document as published, with an outdated status.
    state = record.outcome or STATES.get(record.stream, {}).get(record.status, record.status.lower())
    document["status"] = state
    return StoredDocument(
        record.stream, state, document, problem=record.error_message or None, locked_by=record.locked_by or None
    )


def document_from_file(path: Path, stream: str, state: str) -> StoredDocument | None:
    """Read the document in a file of a queue; None when the file has moved to another state."""
    document = _read_document(path)
    if document is None or state != "invalid":
        return None if document is None else StoredDocument(stream, state, document, path)
    # Identify it by the name of its file, as `kingdom status` does: its content cannot be trusted.
    return StoredDocument(stream, state, {**document, "id": path.name.removesuffix(".json")}, path, _read_reason(path))


def _documents_in(folder: Path, stream: str) -> Iterator[StoredDocument]:
    for state in sorted(_directories(folder)):
        with os.scandir(folder / state) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".")]
        for name in names:
            if name.endswith(".reason") or (state != "invalid" and not name.endswith(".json")):
                continue
            stored = document_from_file(folder / state / name, stream, state)
            if stored is not None:
                yield stored


def _directories(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except FileNotFoundError:
        return []


def _read_document(path: Path) -> dict[str, Any] | None:
    """Read a file; of an unreadable one, only the id from its name. None when the file has moved to another state."""
    try:
        document = json.loads(path.read_bytes(), parse_constant=_reject_constant)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        document = None
    return document if isinstance(document, dict) else {"id": path.name.removesuffix(".json")}


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _read_reason(path: Path) -> str | None:
    try:
        return path.with_name(path.name + ".reason").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


# ── ids: task-20260207-001, msg-20260207-001 ───────────────────────────────────────────────────────────────────────

_STORED_PATTERN: Final = re.compile(r"(\d{8}):(\d+)\s*\Z")


class IdSequences:
    """Generates the ids of tasks and messages.

    The last number of a kind is in a file as ``YYYYMMDD:number``. Several processes use it, so it is changed under a
    lock. It is synced before an id is returned, so a power cut repeats no id. When the clock is set back, numbering
    continues in the later day. When the file is lost, the names of existing files show the used numbers; with queues in
    a database, call :meth:`recover` first.
    """

    def __init__(self, home: Home, clock: Callable[[], float], zone: tzinfo = UTC) -> None:
        """Generate ids for ``home``. Their days are those of ``zone``."""
        self._home = home
        self._clock = clock
        self._zone = zone

    @property
    def paths(self) -> list[Path]:
        """The files with the last numbers."""
        return [self._path("task"), self._path("msg")]

    async def recover(self, bus: EventBus) -> None:
        """Restore a lost or outdated file from the ids in the database. Does nothing for queues on files.

        It is outdated when this machine has taken the court over: the last number came with some delay.
        """
        if uses_files(bus):
            return
        for kind, stream in (("task", TASKS), ("msg", MESSAGES)):
            stored = _read_stored(self._path(kind))
            days = {"*"} if stored is None else {f"{stored[0]}-*", f"{self._today()}-*"}
            given = [
                record.envelope.event_id
                for day in sorted(days)
                async for record in bus.records(stream, ids=f"{kind}-{day}")
            ]
            with self._locked(kind) as path:
                names = _file_names(self._places(kind)) if stored is None else ()
                before = _read_stored(path) or ("", 0)
                day, last = max(_highest_id(kind, (*given, *names)), before)
                if day and (day, last) != before:
                    write_atomic(path, f"{day}:{last}\n")

    def tasks(self, count: int = 1) -> list[str]:
        """Return new task ids."""
        return self._draw("task", count)

    def messages(self, count: int = 1) -> list[str]:
        """Return new message ids."""
        return self._draw("msg", count)

    def _draw(self, kind: str, count: int) -> list[str]:
        if count < 1:
            return []
        with self._locked(kind) as path:
            today = self._today()
            day, last = _read_stored(path) or _highest_id(kind, _file_names(self._places(kind)))
            if day < today:
                day, last = today, 0
            write_atomic(path, f"{day}:{last + count}\n")
        return [f"{kind}-{day}-{number:03d}" for number in range(last + 1, last + count + 1)]

    def _today(self) -> str:
        return datetime.fromtimestamp(self._clock(), self._zone).strftime("%Y%m%d")

    def _places(self, kind: str) -> list[Path]:
        """Return the folders with files named after such ids."""
        queue, state = self._home.queue, self._home.state
        return [queue / TASKS, state] if kind == "task" else [queue / MESSAGES]

    def _path(self, kind: str) -> Path:
        return self._home.role("king") / f"{kind}-seq"

    @contextlib.contextmanager
    def _locked(self, kind: str) -> Iterator[Path]:
        """Lock the file of the last number, and yield its path."""
        path = self._path(kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(path.with_name(f".{path.name}.lock")):
            yield path


def _read_stored(path: Path) -> tuple[str, int] | None:
    try:
        found = _STORED_PATTERN.match(path.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError):
        return None
    return (found[1], int(found[2])) if found else None


def _highest_id(kind: str, names: Iterable[str]) -> tuple[str, int]:
    """Return the highest id in some names."""
    pattern = re.compile(rf"{kind}-(\d{{8}})-(\d+)")
    found = (pattern.search(name) for name in names)
    return max(((match[1], int(match[2])) for match in found if match), default=("", 0))


def _file_names(places: list[Path]) -> Iterator[str]:
    for place in places:
        for folder in (place, *(sub for sub in place.glob("*") if sub.is_dir())):
            yield from (path.name for path in folder.glob("*"))
