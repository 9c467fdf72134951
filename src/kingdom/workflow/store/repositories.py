"""Aggregates as rows: their tables, their JSON, reading and writing them in a transaction."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, cast

from kingdom.workflow.domain.resources import Checkpoint, Git, McpServer, WorkSpace, WorkTree
from kingdom.workflow.domain.work import Report, Work
from kingdom.workflow.domain.workflow import Workflow, WorkflowTemplate
from kingdom.workflow.errors import ConcurrentChange, NotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from kingdom.workflow.store.transactions import DatabaseSession, Row


# Aggregates as JSON, and back: by the types their fields declare, so that a new field needs no code here.


A = TypeVar("A")
Reader = Callable[[Any], Any]
_VERSION_FIELD: Final = "version"  # a column of its own


def encode(item: object) -> str:
    """The JSON of an aggregate. Its ``version`` is the row's business, not the document's."""
    document = _plain(item)
    document.pop(_VERSION_FIELD, None)
    return _encoder.encode(document)


def decode(kind: type[A], text: str, version: int) -> A:
    """The aggregate of its JSON. Fields that were added since have their defaults."""
    reader = _reader(cast("Hashable", kind))
    assert reader is not None
    item = reader(json.loads(text))
    item.version = version
    return cast("A", item)


def _plain(value: Any) -> Any:
    """What the encoder does not know by itself, as something it knows."""
    if (take := _taker(cast("Hashable", type(value)))) is not None:
        return take(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is not stored")


# Mostly C: it walks lists, dictionaries and words by itself, and asks for the rest.
_encoder = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"), default=_plain)


@cache
def _taker(kind: Hashable) -> Callable[[Any], dict[str, Any]] | None:
    """What takes the fields of a dataclass (of two or more); None for another type."""
    if not is_dataclass(kind):
        return None
    names = tuple(field.name for field in fields(kind))
    values = attrgetter(*names)
    return lambda item: dict(zip(names, values(item), strict=True))


@cache
def _reader(kind: Hashable) -> Reader | None:
    """How to read a value of a declared type; None when JSON has it as it is."""
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
        if names != known:  # of another version: some fields may be missing, some gone since
            if not required <= names:
                raise KeyError(f"{kind.__name__} without {', '.join(sorted(required - names))}")
            document = {name: value for name, value in document.items() if name in known}
        for name, reader in readers:
            if name in document:
                document[name] = reader(document[name])
        return kind(**document)

    return read


# The tables: one for each kind of aggregate, all of one shape.

_MAX_LABEL_CHARS: Final = 600  # characters; an index of PostgreSQL takes 2,700 bytes


@dataclass(frozen=True, slots=True)
class AggregateTable(Generic[A]):
    """A kind of aggregate: its table, and what of it stands in columns of their own."""

    name: str
    kind: type[A]
    noun: str  # as people call it
    workflow: Callable[[A], str | None] = lambda _: None
    rank: Callable[[A], int] = lambda _: 0
    status: Callable[[A], str | None] = lambda _: None
    label: Callable[[A], str] | None = None  # what it is searched by; it never changes


def _workflow_id(item: Any) -> str:
    return str(item.workflow_id)


def _status(item: Any) -> str:
    return str(item.status)


def _label(workflow: Workflow) -> str:
    return f"{workflow.name}\n{workflow.issue_key or ''}".lower()[:_MAX_LABEL_CHARS]


GITS: Final = AggregateTable("wf_git", Git, "git")
MCP_SERVERS: Final = AggregateTable("wf_mcp_server", McpServer, "MCP server")
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
TABLES: Final[tuple[AggregateTable[Any], ...]] = (
    GITS, MCP_SERVERS, TEMPLATES, WORKFLOWS, WORKS, REPORTS, CHECKPOINTS, WORK_TREES, WORK_SPACES,
)  # fmt: skip


# Reading and writing aggregates inside a transaction.

B = TypeVar("B")
_SELECT: Final = "SELECT id, body, version FROM {table}"
_SELECT_BOTH: Final = """
    SELECT mine.id, mine.body, mine.version, its.id, its.body, its.version
    FROM {table} AS mine JOIN {workflows} AS its ON its.id = mine.workflow_id WHERE mine.id = ?
