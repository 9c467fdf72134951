"""An in-memory index of the documents of a queue, and the links between documents."""

from __future__ import annotations

import asyncio
import json
import os
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kingdom.base.times import epoch_seconds
from kingdom.court.models import subject_of, timestamp
from kingdom.court.queues import (
    EVENTS,
    MESSAGES,
    STATES,
    TASKS,
    StoredDocument,
    document_from_file,
    document_from_record,
    uses_files,
)
from kingdom.journal import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from kingdom.court.loop import Services


# Which documents belong together: an event, its tasks, their messages, the answers, and what was asked of them.


# The fields that name others, by stream; a dot leads into an object. Nothing else in a payload counts: it was written
# outside, and could name anything.
_LINK_FIELDS: Final = {
    EVENTS: ("payload.task_id",),
    TASKS: ("event_id", "payload.original_task_id", "payload.task_id"),
    MESSAGES: ("context.task_id", "context.event_id"),
}
_COMMAND_EVENT_SUFFIXES: Final = (".human_response", ".task_cancel", ".task_retry")
_JOURNAL_ID_FIELDS: Final = ("event_id", "task_id", "original_task_id", "msg_id", "soldier_id")


@dataclass(slots=True)
class RelatedRecords:
    """Everything that belongs to one id."""

    ids: set[str]
    documents: list[StoredDocument] = field(default_factory=list)
    journal: list[dict[str, Any]] = field(default_factory=list)  # lines, in the order of the file


def find_related(start: str, known: Sequence[tuple[StoredDocument, AbstractSet[str]]], journal: Path) -> RelatedRecords:
    """Follow every link from ``start``, in documents (``known``, with their links) and journal, to the last."""
    ids, before = {start}, 0
    lines: list[dict[str, Any]] = []
    while len(ids) != before:
        before = len(ids)
        _expand_ids(ids, known)
        lines = _journal_lines(journal, ids)
        for line in lines:
            ids |= {value for key in _JOURNAL_ID_FIELDS if isinstance(value := line["data"].get(key), str) and value}
    return RelatedRecords(ids, [stored for stored, links in known if stored.id in ids or links & ids], lines)


def links_of(stored: StoredDocument) -> AbstractSet[str]:
    """The ids a document names."""
    if stored.stream == EVENTS and not str(stored.document.get("type", "")).endswith(_COMMAND_EVENT_SUFFIXES):
        return set()
    found = (_value_at(stored.document, path) for path in _LINK_FIELDS[stored.stream])
    return {value for value in found if isinstance(value, str) and value}


def _expand_ids(ids: set[str], known: Sequence[tuple[StoredDocument, AbstractSet[str]]]) -> None:
    grown = True
    while grown:
        grown = False
        for stored, links in known:
            family = {stored.id, *links}
            if family & ids and not family <= ids:
                ids |= family
                grown = True


def _value_at(document: Any, path: str) -> Any:
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
                if isinstance(data, dict) and any(data.get(key) in ids for key in _JOURNAL_ID_FIELDS):
                    found.append(document)
    return found


# An index of the documents of one queue, in memory: for whoever lists and searches many of them, again and again.
#
# Where queues are files, each file is read once, when it is first seen in a directory; after that the directories alone
# are followed. A directory nothing entered or left is not even listed. Of a database, what changed lately is asked for,
# and from time to time everything: that is how it shows what was removed.


INVALID: Final = "invalid"
_FRESH_FACTOR: Final = 4  # a look at files counts for so many times as long as it took the processor,
_MAX_FRESH_SECONDS: Final = 1.0  # but not longer than this, in seconds
_DATABASE_FRESH_SECONDS: Final = (
    0.5,
    5.0,
)  # one at a database for so many times as long as it took, within these seconds
_OVERLAP_SECONDS: Final = (
    60.0  # seconds; what a transaction changed shows when it commits, with the time at which it began
)
_FULL_RELOAD_SECONDS: Final = 300.0  # seconds after which everything is asked for again
_MAX_INLINE_ENTRIES: Final = (
    20_000  # documents that are looked through in a few milliseconds: changing threads takes as long
)
_MTIME_SETTLE_SECONDS: Final = 1.0  # seconds; the time of a directory is coarse: a later change may not show in it
_MAX_SEARCH_CHARS: Final = 1000  # characters of a document that are searched
_FILTER_FIELDS: Final = ("status", "type", "target_general", "source", "priority")
_MAX_FIELD_CHARS: Final = 200  # characters of a field in a summary


