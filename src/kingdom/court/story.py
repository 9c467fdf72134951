"""The whole story of an event, a task or a message, in time order, from every file that knows of it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.costs import ledger_lines
from kingdom.court.document_index import stored_of
from kingdom.court.documents import all_documents, find_document, of_file
from kingdom.court.files import read_json
from kingdom.court.king.times import seconds_of
from kingdom.court.models import timestamp
from kingdom.court.queues import EVENTS, MESSAGES, TASKS
from kingdom.court.relatives import find_family, links_of
from kingdom.court.soldiers import Roster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from kingdom.court.document_index import DocumentIndex
    from kingdom.court.documents import Stored
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.relatives import Family
    from kingdom.court.soldiers import Soldier

_TASK_ID: Final = re.compile(r"task-\d{8}-\d{3,}")
_SHORT: Final = 300  # characters of a text in a story: the file it names has the rest
# Which journal line comes right after which document: the journal has whole seconds only, the documents thousandths.
_AFTER: Final = {
    "event.detected": "event_id",
    "task.created": "task_id",
    "message.sent": "msg_id",
    "soldier.completed": "result:task_id",
    "task.completed": "result:task_id",
    "task.failed": "result:task_id",
    "task.needs_human": "result:task_id",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened."""

    at: float
    who: str
    what: str
    where: str  # the file that says so, below the home

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {"ts": timestamp(self.at), "who": self.who, "what": self.what, "where": self.where}


async def tell(
    services: Services, start: str, indexes: Sequence[DocumentIndex] = (), roster: Roster | None = None
) -> list[Line]:
    """The story around an id; empty when no file knows it.

    ``indexes`` of all queues and a ``roster``, where somebody keeps them, spare reading every file there is.
    """
    known: list[tuple[Stored, AbstractSet[str]]]
    if indexes:
        known = [(stored_of(entry, index.stream), entry.links) for index in indexes for entry in await index.newest()]
    else:
        known = [(stored, links_of(stored)) for stored in await all_documents(services)]
    family = await asyncio.to_thread(find_family, start, known, services.home.journal)
    if indexes:
        family.documents = [whole for one in family.documents if (whole := await _whole(services, one)) is not None]
    if not family.documents and not family.journal:
        return []
    return await asyncio.to_thread(Story(services.home, family, roster or Roster(services.home)).lines)


async def _whole(services: Services, known: Stored) -> Stored | None:
    """A document of which only the id was known; None when it is gone."""
    if known.path is not None and (found := of_file(known.path, known.stream, known.state)) is not None:
        return found
    return await find_document(services, known.id)


