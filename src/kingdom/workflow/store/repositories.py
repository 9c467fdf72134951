"""Aggregates as rows: their tables, their JSON, reading and writing them in a transaction."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

import orjson

from kingdom.workflow.domain.landing import Landing
from kingdom.workflow.domain.resources import Checkpoint, Git, McpServer, WorkSpace, WorkTree
from kingdom.workflow.domain.work import Report, Work
from kingdom.workflow.domain.workflow import Workflow, WorkflowTemplate
from kingdom.workflow.errors import ConcurrentChange, NameTaken, NotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable


A = TypeVar("A")
B = TypeVar("B")
Row = Sequence[Any]


class DatabaseSession(Protocol):
    """An open transaction of either database. Parameters are ``?``, rows are tuples."""

    connection: Any  # the driver's: the bus publishes into it
    row_lock: str  # the end of a SELECT that locks its row
    nests_inserts: bool  # whether an INSERT may be part of a WITH

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        """Run a statement and return its rows."""


# ── aggregates as JSON ───────────────────────────────────────────────────────────────────────────────────────────────
# By the declared types of their fields, so that a new field needs no code here.

Reader = Callable[[Any], Any]
_VERSION_FIELD: Final = "version"  # stored in a column, not in the document


def encode(item: object) -> str:
    """Return the JSON of an aggregate, without its version."""
    document = _plain(item)
    document.pop(_VERSION_FIELD, None)
    try:
        return orjson.dumps(document, default=_plain).decode()  # a fifth of the time: a Work has all its tasks
    except TypeError:  # what only the standard library writes: integers of over 64 bits, keys that are no texts
        return _encoder.encode(document)


def decode(kind: type[A], text: str, version: int) -> A:
    """Return the aggregate of its JSON. Missing fields, added in a later version, get their defaults."""
    reader = _reader(cast("Hashable", kind))
    assert reader is not None
    item = reader(json.loads(text))
    item.version = version
    return cast("A", item)


def _plain(value: Any) -> Any:
    """Return a value as something the JSON encoder knows."""
    if (take := _taker(cast("Hashable", type(value)))) is not None:
        return take(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is not stored")


_encoder = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"), default=_plain)


@cache
def _taker(kind: Hashable) -> Callable[[Any], dict[str, Any]] | None:
    """Return a function that takes the fields of a dataclass with two or more; None for another type."""
    if not is_dataclass(kind):
        return None
    names = tuple(field.name for field in fields(kind))
    values = attrgetter(*names)
    return lambda item: dict(zip(names, values(item), strict=True))


@cache
def _reader(kind: Hashable) -> Reader | None:
    """Return the reader of a declared type; None if JSON has the value as it is."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        return _dataclass_reader(cast("type[Any]", kind))
    if origin in (types.UnionType, typing.Union):
        inner = _reader(next(part for part in arguments if part is not type(None)))
        return None if inner is None else lambda value: None if value is None else inner(value)
    if origin in (tuple, list, set, frozenset):
        return _collection_reader(cast("Callable[[Any], Any]", origin), _reader(arguments[0]))
    if origin in (dict, Mapping):
        item = _reader(arguments[1])
        return None if item is None else lambda value: {key: item(part) for key, part in value.items()}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {str(member): member for member in kind}.__getitem__
    return datetime.fromisoformat if kind is datetime else None


def _collection_reader(collect: Callable[[Any], Any], item: Reader | None) -> Reader | None:
    if item is None:
        return None if collect is list else collect
    if collect is list:
        return lambda value: [item(part) for part in value]
    return lambda value: collect(map(item, value))


def _dataclass_reader(kind: type[Any]) -> Reader:
    hints = typing.get_type_hints(kind)
    known = dict.fromkeys(field.name for field in fields(kind) if field.name != _VERSION_FIELD).keys()
    readers = [(field.name, reader) for field in fields(kind) if (reader := _reader(hints[field.name]))]
    required = frozenset(f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)

    def read(document: Any) -> Any:
        names = document.keys()
        if names != known:  # written by another version: fields may be missing or unknown
            if not required <= names:
                raise KeyError(f"{kind.__name__} without {', '.join(sorted(required - names))}")
            document = {name: value for name, value in document.items() if name in known}
        for name, reader in readers:
            if name in document:
                document[name] = reader(document[name])
        return kind(**document)

    return read


# ── tables: one per type of aggregate, all alike ─────────────────────────────────────────────────────────────────────