@dataclass(slots=True)
class IndexEntry:
    """What is remembered of a document."""

    id: str
    state: str
    """The directory it lies in."""
    at: float
    """When it was made, in seconds."""
    fields: dict[str, Any]
    """Its own fields, without those that may be large, and ``subject``: what it is about."""
    words: str
    """What is searched, in lower case."""
    links: frozenset[str]
    path: Path | None
    inode: int = 0
    # What is asked for most, beside ``fields``: ten thousand dictionaries take ten times as long to look through.
    status: str = field(init=False)
    type: str = field(init=False)
    general: str = field(init=False)
    source: str = field(init=False)
    priority: str = field(init=False)

    def __post_init__(self) -> None:
        self.status, self.type, self.general, self.source, self.priority = (
            intern(str(self.fields.get(name))) for name in _FILTER_FIELDS
        )

    @property
    def key(self) -> tuple[float, str]:
        """Its place in the order, the newest having the greatest."""
        return self.at, self.id


@dataclass(frozen=True, slots=True)
class IndexPage:
    """One page of a list."""

    items: list[IndexEntry]
    total: int
    """How many there are on all pages."""
    more: bool


EntryFilter: TypeAlias = Callable[[list[IndexEntry]], list[IndexEntry]]
"""Of some documents, those that are wanted. Of whole lists, since a call for each of ten thousand would take longer."""


class DocumentIndex:
    """The documents of one queue. Used from one event loop; what takes time is done in a thread."""

    def __init__(self, services: Services, stream: str, *, share: float = _FRESH_FACTOR) -> None:
        self._services = services
        self.stream = stream
        self._share = share
        self._folder = services.home.queue / stream
        self._files: dict[str, dict[str, IndexEntry]] = {}  # by directory, then by name
        self._seen: dict[str, int] = {}  # the time of each directory when it was listed, if that was long ago enough
        self._newest: list[IndexEntry] = []
        self._valid: list[IndexEntry] = []
        self._by_id: dict[str, IndexEntry] = {}
        self._asked = self._whole_again = 0.0  # a database
        self._look_again = 0.0
        self._looking = asyncio.Lock()

    async def newest(self) -> Sequence[IndexEntry]:
        """All of them, the newest first."""
        await self._refresh()
        return self._newest

    async def get(self, document_id: str) -> IndexEntry | None:
        """The one of that id."""
        await self._refresh()
        return self._by_id.get(document_id)

    async def page(
        self, wanted: Sequence[EntryFilter] | None, limit: int, before: tuple[float, str] | None = None
    ) -> IndexPage:
        """Up to ``limit`` that are ``wanted`` (None: all that are valid), the newest first, older than ``before``."""
        await self._refresh()
        if wanted is None:
            return _page(self._valid, (), limit, before)
        if len(self._newest) <= _MAX_INLINE_ENTRIES:
            return _page(self._newest, wanted, limit, before)
        return await asyncio.to_thread(_page, self._newest, wanted, limit, before)

    async def _refresh(self) -> None:
        if time.monotonic() < self._look_again:
            return
        async with self._looking:
            if time.monotonic() < self._look_again:  # somebody else looked meanwhile
                return
            if uses_files(self._services.bus):
                fresh = min(self._share * await asyncio.to_thread(self._look), _MAX_FRESH_SECONDS)
            else:
                least, most = _DATABASE_FRESH_SECONDS
                fresh = min(max(self._share * await self._ask(), least), most)
            self._look_again = time.monotonic() + fresh

    async def _ask(self) -> float:
        """Look at a database; returns the seconds that took."""
        now = time.monotonic()
        whole = now >= self._whole_again
        within = None if whole else now - self._asked + _OVERLAP_SECONDS
        known, changed = ({}, True) if whole else (self._files[""], False)
        async for record in self._services.bus.records(self.stream, within=within):
            stored = document_from_record(record)
            known[stored.id] = _index_entry(stored, 0)
            changed = True
        self._files[""] = known
        self._asked = now
        if whole:
            self._whole_again = now + _FULL_RELOAD_SECONDS
        if changed:
            self._sort()
        return time.monotonic() - now

    def _look(self) -> float:
        """Look at the files; returns the seconds that took the processor."""
        began = time.thread_time()
        if self._scan():
            self._sort()
        return time.thread_time() - began

    def _scan(self) -> bool:
        changed = False
        for state in dict.fromkeys((*STATES[self.stream].values(), INVALID)):
            folder = self._folder / state
            try:
                time_of_folder = folder.stat().st_mtime_ns
                if self._seen.get(state) == time_of_folder:
                    continue
                names = {
                    entry.name: entry.inode() for entry in os.scandir(folder) if _is_document(entry.name, state=state)
                }
            except FileNotFoundError:
                names, time_of_folder = {}, 0
            changed |= self._compare(state, names)
            settled = time_of_folder / 1e9 < time.time() - _MTIME_SETTLE_SECONDS
            self._seen[state] = time_of_folder if settled else -1
        return changed

    def _compare(self, state: str, names: dict[str, int]) -> bool:
        known = self._files.setdefault(state, {})
        gone = known.keys() - names.keys()
        new = [name for name, inode in names.items() if name not in known or known[name].inode != inode]
        for name in gone:
            del known[name]
        for name in new:
            stored = document_from_file(self._folder / state / name, self.stream, state)
            if stored is not None:
                known[name] = _index_entry(stored, names[name])
        return bool(gone or new)

    def _sort(self) -> None:
        # While a document changes its state it may be seen in both directories: the later state counts.
        by_id = {entry.id: entry for entries in self._files.values() for entry in entries.values()}
        self._newest = sorted(by_id.values(), key=lambda entry: entry.key, reverse=True)
        self._valid = valid_entries(self._newest)
        self._by_id = by_id