"""
_DELETE: Final = "DELETE FROM {table} WHERE id = ?"
_INSERT: Final = """
    INSERT INTO {table} (workflow_id, rank, status, version, body, id) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING RETURNING id
"""
_INSERT_LABELLED: Final = """
    INSERT INTO {table} (workflow_id, rank, status, version, body, id, label) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING RETURNING id
"""
# What is looked through is an index, as far as there is one; only rows of the page are read.
_FOUND: Final = """
    SELECT id, version FROM {table}
    WHERE id IN (SELECT id FROM {table} WHERE {wanted} ORDER BY id DESC LIMIT ?) ORDER BY id DESC
"""
# The usual change leaves the indexed columns alone; naming them would have their index entries written anew.
_UPDATE_BODY: Final = """
    UPDATE {table} SET version = ?, body = ?
    WHERE id = ? AND version = ? AND rank = ? AND coalesce(status, '') = ? RETURNING id
"""
_UPDATE: Final = """
    UPDATE {table} SET workflow_id = ?, rank = ?, status = ?, version = ?, body = ?
    WHERE id = ? AND version = ? RETURNING id
"""


class PendingWrite(NamedTuple):
    """An aggregate that was saved and not written yet, put aside as it was then."""

    before: int  # the version that is replaced
    version: int
    body: str


class TableRepository(Generic[A]):
    """The aggregates of one table; see :class:`kingdom.workflow.ports.Repository`.

    Within one transaction an aggregate is one object, however often it is asked for, and it is written once, however
    often it is saved: with :meth:`write_changes`, or before the table is read.
    """

    def __init__(
        self, session: DatabaseSession, table: AggregateTable[A], writing: Callable[[], Awaitable[None]]
    ) -> None:
        self._session = session
        self._table = table
        self._writing = writing  # called before anything is written
        self._select = self._sql(_SELECT)
        self._read_already: dict[str, A] = {}
        self._changes: dict[str, tuple[int, A]] = {}  # what was saved, with the version it replaces, by id

    async def get(self, item_id: str) -> A:
        """One of them; raises :class:`NotFound`."""
        item = await self.find(item_id)
        if item is None:
            raise NotFound(f"there is no {self._table.noun} {item_id}")
        return item

    async def find(self, item_id: str) -> A | None:
        """One of them, or None."""
        if (found := self._read_already.get(item_id)) is not None:
            return found
        rows = await self._session.fetch(f"{self._select} WHERE id = ?", item_id)
        return self._read(rows[0]) if rows else None

    async def find_with_parent(self, item_id: str, workflows: TableRepository[B]) -> A | None:
        """One of them, or None, and its workflow with it."""
        if (found := self._read_already.get(item_id)) is not None:
            return found
        both = self._sql(_SELECT_BOTH).replace("{workflows}", workflows._table.name)
        rows = await self._session.fetch(both, item_id)
        if not rows:
            return await self.find(item_id)
        workflows._read(rows[0][3:])
        return self._read(rows[0][:3])

    async def find_locked(self, item_id: str) -> A | None:
        """One of them, or None; nobody else changes it before this transaction is over."""
        self._read_already.pop(item_id, None)  # as it is once we have it
        rows = await self._fetch(f"{self._select} WHERE id = ?{self._session.row_lock}", item_id)
        return self._read(rows[0]) if rows else None

    async def of_workflow(self, workflow_id: str, rank: int | None = None) -> list[A]:
        """All of one workflow (of this rank), in their order."""
        found = f"{self._select} WHERE workflow_id = ?"
        if rank is None:
            rows = await self._fetch(f"{found} ORDER BY rank, id", workflow_id)
        else:
            rows = await self._fetch(f"{found} AND rank = ? ORDER BY id", workflow_id, rank)
        return [self._read(row) for row in rows]

    async def with_status(self, *statuses: str) -> list[A]:
        """All in one of these states, the oldest first."""
        marks = ", ".join("?" * len(statuses))
        rows = await self._fetch(f"{self._select} WHERE status IN ({marks}) ORDER BY id", *statuses)
        return [self._read(row) for row in rows]

    async def find_all(self, item_ids: Sequence[str]) -> list[A]:
        """Those of them that are there."""
        if not item_ids:
            return []
        marks = ", ".join("?" * len(item_ids))
        return [self._read(row) for row in await self._fetch(f"{self._select} WHERE id IN ({marks})", *item_ids)]

    async def versions(
        self, *, statuses: Sequence[str] = (), search: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[tuple[str, int]]:
        """Ids with their versions, the newest first, of those in one of these states whose label has these words."""
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

    async def list(self, *, limit: int = 100, after: str | None = None) -> list[A]:
        """The newest first; ``after`` is the id the last page ended with."""
        if after is None:
            rows = await self._fetch(f"{self._select} ORDER BY id DESC LIMIT ?", limit)
        else:
            rows = await self._fetch(f"{self._select} WHERE id < ? ORDER BY id DESC LIMIT ?", after, limit)
        return [self._read(row) for row in rows]

    async def save(self, item: A) -> None:
        """Have a new or changed one written with this transaction, as it is then.

        Raises :class:`ConcurrentChange`, here or when it is written, when somebody else changed it meanwhile.
        """
        known: Any = item
        before, _ = self._changes.get(known.id, (known.version, item))
        if before == 0:
            await self._insert(item)
        else:
            self._changes[known.id] = before, item
        known.version = before + 1
        self._read_already[known.id] = item

    async def delete(self, item_id: str) -> None:
        """Remove one; nothing happens when it is not there."""
        await self._writing()
        await self._session.fetch(self._sql(_DELETE), item_id)
        self._read_already.pop(item_id, None)
        self._changes.pop(item_id, None)

    async def write_changes(self) -> None:
        """Write what was saved and is not written yet; raises :class:`ConcurrentChange`."""
        if self._changes:
            await self._writing()
        for before, item in self._changes.values():
            columns = self._columns(item, before + 1)
            _, rank, status, version, body, item_id = columns
            usual = (version, body, item_id, before, rank, status or "")
            written = await self._session.fetch(self._sql(_UPDATE_BODY), *usual)
            written = written or await self._session.fetch(self._sql(_UPDATE), *columns, before)
            self._check(written, item_id)
        self._changes = {}

    def pending_writes(self) -> dict[str, PendingWrite]:
        """What was saved and is not written yet, as it is now, whatever becomes of it."""
        return {
            item_id: PendingWrite(before, before + 1, encode(item)) for item_id, (before, item) in self._changes.items()
        }

    def restore_writes(self, kept: dict[str, PendingWrite]) -> None:
        """Go on with what a repository of the same table, that was given up, had put aside."""
        for item_id, (before, version, body) in kept.items():
            item = self._read_already[item_id] = decode(self._table.kind, body, version)
            self._changes[item_id] = before, item

    def _columns(self, item: A, version: int) -> tuple[Any, ...]:
        table, item_id = self._table, item.id  # type: ignore[attr-defined]
        return table.workflow(item), table.rank(item), table.status(item), version, encode(item), item_id

    async def _insert(self, item: A) -> None:
        await self._writing()
        columns = self._columns(item, 1)
        if self._table.label is None:
            written = await self._session.fetch(self._sql(_INSERT), *columns)
        else:
            written = await self._session.fetch(self._sql(_INSERT_LABELLED), *columns, self._table.label(item))
        self._check(written, columns[-1])

    def _check(self, written: Sequence[Row], item_id: str) -> None:
        if not written:
            noun = self._table.noun
            raise ConcurrentChange(f"{noun} {item_id} was changed by somebody else meanwhile: read it again")

    async def _fetch(self, sql: str, *values: object) -> Sequence[Row]:
        """What the table has, with our own changes."""
        await self.write_changes()
        return await self._session.fetch(sql, *values)

    def _sql(self, statement: str) -> str:
        return _sql(statement, self._table.name)

    def _read(self, row: Row) -> A:
        item_id, body, version = row
        found = self._read_already.get(item_id)
        if found is None:
            found = self._read_already[item_id] = decode(self._table.kind, body, version)
        return found


def _escape_like(words: str) -> str:
    """Words as LIKE takes them for themselves."""
    return words.replace("!", "!!").replace("%", "!%").replace("_", "!_")


@cache
def _sql(statement: str, table: str) -> str:
    return statement.replace("{table}", table)
