"""The king's write-ahead log, and the code that applies its entries.

Each tick of the king appends one entry, a line that is durable before anything in it happens: the new form of changed
cases, the tasks, messages and events to publish, the events to complete, the schedule slots to mark. An entry can be
applied twice without harm, because every document has its id already and the bus accepts an id once. After a crash
the last entry is applied again. Earlier entries were applied completely, or there would be no later one.

``state/king/.book`` holds the open cases and the entries since the last rewrite. A long file is rewritten.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from kingdom.base.files import write_atomic, write_json
from kingdom.bus.errors import InvalidEnvelope
from kingdom.court.activity import append_task_log, missing_entries
from kingdom.court.cancellations import request_cancel, requests_folder
from kingdom.court.king.cases import Case
from kingdom.court.landings import drop_landing
from kingdom.court.models import Event, Message, Task
from kingdom.court.queues import put_documents
from kingdom.journal import JournalError
from kingdom.journal.catalog import TaskCreated

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kingdom.bus import Delivery
    from kingdom.court.loop import Services

LOG_FILE: Final = ".book"
REWRITE_BYTES: Final = 8 << 20  # rewrite a log longer than this and than twice its size after the last rewrite
log = logging.getLogger("kingdom.court.king")
D = TypeVar("D", Task, Message, Event)
StoreSlots = Callable[[Mapping[str, Mapping[str, Any]]], None]


@dataclass(slots=True)
class LogEntry:
    """The changes of one tick. They are applied as a whole, after a crash by the next process."""

    cases: dict[str, dict[str, Any] | None] = field(default_factory=dict)  # None: closed
    tasks: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    done: dict[str, str | None] = field(default_factory=dict)  # events to complete, with their outcome
    slots: dict[str, dict[str, Any]] = field(default_factory=dict)  # of schedules
    cancels: dict[str, tuple[str, str, str | None]] = field(default_factory=dict)  # tasks to end: general, request
    landed: dict[str, dict[str, Any] | None] = field(default_factory=dict)  # results of notes; None: a useless note
    journal: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)  # type, data, actor

    def line(self) -> bytes:
        # ASCII, because a name from outside may hold half a surrogate pair, which UTF-8 cannot encode.
        filled = {name: value for name in self.__slots__ if (value := getattr(self, name))}
        return json.dumps(filled, separators=(",", ":")).encode() + b"\n"


@dataclass(slots=True)
class LogContents:
    """What was read from a log."""

    cases: dict[str, Case]
    last: LogEntry | None  # to be applied again
    found: bool  # False: there is no log file


class WriteAheadLog:
    """The log file. Only the king writes it, and it reads it at start."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG_FILE
        self._file: int | None = None
        self._size = 0
        self._rewrite_at = REWRITE_BYTES

    def open(self) -> LogContents:
        """Read the log. An unterminated last line was never applied, and is ignored."""
        self.close()
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return LogContents({}, None, found=False)
        cases: dict[str, Case] = {}
        last: LogEntry | None = None
        for line in data.split(b"\n")[:-1]:
            try:
                entry = LogEntry(**json.loads(line))
                entry.journal = [(name, data, actor[0] if actor else "king") for name, data, *actor in entry.journal]
                changed = {root: Case.from_dict(case) for root, case in entry.cases.items() if case is not None}
            except (ValueError, TypeError, AttributeError) as error:
                log.warning("%s: skipped an unreadable line: %s: %.80r", self._path, error, line)
                continue
            last = entry
            cases.update(changed)
            for root in entry.cases.keys() - changed.keys():
                cases.pop(root, None)
        return LogContents(cases, last, found=True)

    def append(self, entry: LogEntry) -> None:
        """Append an entry durably."""
        if self._file is None:
            raise RuntimeError("rewrite() must be called before the first append()")
        line = entry.line()
        done = 0
        while done < len(line):
            done += os.write(self._file, line[done:])
        os.fdatasync(self._file)
        self._size += len(line)

    @property
    def long(self) -> bool:
        """Whether the log should be rewritten."""
        return self._size > self._rewrite_at

    def rewrite(self, cases: Iterable[Case]) -> None:
        """Replace the log with one that holds the open cases. All its entries must have been applied."""
        self.close()
        kept = LogEntry(cases={case.root: case.to_dict() for case in cases}).line()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._path, kept)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = len(kept)
        self._rewrite_at = max(REWRITE_BYTES, 2 * len(kept))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