_MAX_LABEL_CHARS: Final = 600  # an index entry of PostgreSQL takes 2,700 bytes


@dataclass(frozen=True, slots=True)
class AggregateTable(Generic[A]):
    """The table of a type of aggregate, and which values have columns of their own."""

    name: str
    kind: type[A]
    noun: str  # for error messages
    workflow: Callable[[A], str | None] = lambda _: None
    rank: Callable[[A], int] = lambda _: 0
    status: Callable[[A], str | None] = lambda _: None
    label: Callable[[A], str] | None = None  # the text that a search looks through; see relabel()
    unique_name: Callable[[A], str] | None = None  # it never changes


def _workflow_id(item: Any) -> str:
    return str(item.workflow_id)


def _status(item: Any) -> str:
    return str(item.status)


def _name(item: Any) -> str:
    return str(item.name)


def _label(workflow: Workflow) -> str:
    return f"{workflow.name}\n{workflow.issue_key or ''}".lower()[:_MAX_LABEL_CHARS]


GITS: Final = AggregateTable("wf_git", Git, "repository", unique_name=_name)
MCP_SERVERS: Final = AggregateTable("wf_mcp_server", McpServer, "MCP server", unique_name=_name)
TEMPLATES: Final = AggregateTable("wf_template", WorkflowTemplate, "template")
WORKFLOWS: Final = AggregateTable("wf_workflow", Workflow, "workflow", status=_status, label=_label)
WORKS: Final = AggregateTable("wf_work", Work, "work", _workflow_id, lambda work: work.sequence, _status)
REPORTS: Final = AggregateTable("wf_report", Report, "report", _workflow_id, status=_status)
CHECKPOINTS: Final = AggregateTable(
    "wf_checkpoint", Checkpoint, "checkpoint", _workflow_id, lambda point: point.work_sequence,
    lambda point: "COMPLETE" if point.complete else "OPEN",
)  # fmt: skip
WORK_TREES: Final = AggregateTable("wf_work_tree", WorkTree, "worktree", _workflow_id, status=_status)
WORK_SPACES: Final = AggregateTable("wf_work_space", WorkSpace, "workspace", _workflow_id)
LANDINGS: Final = AggregateTable("wf_landing", Landing, "landing", _workflow_id, status=lambda landing: landing.url)
TABLES: Final[tuple[AggregateTable[Any], ...]] = (
    GITS, MCP_SERVERS, TEMPLATES, WORKFLOWS, WORKS, REPORTS, CHECKPOINTS, WORK_TREES, WORK_SPACES, LANDINGS,
)  # fmt: skip


# ── reading and writing ──────────────────────────────────────────────────────────────────────────────────────────────

_SELECT: Final = "SELECT id, body, version FROM {table}"
_SELECT_BOTH: Final = """
    SELECT mine.id, mine.body, mine.version, its.id, its.body, its.version
    FROM {table} AS mine JOIN {workflows} AS its ON its.id = mine.workflow_id WHERE mine.id = ?
"""
_RELABEL: Final = "UPDATE {table} SET label = ? WHERE id = ?"
_DELETE: Final = "DELETE FROM {table} WHERE id = ?"
_INSERT: Final = """
    INSERT INTO {table} (workflow_id, rank, status, version, body, id) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING RETURNING id
"""
_INSERT_WITH: Final = """
    INSERT INTO {table} (workflow_id, rank, status, version, body, id, {column}) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING RETURNING id
"""
# The inner SELECT reads an index where there is one; only the rows of the page are read.
_FOUND: Final = """
    SELECT id, version FROM {table}
    WHERE id IN (SELECT id FROM {table} WHERE {wanted} ORDER BY id DESC LIMIT ?) ORDER BY id DESC
"""
# Most changes leave the indexed columns alone; naming them would rewrite their index entries.
_UPDATE_BODY: Final = """
    UPDATE {table} SET version = ?, body = ?
    WHERE id = ? AND version = ? AND rank = ? AND coalesce(status, '') = ? RETURNING id
"""
_UPDATE: Final = """
    UPDATE {table} SET workflow_id = ?, rank = ?, status = ?, version = ?, body = ?
    WHERE id = ? AND version = ? RETURNING id
"""


class PendingWrite(NamedTuple):
    """An aggregate that was saved and not written yet, as it was then."""

    before: int  # the version it replaces
    version: int
    body: str


