"""The history of an event, a task or a message: everything that the files of a home say about it, in time order.

That of an issue, pull request or ticket is the history of all tasks about it, and of those that went on with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import read_json
from kingdom.base.times import epoch_seconds
from kingdom.court.budget import ledger_lines
from kingdom.court.document_index import expand_ids, full_document, links_of, stub_document
from kingdom.court.models import FOLLOW_UP_FIELD, subject_of, timestamp
from kingdom.court.pull_requests import OpenedPullRequest
from kingdom.court.questions import NEEDS_HUMAN, answers_in
from kingdom.court.queues import EVENTS, MESSAGES, TASKS, all_documents
from kingdom.court.soldiers import SoldierIndex
from kingdom.journal import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from kingdom.court.document_index import DocumentIndex
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.queues import StoredDocument
    from kingdom.court.soldiers import Soldier

_TASK_ID: Final = re.compile(r"task-\d{8}-\d{3,}")
# Of an issue or a pull request on GitHub, or of a ticket in Jira.
_ADDRESS: Final = re.compile(r"https?://[^/]+/(?:([^/]+/[^/]+)/(?:pull|issues)/(\d+)|browse/([A-Za-z0-9_]+-\d+))\b")
_JOURNAL_ID_FIELDS: Final = ("event_id", "task_id", "original_task_id", "msg_id", "soldier_id", "subject")
_MAX_TEXT_CHARS: Final = 300  # of a text in a line; the file that the line names has the rest
# Which document a journal line follows. Journal times are whole seconds, document times have milliseconds.
_ORDERED_AFTER: Final = {
    "event.detected": "event_id",
    "task.created": "task_id",
    "message.sent": "msg_id",
    "soldier.completed": "result:task_id",
    "soldier.ended": "result:task_id",
    "task.completed": "result:task_id",
    "task.failed": "result:task_id",
    "task.cancelled": "result:task_id",
    "task.needs_human": "result:task_id",
}


@dataclass(frozen=True, slots=True)
class HistoryLine:
    at: float
    who: str
    what: str
    where: str  # the file with the information, relative to the home
    whole: bool = False  # the source has whole seconds only

    def document(self) -> dict[str, Any]:
        ts = timestamp(self.at)
        return {"ts": f"{ts[:19]}Z" if self.whole else ts, "who": self.who, "what": self.what, "where": self.where}


async def read_history(
    services: Services, start: str, indexes: Sequence[DocumentIndex] = (), roster: SoldierIndex | None = None
) -> list[HistoryLine]:
    """Return the history of an id, or of a subject such as ``SHOP-7`` or its address; empty if no file mentions it.

    With ``indexes`` of all queues and a ``roster``, not every file has to be read, and only ids are known.
    """
    starts = {start}
    known: list[tuple[StoredDocument, AbstractSet[str]]]
    if indexes:
        known = [
            (stub_document(entry, index.stream), entry.links) for index in indexes for entry in await index.newest()
        ]
    else:
        found = await all_documents(services)
        known, starts = [(stored, links_of(stored)) for stored in found], _ids_about(start, found) or starts
    family = await asyncio.to_thread(_find_related, starts, known, services.home.journal)
    if indexes:
        family.documents = [
            whole for one in family.documents if (whole := await full_document(services, one)) is not None
        ]
    if not family.documents and not family.journal:
        return []
    return await asyncio.to_thread(History(services.home, family, roster or SoldierIndex(services.home)).lines)


@dataclass(slots=True)
class _RelatedRecords:
    """The documents and journal lines that belong to one id."""

    ids: set[str]
    documents: list[StoredDocument] = field(default_factory=list)
    journal: list[dict[str, Any]] = field(default_factory=list)  # lines, in the order of the file


def _ids_about(subject: str, documents: Sequence[StoredDocument]) -> set[str]:
    """Return the ids of events and tasks about a subject or its address, and of tasks in the workplaces of these."""
    found = _ADDRESS.match(subject)
    named = subject if found is None else found[3] or f"{found[1]}#{found[2]}"
    wanted = named.casefold()
    about = [one for one in documents if (subject_of(one.document) or "").casefold() == wanted]
    works = {_work_id(one) for one in about if one.stream == TASKS}
    return {one.id for one in about} | {one.id for one in documents if one.stream == TASKS and _work_id(one) in works}


def _work_id(task: StoredDocument) -> str:
    """Return the task whose workplace a task uses: itself, or the one that opened the pull request it goes on with."""
    opened = OpenedPullRequest.from_document(task.document.get(FOLLOW_UP_FIELD))
    return task.id if opened is None else opened.work_id


def _find_related(
    starts: AbstractSet[str], known: Sequence[tuple[StoredDocument, AbstractSet[str]]], journal: Path
) -> _RelatedRecords:
    """Follow all links from ``starts``, in documents (``known``, with their links) and in the journal."""
    ids, before = set(starts), 0
    lines: list[dict[str, Any]] = []
    while len(ids) != before:
        before = len(ids)
        expand_ids(ids, known)
        lines = _journal_lines(journal, ids)
        for line in lines:
            ids |= {value for key in _JOURNAL_ID_FIELDS if isinstance(value := line["data"].get(key), str) and value}
    return _RelatedRecords(ids, [stored for stored, links in known if stored.id in ids or links & ids], lines)


def _journal_lines(path: Path, ids: set[str]) -> list[dict[str, Any]]:
    """Return the journal lines that name one of the ids, oldest first, including rotated files."""
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
                if isinstance(data, dict) and any(data.get(key) in ids for key in _JOURNAL_ID_FIELDS):
                    found.append(document)
    return found


class History:
    """Builds the history from related records."""

    def __init__(self, home: Home, family: _RelatedRecords, roster: SoldierIndex) -> None:
        self._home = home
        self._family = family
        self._roster = roster
        self._moments: dict[str, float] = {}  # creation time of each document, and of each result
        self._answers = answers_in(family.documents)

    def lines(self) -> list[HistoryLine]:
        """Return all lines, the oldest first; lines of the same time stay in the order of the journal."""
        found = [line for stored in self._family.documents for line in self._of_document(stored)]
        for one in sorted(self._family.ids):
            if _TASK_ID.fullmatch(one):
                found += self._of_task(one)
                for soldier in self._roster.of_task(one):
                    found += self._of_soldier(soldier)
        found += self._of_ledger()
        found += self._of_journal()
        return sorted(found, key=lambda line: line.at)

    def _of_document(self, stored: StoredDocument) -> Iterator[HistoryLine]:
        document = stored.document
        at = epoch_seconds(document.get("created_at"))
        where = self._name(stored.path) if stored.path else f"queue {stored.stream}"
        if at is None:
            at = _modified(stored.path)
        if at is None:
            return
        self._moments[stored.id] = at
        say = {EVENTS: _describe_event, TASKS: _describe_task, MESSAGES: _describe_message}[stored.stream]
        state = str(document.get("status") or stored.state)
        if state == NEEDS_HUMAN and (answer := self._answers.get(stored.id)) is not None:
            state = f"answered: {_shorten(answer)}"
        yield HistoryLine(at, stored.stream[:-1], f"{stored.id} {say(document)}; now {state}", where)
        if stored.problem:
            yield HistoryLine(
                _modified(stored.path) or at, stored.stream[:-1], f"{stored.id}: {_shorten(stored.problem)}", where
            )

    def _of_task(self, task_id: str) -> Iterator[HistoryLine]:
        path = self._home.result(task_id)
        result = read_json(path)
        if isinstance(result, dict):
            at = epoch_seconds(result.get("ended_at")) or _modified(path) or 0.0
            self._moments[f"result:{task_id}"] = at
            yield HistoryLine(at, str(result.get("general", "")), _describe_result(result), self._name(path))
        for path, what in (
            (self._home.prompt(task_id), "the prompt was written"),
            (self._home.raw_result(task_id), "the soldier left its result"),
            (self._home.session_id(task_id), "the conversation was noted"),
        ):
            if (written := _modified(path)) is not None:
                yield HistoryLine(written, "files", f"{task_id}: {what}", self._name(path))

    def _of_soldier(self, soldier: Soldier) -> Iterator[HistoryLine]:
        if soldier.started_at is not None:
            words = f"{soldier.id} was started for {soldier.task_id} with {soldier.order.engine} (pid {soldier.pid})"
            yield HistoryLine(soldier.started_at, "soldier", words, self._name(soldier.folder))
        for path in (soldier.transcript, soldier.errors):
            with contextlib.suppress(OSError):
                found = path.stat()
                if found.st_size:
                    words = f"{soldier.id} wrote its last line here ({found.st_size:,} bytes)"
                    yield HistoryLine(found.st_mtime, "soldier", words, self._name(path))

    def _of_ledger(self) -> Iterator[HistoryLine]:
        tasks = {one for one in self._family.ids if one.startswith("task-")}
        for path, line in ledger_lines(self._home.ledger, tasks):
            yield HistoryLine(
                epoch_seconds(line.get("ts")) or 0.0, "ledger", _describe_ledger_line(line), self._name(path)
            )

    def _of_journal(self) -> Iterator[HistoryLine]:
        """Yield the journal lines in the order of the file, each after the document it mentions."""
        before = 0.0
        for line in self._family.journal:
            second = epoch_seconds(line.get("ts"))
            if second is None:
                continue
            kind, data = str(line.get("type")), line["data"]
            prefix, _, key = _ORDERED_AFTER.get(kind, "").rpartition(":")
            made = self._moments.get(f"{prefix}:{data.get(key)}" if prefix else str(data.get(key)), second)
            before = max(before, min(max(second, made), second + 0.999))
            words = " ".join(f"{name}={_shorten(value)}" for name, value in data.items() if value not in (None, ""))
            yield HistoryLine(
                before, str(line.get("actor")), f"{kind}: {words}", self._name(self._home.journal), whole=True
            )

    def _name(self, path: Path) -> str:
        with contextlib.suppress(ValueError):
            return str(path.relative_to(self._home.root))
        return str(path)


def _describe_event(document: dict[str, Any]) -> str:
    where = f" in {document['repo']}" if document.get("repo") else ""
    return _shorten(f"{document.get('type')} from {document.get('source')}{where} arrived")


def _describe_task(document: dict[str, Any]) -> str:
    return _shorten(
        f"{document.get('type')} for {document.get('target_general')} because of {document.get('event_id')}"
    )


def _describe_message(document: dict[str, Any]) -> str:
    return _shorten(f"{document.get('type')}: {document.get('content')}")


def _describe_result(result: dict[str, Any]) -> str:
    said = result.get("error") or result.get("summary") or ""
    question = result.get("question")
    if isinstance(question, dict) and question.get("text"):
        said = question["text"]
    return f"{result.get('task_id')} ended as {result.get('status')}: {_shorten(said)}"


def _describe_ledger_line(line: dict[str, Any]) -> str:
    tokens = line.get("tokens")
    total = tokens.get("total", 0) if isinstance(tokens, dict) else 0
    spent = line.get("cost_usd")
    cost = f", ${spent:.4f}" if isinstance(spent, (int, float)) else ""
    return f"{line.get('run_id')} used {total} tokens{cost}"


def _shorten(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _MAX_TEXT_CHARS else text[: _MAX_TEXT_CHARS - 1] + "…"


def _modified(path: Path | None) -> float | None:
    if path is None:
        return None
    try:
        return path.stat().st_mtime
    except OSError:
        return None