def stub_document(entry: IndexEntry, stream: str) -> StoredDocument:
    """An entry as the document it stands for, with nothing but its id and links: enough to find a family."""
    return StoredDocument(stream, entry.state, {"id": entry.id}, entry.path)


def text_filters(text: str) -> list[EntryFilter]:
    """Those that have all the words of a text somewhere."""
    return [_word_filter(word) for word in text.casefold().split()]


def valid_entries(entries: list[IndexEntry]) -> list[IndexEntry]:
    """Those that were not put aside."""
    return [entry for entry in entries if entry.state != INVALID]


def _word_filter(word: str) -> EntryFilter:
    return lambda entries: [entry for entry in entries if word in entry.words]


def _page(
    newest: list[IndexEntry], wanted: Sequence[EntryFilter], limit: int, before: tuple[float, str] | None
) -> IndexPage:
    found = newest
    for narrow in wanted:
        found = narrow(found)
    begin = 0 if before is None else bisect_left(found, True, key=lambda entry: entry.key < before)
    return IndexPage(found[begin : begin + limit], len(found), begin + limit < len(found))


def _is_document(name: str, *, state: str) -> bool:
    if name.startswith(".") or name.endswith(".reason"):
        return False
    return state == INVALID or name.endswith(".json")


def _index_entry(stored: StoredDocument, inode: int) -> IndexEntry:
    document = stored.document
    at = epoch_seconds(document.get("created_at"))
    if at is None:
        at = _modified(stored.path)
    fields: dict[str, Any] = {
        name: value[:_MAX_FIELD_CHARS] if isinstance(value, str) else value
        for name, value in document.items()
        if value is None or isinstance(value, str | int | float)
    }
    subject = subject_of(document)
    fields |= {
        "id": stored.id,
        "status": stored.state if stored.state == INVALID else fields.get("status"),
        "created_at": document.get("created_at") or timestamp(at),
        "subject": subject,
        "title": _title(document),
    }
    # The fields first: however long a payload is, they are found.
    text = f"{' '.join(str(value) for value in fields.values())} {_text(document)}"
    words = text[:_MAX_SEARCH_CHARS].casefold()
    return IndexEntry(stored.id, stored.state, at, fields, words, frozenset(links_of(stored)), stored.path, inode)


def _title(document: dict[str, Any]) -> str | None:
    """What a person would call it, as far as the document says."""
    payload = document.get("payload")
    found = payload.get("title") if isinstance(payload, dict) else document.get("content")
    return found[:_MAX_FIELD_CHARS] if isinstance(found, str) else None


def _text(document: dict[str, Any]) -> str:
    large: Iterable[Any] = (value for value in document.values() if isinstance(value, dict | list))
    return " ".join(json.dumps(value, ensure_ascii=False)[:_MAX_SEARCH_CHARS] for value in large)


def _modified(path: Path | None) -> float:
    try:
        return 0.0 if path is None else path.stat().st_mtime
    except OSError:
        return 0.0
