"""The king's write-ahead log, and the code that applies its entries."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from kingdom.base.files import write_atomic
from kingdom.bus.errors import InvalidEnvelope
from kingdom.court.activity import missing_entries
from kingdom.court.king.cases import Case
from kingdom.court.models import Event, Message, Task
from kingdom.court.queues import put_documents
from kingdom.journal import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kingdom.bus import Delivery
    from kingdom.court.king.schedules import Schedules
    from kingdom.court.loop import Services


# The king's book: what he is about to do, written down before he does it.
#
# Each entry is one line, durable before anything of it happens: the cases as they will be, the tasks, messages and
# events to publish, the events to complete, the slots to mark. All of that may be repeated without harm, because every
# document has its id already and the bus takes an id once. So after a crash the last entry is carried out again, and
# nothing needs to be guessed: entries before it were finished, or it would not be there.
#
# ``state/king/.book`` holds the cases in hand and the entries since; it is written anew when it has grown long.


LOG_FILE: Final = ".book"
REWRITE_BYTES: Final = 8 << 20  # it is written anew when it is longer than this and than twice what was kept
log = logging.getLogger("kingdom.court.king")


@dataclass(slots=True)
class LogEntry:
    """What belongs together: it is done as a whole, if not now then after a restart."""

    cases: dict[str, dict[str, Any] | None] = field(default_factory=dict)  # None: closed
    tasks: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    done: dict[str, str | None] = field(default_factory=dict)  # events to complete, with their outcome
    slots: dict[str, dict[str, Any]] = field(default_factory=dict)  # of schedules
    journal: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def line(self) -> bytes:
        """Its line in the book."""
        # ASCII: half a surrogate pair in a name from outside must not keep the entry from being written.
        filled = {name: value for name in self.__slots__ if (value := getattr(self, name))}
        return json.dumps(filled, separators=(",", ":")).encode() + b"\n"


@dataclass(slots=True)
class LogContents:
    """What the book says."""

    cases: dict[str, Case]
    last: LogEntry | None  # to be carried out again
    found: bool  # False: there is no book, so nothing is known


class WriteAheadLog:
    """The file. Only the king writes it, and reads it when he starts."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG_FILE
        self._file: int | None = None
        self._size = 0
        self._rewrite_at = REWRITE_BYTES

    def open(self) -> LogContents:
        """Read it. A last line without its end was never carried out and counts for nothing."""
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
                changed = {root: Case.from_dict(case) for root, case in entry.cases.items() if case is not None}
            except (ValueError, TypeError, AttributeError) as error:
                log.warning("%s: a line makes no sense and is left out: %s: %.80r", self._path, error, line)
                continue
            last = entry
            cases.update(changed)
            for root in entry.cases.keys() - changed.keys():
                cases.pop(root, None)
        return LogContents(cases, last, found=True)

    def append(self, entry: LogEntry) -> None:
        """Write an entry down, durably."""
        if self._file is None:
            raise RuntimeError("the book must be written anew before the first entry")
        line = entry.line()
        done = 0
        while done < len(line):
            done += os.write(self._file, line[done:])
        os.fdatasync(self._file)
        self._size += len(line)

    @property
    def long(self) -> bool:
        """Whether it should be written anew."""
        return self._size > self._rewrite_at

    def rewrite(self, cases: Iterable[Case]) -> None:
        """Begin a new one with the cases in hand. Everything else in it must have been carried out."""
        self.close()
        kept = LogEntry(cases={case.root: case.to_dict() for case in cases}).line()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._path, kept)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = len(kept)
        self._rewrite_at = max(REWRITE_BYTES, 2 * len(kept))

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


# Doing what an entry of the book says. Every part may be done again: the bus takes each id once.

D = TypeVar("D", Task, Message, Event)


@dataclass(slots=True)
class Commands:
    """An entry, with its documents as what they are."""

    entry: LogEntry
    tasks: list[Task] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @classmethod
    def of(cls, entry: LogEntry) -> Self:
        """The orders of an entry that was read from the book."""
        return cls(
            entry,
            [Task.model_validate(document) for document in entry.tasks],
            [Message.model_validate(document) for document in entry.messages],
            [Event.model_validate(document) for document in entry.events],
        )


class Applier:
    """Carries out orders."""

    def __init__(self, services: Services, schedules: Schedules, held: dict[str, Delivery]) -> None:
        self._bus = services.bus
        self._journal = services.journal
        self._journal_path = services.home.journal
        self._schedules = schedules
        self._held = held
        self.refused: dict[str, str] = {}  # tasks the queue does not take, and why

    async def apply(self, commands: Commands, *, again: bool = False) -> None:
        """Do all of it. ``again``: perhaps some of it was done before."""
        entry = commands.entry
        if entry.slots:
            self._schedules.store(entry.slots)
        # First: that a task was made is written down before anybody can start it.
        if not again:
            self._write_journal(entry.journal)
        elif await self._may_lack_journal(commands):
            self._write_journal(missing_entries(self._journal_path, entry.journal))
        await self._publish(commands.tasks)
        await self._publish(commands.events)
        await self._publish(commands.messages)
        await self._bus.settle(
            done=[(self._held.pop(event_id), out) for event_id, out in entry.done.items() if event_id in self._held]
        )

    async def _publish(self, documents: list[D]) -> None:
        try:
            await put_documents(self._bus, documents)
        except InvalidEnvelope:
            for document in documents:  # one that is too large must not stop the others
                try:
                    await put_documents(self._bus, [document])
                except InvalidEnvelope as error:
                    log.warning("%s is not taken by its queue: %s", document.id, error)
                    self.refused[document.id] = str(error)

    async def _may_lack_journal(self, commands: Commands) -> bool:
        """Whether the journal may lack the lines of an entry: a task that is there was told of before."""
        for task in commands.tasks:
            if await self._bus.find(task.id) is None:
                return True
        return not commands.tasks and any(event_id in self._held for event_id in commands.entry.done)

    def _write_journal(self, lines: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        for name, data in lines:
            try:
                self._journal.emit(name, "king", data)
            except JournalError as error:  # work goes on without its diary
                log.warning("the journal does not take %s: %s", name, error)