class Story:
    """Gathers the lines of one family."""

    def __init__(self, home: Home, family: Family, roster: Roster) -> None:
        self._home = home
        self._family = family
        self._roster = roster
        self._moments: dict[str, float] = {}  # when a document was made, or a result written

    def lines(self) -> list[Line]:
        """All lines, the oldest first; what cannot be told apart stays in the order of the journal."""
        found = [line for stored in self._family.documents for line in self._of_document(stored)]
        for one in sorted(self._family.ids):
            if _TASK_ID.fullmatch(one):
                found += self._of_task(one)
                for soldier in self._roster.of_task(one):
                    found += self._of_soldier(soldier)
        found += self._of_ledger()
        found += self._of_journal()
        return sorted(found, key=lambda line: line.at)

    def _of_document(self, stored: Stored) -> Iterator[Line]:
        document = stored.document
        at = seconds_of(document.get("created_at"))
        where = self._name(stored.path) if stored.path else f"queue {stored.stream}"
        if at is None:
            at = _modified(stored.path)
        if at is None:
            return
        self._moments[stored.id] = at
        say = {EVENTS: _event_words, TASKS: _task_words, MESSAGES: _message_words}[stored.stream]
        state = str(document.get("status") or stored.state)
        yield Line(at, stored.stream[:-1], f"{stored.id} {say(document)}; now {state}", where)
        if stored.problem:
            yield Line(
                _modified(stored.path) or at, stored.stream[:-1], f"{stored.id}: {_short(stored.problem)}", where
            )

    def _of_task(self, task_id: str) -> Iterator[Line]:
        path = self._home.result(task_id)
        result = read_json(path)
        if isinstance(result, dict):
            at = seconds_of(result.get("ended_at")) or _modified(path) or 0.0
            self._moments[f"result:{task_id}"] = at
            yield Line(at, str(result.get("general", "")), _result_words(result), self._name(path))
        for path, what in (
            (self._home.prompt(task_id), "the prompt was written"),
            (self._home.raw_result(task_id), "the soldier left its result"),
            (self._home.session_id(task_id), "the conversation was noted"),
        ):
            if (written := _modified(path)) is not None:
                yield Line(written, "files", f"{task_id}: {what}", self._name(path))

    def _of_soldier(self, soldier: Soldier) -> Iterator[Line]:
        if soldier.started_at is not None:
            words = f"{soldier.id} was started for {soldier.task_id} with {soldier.order.engine} (pid {soldier.pid})"
            yield Line(soldier.started_at, "soldier", words, self._name(soldier.folder))
        for path in (soldier.transcript, soldier.errors):
            with contextlib.suppress(OSError):
                found = path.stat()
                if found.st_size:
                    words = f"{soldier.id} wrote its last line here ({found.st_size:,} bytes)"
                    yield Line(found.st_mtime, "soldier", words, self._name(path))

    def _of_ledger(self) -> Iterator[Line]:
        tasks = {one for one in self._family.ids if one.startswith("task-")}
        for path, line in ledger_lines(self._home.ledger, tasks):
            yield Line(seconds_of(line.get("ts")) or 0.0, "ledger", _ledger_words(line), self._name(path))

    def _of_journal(self) -> Iterator[Line]:
        """The order of the file holds; each line stands after the document it speaks of."""
        before = 0.0
        for line in self._family.journal:
            second = seconds_of(line.get("ts"))
            if second is None:
                continue
            kind, data = str(line.get("type")), line["data"]
            prefix, _, key = _AFTER.get(kind, "").rpartition(":")
            made = self._moments.get(f"{prefix}:{data.get(key)}" if prefix else str(data.get(key)), second)
            before = max(before, min(max(second, made), second + 0.999))
            words = " ".join(f"{name}={_short(value)}" for name, value in data.items() if value not in (None, ""))
            yield Line(before, str(line.get("actor")), f"{kind}: {words}", self._name(self._home.journal))

    def _name(self, path: Path) -> str:
        with contextlib.suppress(ValueError):
            return str(path.relative_to(self._home.root))
        return str(path)


def _event_words(document: dict[str, Any]) -> str:
    where = f" in {document['repo']}" if document.get("repo") else ""
    return _short(f"{document.get('type')} from {document.get('source')}{where} arrived")


def _task_words(document: dict[str, Any]) -> str:
    return _short(f"{document.get('type')} for {document.get('target_general')} because of {document.get('event_id')}")


def _message_words(document: dict[str, Any]) -> str:
    return _short(f"{document.get('type')}: {document.get('content')}")


def _result_words(result: dict[str, Any]) -> str:
    said = result.get("error") or result.get("summary") or ""
    question = result.get("question")
    if isinstance(question, dict) and question.get("text"):
        said = question["text"]
    return f"{result.get('task_id')} ended as {result.get('status')}: {_short(said)}"


def _ledger_words(line: dict[str, Any]) -> str:
    tokens = line.get("tokens")
    total = tokens.get("total", 0) if isinstance(tokens, dict) else 0
    cost = f", {line['cost_usd']} USD" if line.get("cost_usd") is not None else ""
    return f"{line.get('run_id')} used {total} tokens{cost}"


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def _modified(path: Path | None) -> float | None:
    if path is None:
        return None
    try:
        return path.stat().st_mtime
    except OSError:
        return None