@dataclass(slots=True)
class Commands:
    """A log entry with its documents parsed."""

    entry: LogEntry
    tasks: list[Task] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @classmethod
    def of(cls, entry: LogEntry) -> Self:
        """Parse the documents of an entry that was read from the log."""
        return cls(
            entry,
            [Task.model_validate(document) for document in entry.tasks],
            [Message.model_validate(document) for document in entry.messages],
            [Event.model_validate(document) for document in entry.events],
        )


class Applier:
    """Applies log entries: writes the journal, publishes documents, settles events."""

    def __init__(self, services: Services, store_slots: StoreSlots, held: dict[str, Delivery]) -> None:
        self._bus = services.bus
        self._journal = services.journal
        self._home = services.home
        self._clock = services.clock
        self._lead = services.lead
        self._store_slots = store_slots
        self._held = held
        self.refused: dict[str, str] = {}  # documents that the bus refused, and why

    async def apply(self, commands: Commands, *, again: bool = False) -> list[str]:
        """Apply an entry; return the events that it ends and that are not held any more.

        ``again``: a former process may have applied parts of it.
        """
        entry = commands.entry
        if entry.slots:
            self._store_slots(entry.slots)
        # The journal comes first: it must say that a task was created before a general can start it.
        if not again:
            self._write_journal(entry.journal)
        elif await self._may_lack_journal(commands):
            self._write_journal(missing_entries(self._home.journal, self._clock(), entry.journal))
        await self._publish(commands.tasks)
        await self._publish(commands.events)
        await self._publish(commands.messages)
        for task_id, (general, reason, *note) in entry.cancels.items():  # an earlier version wrote no note
            request_cancel(self._home, general, task_id, reason, *note)
            await self._lead.save(requests_folder(self._home, general))
        for task_id, result in entry.landed.items():
            if result is not None:
                write_json(self._home.result(task_id), result)
                await self._lead.save(self._home.result(task_id))
            drop_landing(self._home, task_id)
        lost = await self._bus.settle(
            done=[(self._held.pop(event_id), out) for event_id, out in entry.done.items() if event_id in self._held]
        )
        return [delivery.event_id for delivery in lost]

    async def _publish(self, documents: list[D]) -> None:
        try:
            await put_documents(self._bus, documents)
        except InvalidEnvelope:
            for document in documents:  # one document that is too large must not stop the others
                try:
                    await put_documents(self._bus, [document])
                except InvalidEnvelope as error:
                    log.warning("the queue refused %s: %s", document.id, error)
                    self.refused[document.id] = str(error)

    async def _may_lack_journal(self, commands: Commands) -> bool:
        """Whether the journal may lack lines of an entry. A published task was in the journal before."""
        for task in commands.tasks:
            if await self._bus.find(task.id) is None:
                return True
        return not commands.tasks and any(event_id in self._held for event_id in commands.entry.done)

    def _write_journal(self, lines: Iterable[tuple[str, Mapping[str, Any], str]]) -> None:
        for name, data, actor in lines:
            try:
                self._journal.emit(name, actor, data)
            except JournalError as error:  # the king works on without a journal
                log.warning("%s could not be written to the journal: %s", name, error)
            if name == TaskCreated.spec.name:
                text = f"king created {data['event_type']} for {data['target_general']} priority={data['priority']}"
                append_task_log(self._home, str(data["task_id"]), self._clock(), text)