class TableRepository(Generic[A]):
    """The aggregates of one table, inside a transaction.

    Within one transaction an aggregate is one object, however often it is read, and it is written once, however often
    it is saved: with :meth:`write_changes`, or before the table is read.
    """

    def __init__(
        self, session: DatabaseSession, table: AggregateTable[A], before_write: Callable[[], Awaitable[None]]
    ) -> None:
        self._session = session
        self._table = table
        self._before_write = before_write
        self._select = self._sql(_SELECT)
        self._loaded: dict[str, A] = {}
        self._changes: dict[str, tuple[int, A]] = {}  # saved items by id, with the version they replace

    async def get(self, item_id: str) -> A:
        """Return the item; raise :class:`NotFound` if there is none."""
        item = await self.find(item_id)
        if item is None:
            raise NotFound(f"there is no {self._table.noun} {item_id}")
        return item

    async def find(self, item_id: str) -> A | None:
        """Return the item, or None."""
        if (found := self._loaded.get(item_id)) is not None:
            return found
        rows = await self._session.fetch(f"{self._select} WHERE id = ?", item_id)
        return self._read(rows[0]) if rows else None

    async def find_with_parent(self, item_id: str, workflows: TableRepository[B]) -> A | None:
        """Return the item, or None, and read its workflow with the same query."""
        if (found := self._loaded.get(item_id)) is not None:
            return found
        both = self._sql(_SELECT_BOTH).replace("{workflows}", workflows._table.name)
        rows = await self._session.fetch(both, item_id)
        if not rows:
            return await self.find(item_id)
        workflows._read(rows[0][3:])
        return self._read(rows[0][:3])

    async def find_locked(self, item_id: str) -> A | None:
        """Return the item, or None, and lock its row until the transaction ends."""
        self._loaded.pop(item_id, None)  # read it again, under the lock
        rows = await self._fetch(f"{self._select} WHERE id = ?{self._session.row_lock}", item_id)
        return self._read(rows[0]) if rows else None

    async def of_workflow(self, workflow_id: str, rank: int | None = None) -> list[A]:
        """Return all items of a workflow (of this rank) in order."""
        found = f"{self._select} WHERE workflow_id = ?"
        if rank is None:
            rows = await self._fetch(f"{found} ORDER BY rank, id", workflow_id)
        else:
            rows = await self._fetch(f"{found} AND rank = ? ORDER BY id", workflow_id, rank)
        return [self._read(row) for row in rows]

    async def with_status(self, *statuses: str) -> list[A]:
        """Return all items with one of these statuses, oldest first."""
        marks = ", ".join("?" * len(statuses))
        rows = await self._fetch(f"{self._select} WHERE status IN ({marks}) ORDER BY id", *statuses)
        return [self._read(row) for row in rows]

    async def find_all(self, item_ids: Sequence[str]) -> list[A]:
        """Return the items that exist."""
        if not item_ids:
            return []
        marks = ", ".join("?" * len(item_ids))
        return [self._read(row) for row in await self._fetch(f"{self._select} WHERE id IN ({marks})", *item_ids)]

    async def versions(
        self, *, statuses: Sequence[str] = (), search: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[tuple[str, int]]:
        """Return ids with their versions, newest first, filtered by status and by a text in the label."""
        wanted: dict[str, Sequence[object]] = {}
        if statuses:
            wanted[f"status IN ({', '.join('?' * len(statuses))})"] = statuses
        if search is not None and self._table.label is not None:
            wanted["label LIKE ? ESCAPE '!'"] = (f"%{_escape_like(search.lower())}%",)
        if after is not None:
            wanted["id < ?"] = (after,)
        found = self._sql(_FOUND).replace("{wanted}", " AND ".join(wanted) or "1 = 1")
        rows = await self._fetch(found, *chain(*wanted.values()), limit)
        return [(item_id, version) for item_id, version in rows]

    async def labels(self, start: str) -> list[str]:
        """Return the labels that begin with a text, whatever its case."""
        found = self._sql("SELECT label FROM {table} WHERE label LIKE ? ESCAPE '!'")
        return [str(label) for (label,) in await self._fetch(found, f"{_escape_like(start.lower())}%")]

    async def list(self, *, limit: int = 100, after: str | None = None) -> list[A]:
        """Return a page of items, newest first; ``after`` is the last id of the previous page."""
        if after is None:
            rows = await self._fetch(f"{self._select} ORDER BY id DESC LIMIT ?", limit)
        else:
            rows = await self._fetch(f"{self._select} WHERE id < ? ORDER BY id DESC LIMIT ?", after, limit)
        return [self._read(row) for row in rows]

    async def ids_by_name(self) -> dict[str, str]:
        """Return the ids of all items by their unique names."""
        rows = await self._fetch(self._sql("SELECT name, id FROM {table} WHERE name IS NOT NULL"))
        return {str(name): str(item_id) for name, item_id in rows}

    async def save(self, item: A) -> None:
        """Write a new item now, and a changed one with this transaction, as it is then.

        Raises :class:`NameTaken` for a new item, and :class:`ConcurrentChange`, here or when it is written, if another
        transaction changed it meanwhile.
        """
        known: Any = item
        before, _ = self._changes.get(known.id, (known.version, item))
        if before == 0:
            await self._insert(item)
        else:
            self._changes[known.id] = before, item
        known.version = before + 1
        self._loaded[known.id] = item

    async def relabel(self, item: A) -> None:
        """Update the text that a search looks through."""
        assert self._table.label is not None
        await self._before_write()
        await self._session.fetch(self._sql(_RELABEL), self._table.label(item), item.id)  # type: ignore[attr-defined]

    async def delete(self, item_id: str) -> None:
        """Delete the item if it exists."""
        await self._before_write()
        await self._session.fetch(self._sql(_DELETE), item_id)
        self._loaded.pop(item_id, None)
        self._changes.pop(item_id, None)

    async def write_changes(self) -> None:
        """Write what was saved and is not written yet; raise :class:`ConcurrentChange`."""
        if self._changes:
            await self._before_write()
        for before, item in self._changes.values():
            columns = self._columns(item, before + 1)
            _, rank, status, version, body, item_id = columns
            usual = (version, body, item_id, before, rank, status or "")
            written = await self._session.fetch(self._sql(_UPDATE_BODY), *usual)
            written = written or await self._session.fetch(self._sql(_UPDATE), *columns, before)
            self._check(written, item_id)
        self._changes = {}

    def pending_writes(self) -> dict[str, PendingWrite]:
        """Return copies of what was saved and is not written yet."""
        return {
            item_id: PendingWrite(before, before + 1, encode(item)) for item_id, (before, item) in self._changes.items()
        }

    def restore_writes(self, kept: dict[str, PendingWrite]) -> None:
        """Continue with the pending writes of a discarded repository of the same table."""
        for item_id, (before, version, body) in kept.items():
            item = self._loaded[item_id] = decode(self._table.kind, body, version)
            self._changes[item_id] = before, item

    def _columns(self, item: A, version: int) -> tuple[Any, ...]:
        table, item_id = self._table, item.id  # type: ignore[attr-defined]
        return table.workflow(item), table.rank(item), table.status(item), version, encode(item), item_id

    async def _insert(self, item: A) -> None:
        await self._before_write()
        columns = self._columns(item, 1)
        table = self._table
        if table.unique_name is not None:
            name = table.unique_name(item)
            insert = self._sql(_INSERT_WITH).replace("{column}", "name")
            if not await self._session.fetch(insert, *columns, name):
                raise NameTaken(f"the name {name!r} is taken by another {table.noun}: choose another name")
            return
        if table.label is not None:
            insert = self._sql(_INSERT_WITH).replace("{column}", "label")
            written = await self._session.fetch(insert, *columns, table.label(item))
        else:
            written = await self._session.fetch(self._sql(_INSERT), *columns)
        self._check(written, columns[-1])

    def _check(self, written: Sequence[Row], item_id: str) -> None:
        if not written:
            noun = self._table.noun
            raise ConcurrentChange(f"{noun} {item_id} was changed by another transaction meanwhile: read it again")

    async def _fetch(self, sql: str, *values: object) -> Sequence[Row]:
        """Write our own changes, then read the table."""
        await self.write_changes()
        return await self._session.fetch(sql, *values)

    def _sql(self, statement: str) -> str:
        return _sql(statement, self._table.name)

    def _read(self, row: Row) -> A:
        item_id, body, version = row
        found = self._loaded.get(item_id)
        if found is None:
            found = self._loaded[item_id] = decode(self._table.kind, body, version)
        return found


def _escape_like(words: str) -> str:
    """Escape a text for LIKE."""
    return words.replace("!", "!!").replace("%", "!%").replace("_", "!_")


@cache
def _sql(statement: str, table: str) -> str:
    return statement.replace("{table}", table)
