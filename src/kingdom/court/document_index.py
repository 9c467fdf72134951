"""An in-memory index of the documents of a queue, for lists and searches, and the links between documents.

For queues on files, each file is read once, when it first appears in a directory; after that only the directories are
listed, and a directory without changes is not listed either. From a database, recent changes are fetched, and every few
minutes all documents, to notice what was removed.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kingdom.base.times import epoch_seconds
from kingdom.court.document_order import EntryPosition, SortOrder, first_after, sort_entries
from kingdom.court.models import FOLLOW_UP_FIELD, RESUME_TYPE, continued_task, subject_of, timestamp
from kingdom.court.queues import (
    EVENTS,
    MESSAGES,
    STATES,
    TASKS,
    StoredDocument,
    document_from_file,
    document_from_record,
    find_document,
    uses_files,
)
from kingdom.court.request_threads import SlackThread
from kingdom.court.text_index import TextIndex, search_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from kingdom.court.loop import Services


# The fields that link to other documents, by stream; a dot leads into an object. Other fields of a payload are ignored:
# it comes from outside and could name any id.
_LINK_FIELDS: Final = {
    EVENTS: ("payload.task_id",),
    TASKS: ("event_id", "payload.original_task_id", "payload.task_id"),
    MESSAGES: ("context.task_id", "context.event_id"),
}
COMMAND_EVENT_SUFFIXES: Final = (".human_response", ".task_cancel", ".task_retry")


def links_of(stored: StoredDocument) -> AbstractSet[str]:
    """Return the ids that a document links to."""
    if stored.stream == EVENTS and not str(stored.document.get("type", "")).endswith(COMMAND_EVENT_SUFFIXES):
        return set()
    found = (_value_at(stored.document, path) for path in _LINK_FIELDS[stored.stream])
    return {value for value in found if isinstance(value, str) and value}


def expand_ids(ids: set[str], known: Sequence[tuple[StoredDocument, AbstractSet[str]]]) -> None:
    """Add the ids of all documents that are linked to one of these ids, over any number of links."""
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


INVALID: Final = "invalid"
# A refresh stays fresh for this many times its own duration: for files its CPU time, up to a maximum; for a database
# its elapsed time, between two bounds.
_FRESH_FACTOR: Final = 4
_MAX_FRESH_SECONDS: Final = 1.0
_DATABASE_FRESH_SECONDS: Final = (0.5, 5.0)
_OVERLAP_SECONDS: Final = 60.0  # a change becomes visible at its commit, with the time at which its transaction began
_FULL_RELOAD_SECONDS: Final = 300.0
_MAX_INLINE_ENTRIES: Final = 20_000  # filtered within a few milliseconds; switching to a thread takes as long
_MTIME_SETTLE_SECONDS: Final = 1.0  # directory times are coarse: a younger one may not show the next change
_MAX_SEARCH_CHARS: Final = 1000  # of each document
_MAX_OLD_TEXTS: Final = 4  # times the entries; then their texts are indexed again, without what changed since
_FILTER_FIELDS: Final = ("status", "type", "target_general", "source", "priority")
_MAX_FIELD_CHARS: Final = 200  # of a field in a summary


@dataclass(slots=True)
class IndexEntry:
    """The indexed part of a document."""

    id: str
    state: str
    """The directory of the document."""
    at: float
    """The creation time in epoch seconds."""
    fields: dict[str, Any]
    """Its scalar fields, plus ``subject``, ``title``, and ``original_task_id`` of a task that goes on."""
    words: str
    """The searchable text, in lower case."""
    links: frozenset[str]
    path: Path | None
    inode: int = 0
    # Copies of the most filtered fields: filtering attributes is ten times faster than looking into dictionaries.
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
        """The sort key; the newest entry has the greatest."""
        return self.at, self.id


@dataclass(frozen=True, slots=True)
class IndexPage:
    """One page of a list."""

    items: list[IndexEntry]
    total: int
    """The number of entries on all pages."""
    more: bool


EntryFilter: TypeAlias = Callable[[list[IndexEntry]], list[IndexEntry]]
"""Keeps the matching entries. It takes a whole list, because a call for each of ten thousand entries is slower."""


class DocumentIndex:
    """The documents of one queue. Used from one event loop; slow work runs in a thread."""

    def __init__(self, services: Services, stream: str, *, fresh_factor: float = _FRESH_FACTOR) -> None:
        self._services = services
        self.stream = stream
        self._fresh_factor = fresh_factor
        self._folder = services.home.queue / stream
        self._files: dict[str, dict[str, IndexEntry]] = {}  # by directory, then by name
        self._seen: dict[str, int] = {}  # mtime of each directory when it was listed, once it has settled; else -1
        self._newest: list[IndexEntry] = []
        self._valid: list[IndexEntry] = []
        self._by_id: dict[str, IndexEntry] = {}
        # The entries in other orders, and which entries they were made of: a hundred thousand take 100 ms to sort.
        self._orders: dict[tuple[bool, SortOrder], tuple[list[IndexEntry], list[IndexEntry]]] = {}
        self._linked: tuple[list[IndexEntry], dict[str, list[IndexEntry]]] | None = None  # made of which entries
        self._texts: TextIndex | None = None  # made when many entries are searched for the first time
        self._indexing: asyncio.Task[None] | None = None
        self._queried_at = self._reload_at = 0.0  # a database
        self._began_at = self._refresh_at = 0.0
        self._refreshing = asyncio.Lock()

    async def newest(self) -> Sequence[IndexEntry]:
        """Return all entries, the newest first."""
        await self._refresh()
        return self._newest

    async def get(self, document_id: str) -> IndexEntry | None:
        """Return the entry with this id, if there is one."""
        await self._refresh()
        return self._by_id.get(document_id)

    async def linking_to(self, ids: Iterable[str]) -> list[IndexEntry]:
        """Return the entries that link to one of these ids, the newest first."""
        await self._refresh()
        if self._linked is None or self._linked[0] is not self._newest:
            newest = self._newest
            self._linked = newest, await asyncio.to_thread(_by_link, newest)
        by_link = self._linked[1]
        found = {entry.id: entry for one in ids for entry in by_link.get(one, ())}
        return sorted(found.values(), key=lambda entry: entry.key, reverse=True)

    async def page(
        self,
        wanted: Sequence[EntryFilter] | None,
        limit: int,
        after: EntryPosition | None = None,
        order: SortOrder = "newest",
        text: str = "",
    ) -> IndexPage:
        """Return up to ``limit`` entries after a position of this order.

        ``wanted`` filters them; None returns all valid entries. All words of ``text`` must occur in them.
        """
        await self._refresh()
        entries, steps = (self._valid, ()) if wanted is None else (self._newest, wanted)
        if words := search_words(text):
            steps = [*((valid_entries,) if wanted is None else wanted), *map(_word_filter, words)]
            if (few := await self._candidates(words)) is not None:
                return _page(sort_entries(few, order), steps, limit, after, order)
        if len(entries) > _MAX_INLINE_ENTRIES and self._sorted_as(entries, order) is None:
            await asyncio.to_thread(self._sort_as, entries, order)
        found = self._sorted_as(entries, order) or self._sort_as(entries, order)
        if len(entries) <= _MAX_INLINE_ENTRIES or not steps:
            return _page(found, steps, limit, after, order)
        return await asyncio.to_thread(_page, found, steps, limit, after, order)

    async def _candidates(self, words: Sequence[str]) -> list[IndexEntry] | None:
        """Return the entries that may contain all words, the newest first; None when all have to be looked through."""
        if len(self._newest) <= _MAX_INLINE_ENTRIES:
            return None
        texts, by_id = self._texts, self._by_id  # a refresh in its thread may replace both
        if texts is None:
            if self._indexing is None or self._indexing.done():
                self._indexing = asyncio.create_task(self._index_texts())
            return None
        ids = await asyncio.to_thread(texts.candidates, words)
        if ids is None or len(ids) > _MAX_INLINE_ENTRIES:
            return None
        return sorted((by_id[one] for one in ids if one in by_id), key=lambda entry: entry.key, reverse=True)

    async def _index_texts(self) -> None:
        """Index the texts of all entries. It takes some seconds, in which searches look through all entries."""
        texts, known = TextIndex(), self._by_id
        await asyncio.to_thread(_add_texts, texts, known.values())
        async with self._refreshing:
            changed = [entry for entry in self._by_id.values() if known.get(entry.id) is not entry]
            await asyncio.to_thread(_add_texts, texts, changed)
            self._texts = texts

    def _sorted_as(self, entries: list[IndexEntry], order: SortOrder) -> list[IndexEntry] | None:
        """Return entries in an order, if they were sorted since the last change."""
        made_of, found = self._orders.get((entries is self._valid, order), (None, None))
        return found if made_of is entries else None

    def _sort_as(self, entries: list[IndexEntry], order: SortOrder) -> list[IndexEntry]:
        found = sort_entries(entries, order)
        self._orders[entries is self._valid, order] = entries, found
        return found

    async def _refresh(self) -> None:
        wanted_at = time.monotonic()
        if wanted_at < self._refresh_at:
            return
        async with self._refreshing:
            began = time.monotonic()
            # A refresh that another caller began since shows all that was written before this call; one that had
            # begun before it may not.
            if self._began_at >= wanted_at:
                return
            if uses_files(self._services.bus):
                fresh = min(self._fresh_factor * await asyncio.to_thread(self._scan_files), _MAX_FRESH_SECONDS)
            else:
                least, most = _DATABASE_FRESH_SECONDS
                fresh = min(max(self._fresh_factor * await self._query_database(), least), most)
            self._began_at = began
            self._refresh_at = time.monotonic() + fresh

    async def _query_database(self) -> float:
        """Fetch changes from the database; return the elapsed seconds."""
        now = time.monotonic()
        whole = now >= self._reload_at
        within = None if whole else now - self._queried_at + _OVERLAP_SECONDS
        known, changed = ({}, True) if whole else (self._files[""], False)
        async for record in self._services.bus.records(self.stream, within=within):
            stored = document_from_record(record)
            known[stored.id] = self._entry(stored, 0)
            changed = True
        self._files[""] = known
        self._queried_at = now
        if whole:
            self._reload_at = now + _FULL_RELOAD_SECONDS
        if changed:
            self._sort()
        return time.monotonic() - now

    def _scan_files(self) -> float:
        """Scan the files; return the CPU seconds used."""
        began = time.thread_time()
        if self._scan_directories():
            self._sort()
        return time.thread_time() - began

    def _scan_directories(self) -> bool:
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
                known[name] = self._entry(stored, names[name])
        return bool(gone or new)

    def _entry(self, stored: StoredDocument, inode: int) -> IndexEntry:
        entry, before = _index_entry(stored, inode), self._by_id.get(stored.id)
        if self._texts is not None and (before is None or before.words != entry.words):
            self._texts.add(entry.id, entry.words)
        return entry

    def _sort(self) -> None:
        # A document that changes state may be seen in both directories: the later state wins.
        by_id = {entry.id: entry for entries in self._files.values() for entry in entries.values()}
        self._newest = sorted(by_id.values(), key=lambda entry: entry.key, reverse=True)
        self._valid = valid_entries(self._newest)
        self._orders = {}
        self._by_id = by_id
        if self._texts is not None and self._texts.texts > _MAX_OLD_TEXTS * len(by_id):
            self._texts = None


def stub_document(entry: IndexEntry, stream: str) -> StoredDocument:
    """Return an entry as a document with only its id: enough to find related documents."""
    return StoredDocument(stream, entry.state, {"id": entry.id}, entry.path)


async def full_document(services: Services, known: StoredDocument) -> StoredDocument | None:
    """Read the whole document of a stub; None when it was removed."""
    if known.path is not None and (found := document_from_file(known.path, known.stream, known.state)) is not None:
        return found
    return await find_document(services, known.id)


def _add_texts(texts: TextIndex, entries: Iterable[IndexEntry]) -> None:
    for entry in entries:
        texts.add(entry.id, entry.words)


def _by_link(entries: list[IndexEntry]) -> dict[str, list[IndexEntry]]:
    found: dict[str, list[IndexEntry]] = {}
    for entry in entries:
        for link in entry.links:
            found.setdefault(link, []).append(entry)
    return found


def valid_entries(entries: list[IndexEntry]) -> list[IndexEntry]:
    """Return the entries that are not in ``invalid/``."""
    return [entry for entry in entries if entry.state != INVALID]


def _word_filter(word: str) -> EntryFilter:
    return lambda entries: [entry for entry in entries if word in entry.words]


def _page(
    entries: list[IndexEntry], wanted: Sequence[EntryFilter], limit: int, after: EntryPosition | None, order: SortOrder
) -> IndexPage:
    """Return a page of entries, which are in this order; filters keep it."""
    found = entries
    for keep in wanted:
        found = keep(found)
    begin = first_after(found, order, after)
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
    fields |= {
        "id": stored.id,
        "status": stored.state if stored.state == INVALID else fields.get("status"),
        "created_at": document.get("created_at") or timestamp(at),
        **index_fields(document),
    }
    before = continued_task(document.get("type"), document.get("payload"), document.get(FOLLOW_UP_FIELD))
    if stored.stream == TASKS and before is not None:
        fields["original_task_id"] = before
    # The fields come first, so that a long payload does not cut them off.
    text = f"{' '.join(str(value) for value in fields.values())} {_text(document)}"
    words = text[:_MAX_SEARCH_CHARS].casefold()
    return IndexEntry(stored.id, stored.state, at, fields, words, frozenset(links_of(stored)), stored.path, inode)


def index_fields(document: dict[str, Any]) -> dict[str, str | None]:
    """Return ``subject`` and ``title`` of a document, where it has them. People know no Slack thread by its id."""
    subject = subject_of(document)
    shown = None if subject is None or SlackThread.of_subject(subject) is not None else subject
    return {"subject": shown, "title": _title(document)}


def describe_document(document: dict[str, Any]) -> str:
    """Return what a document is about, for people: its subject and title, the task it continues, or its type."""
    found = " ".join(filter(None, index_fields(document).values()))
    if not found and document.get("type") == RESUME_TYPE:
        found = f"goes on from {_value_at(document, 'payload.original_task_id')}"
    return found or str(document.get("type"))


def _title(document: dict[str, Any]) -> str | None:
    """Return a title for people, if the document has one."""
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
