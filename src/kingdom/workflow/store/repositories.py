"""Aggregates as rows: their tables, reading and writing them in a transaction."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from kingdom.workflow.domain.landing import Landing
from kingdom.workflow.domain.resources import Checkpoint, Git, McpServer, WorkSpace, WorkTree
from kingdom.workflow.domain.work import Report, Work
from kingdom.workflow.domain.workflow import Workflow, WorkflowTemplate
from kingdom.workflow.errors import ConcurrentChange, NameTaken, NotFound
from kingdom.workflow.store.documents import decode, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable


A = TypeVar("A")
Row = Sequence[Any]


class DatabaseSession(Protocol):
    """An open transaction of either database. Parameters are ``?``, rows are tuples."""

    connection: Any  # the driver's: the bus publishes into it
    row_lock: str  # the end of a SELECT that locks its row
    nests_inserts: bool  # whether an INSERT may be part of a WITH
    first_line: str  # an expression for the first line of {text}, compared by code points
    other_lines: str  # the same for the lines after it
    joined_ids: str  # an aggregate for all ids, with commas between them

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        """Run a statement and return its rows."""


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
    more: Mapping[str, Callable[[A], str | None]] = field(default_factory=dict)  # other columns, with their values


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
WORKS: Final = AggregateTable(
    "wf_work", Work, "work", _workflow_id, lambda work: work.sequence, _status,
    more={
        "name": _name,
        "waits": lambda work: json.dumps(work.after) if work.after else None,
        "checkpoint": lambda work: work.checkpoint_id,
    },
)  # fmt: skip
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
_RELABEL: Final = "UPDATE {table} SET label = ? WHERE id = ?"
_DELETE: Final = "DELETE FROM {table} WHERE id = ?"
_INSERT: Final = """
    INSERT INTO {table} (workflow_id, rank, status, version, body, id{columns}) VALUES (?, ?, ?, ?, ?, ?{marks})
    ON CONFLICT DO NOTHING RETURNING id
"""
# The inner SELECT reads an index where there is one; only the rows of the page are read.
_FOUND: Final = """
    SELECT id, version FROM {table}
    WHERE id IN (SELECT id FROM {table} WHERE {wanted} ORDER BY id {order} LIMIT ?) ORDER BY id {order}
"""
# Most changes leave the other columns alone; naming them would rewrite their index entries.
_UPDATE_BODY: Final = "UPDATE {table} SET version = ?, body = ? WHERE id = ? AND version = ? RETURNING id"
_UPDATE: Final = """
    UPDATE {table} SET workflow_id = ?, rank = ?, status = ?{columns}, version = ?, body = ?
    WHERE id = ? AND version = ? RETURNING id
"""


class PendingWrite(NamedTuple):
    """An aggregate that was saved and not written yet, as it was then."""

    before: int  # the version it replaces
    version: int
    body: str
    parts: dict[str, str] | None = None  # the rows of its parts, as they are stored


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
        self._stored: dict[str, tuple[object, ...]] = {}  # the columns of items as they are stored, by id
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
        items = await self._items(await self._session.fetch(f"{self._select} WHERE id = ?", item_id))
        return items[0] if items else None

    async def find_locked(self, item_id: str) -> A | None:
        """Return the item, or None, and lock its row until the transaction ends."""
        self._loaded.pop(item_id, None)  # read it again, under the lock
        items = await self._items(await self._fetch(f"{self._select} WHERE id = ?{self._session.row_lock}", item_id))
        return items[0] if items else None

    async def of_workflow(self, workflow_id: str, rank: int | None = None) -> list[A]:
        """Return all items of a workflow (of this rank) in order."""
        found = f"{self._select} WHERE workflow_id = ?"
        if rank is None:
            rows = await self._fetch(f"{found} ORDER BY rank, id", workflow_id)
        else:
            rows = await self._fetch(f"{found} AND rank = ? ORDER BY id", workflow_id, rank)
        return await self._items(rows)

    async def with_status(self, *statuses: str) -> list[A]:
        """Return all items with one of these statuses, oldest first."""
        marks = ", ".join("?" * len(statuses))
        rows = await self._fetch(f"{self._select} WHERE status IN ({marks}) ORDER BY id", *statuses)
        return await self._items(rows)

    async def find_all(self, item_ids: Sequence[str]) -> list[A]:
        """Return the items that exist."""
        if not item_ids:
            return []
        marks = ", ".join("?" * len(item_ids))
        return await self._items(await self._fetch(f"{self._select} WHERE id IN ({marks})", *item_ids))

    async def versions(
        self,
        *,
        statuses: Sequence[str] = (),
        search: str | None = None,
        first: str | None = None,
        end: str | None = None,
        after: str | None = None,
        oldest_first: bool = False,
        limit: int = 100,
    ) -> list[tuple[str, int]]:
        """Return ids with their versions, newest first, filtered by status and by a text in the label.

        ``first`` and ``end`` limit the ids, and so the time of their creation: from the first to before the end.
        """
        wanted = self._wanted(statuses, search, first, end)
        if after is not None:
            wanted.append(("id > ?" if oldest_first else "id < ?", (after,)))
        found = self._sql(_FOUND).replace("{wanted}", joined(wanted))
        found = found.replace("{order}", "ASC" if oldest_first else "DESC")
        rows = await self._fetch(found, *chain.from_iterable(values for _, values in wanted), limit)
        return [(item_id, version) for item_id, version in rows]

    async def versions_of(self, item_ids: Sequence[str]) -> list[tuple[str, int]]:
        """Return these ids with their versions, in the same order; without those that do not exist."""
        if not item_ids:
            return []
        select = self._sql("SELECT id, version FROM {table} WHERE id IN ({marks})")
        rows = await self._fetch(select.replace("{marks}", ", ".join("?" * len(item_ids))), *item_ids)
        known = {str(item_id): int(version) for item_id, version in rows}
        return [(item_id, known[item_id]) for item_id in item_ids if item_id in known]

    def _wanted(
        self, statuses: Sequence[str], search: str | None, first: str | None, end: str | None
    ) -> builtins.list[tuple[str, Sequence[object]]]:
        wanted: builtins.list[tuple[str, Sequence[object]]] = []
        if statuses:
            wanted.append((f"status IN ({', '.join('?' * len(statuses))})", statuses))
        if search is not None and self._table.label is not None:
            wanted.append(("label LIKE ? ESCAPE '!'", (f"%{_escape_like(search.lower())}%",)))
        if first is not None:
            wanted.append(("id >= ?", (first,)))
        if end is not None:
            wanted.append(("id < ?", (end,)))
        return wanted

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
        return await self._items(rows)

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
            await self._write(item, before)
        self._changes = {}

    async def _write(self, item: A, before: int) -> None:
        update, values = self._update(item, before)
        self._written(item, await self._session.fetch(update, *values))

    def _update(self, item: A, before: int) -> tuple[str, tuple[object, ...]]:
        """Return the statement that writes a changed item, and its values. It returns a row if nobody else wrote it."""
        item_id: str = item.id  # type: ignore[attr-defined]
        columns, body = self._columns(item), self._body(item)
        if self._stored.get(item_id) == columns:
            return self._sql(_UPDATE_BODY), (before + 1, body, item_id, before)
        named = "".join(f", {name} = ?" for name in self._table.more)
        return self._sql(_UPDATE).replace("{columns}", named), (*columns, before + 1, body, item_id, before)

    def _written(self, item: A, rows: Sequence[Row]) -> None:
        item_id: str = item.id  # type: ignore[attr-defined]
        self._check(rows, item_id)
        self._stored[item_id] = self._columns(item)

    def pending_writes(self) -> dict[str, PendingWrite]:
        """Return copies of what was saved and is not written yet."""
        return {
            item_id: PendingWrite(before, before + 1, encode(item)) for item_id, (before, item) in self._changes.items()
        }

    def restored(self, kept: dict[str, PendingWrite]) -> Self:
        """Return a new repository of the same table with these pending writes."""
        new = self._empty()
        for item_id, (before, version, body, _) in kept.items():
            item = new._loaded[item_id] = decode(self._table.kind, body, version)
            new._changes[item_id] = before, item
        return new

    def _empty(self) -> Self:
        return type(self)(self._session, self._table, self._before_write)

    def _columns(self, item: A) -> tuple[object, ...]:
        table = self._table
        return table.workflow(item), table.rank(item), table.status(item), *(take(item) for take in table.more.values())

    def _body(self, item: A) -> str:
        return encode(item)

    async def _insert(self, item: A) -> None:
        await self._before_write()
        table, item_id = self._table, item.id  # type: ignore[attr-defined]
        more: dict[str, object] = {name: take(item) for name, take in table.more.items()}
        if table.unique_name is not None:
            more["name"] = table.unique_name(item)
        if table.label is not None:
            more["label"] = table.label(item)
        insert = self._sql(_INSERT).replace("{columns}", "".join(f", {name}" for name in more))
        insert = insert.replace("{marks}", ", ?" * len(more))
        columns = self._columns(item)
        written = await self._session.fetch(insert, *columns[:3], 1, self._body(item), item_id, *more.values())
        if not written and table.unique_name is not None:
            name = table.unique_name(item)
            raise NameTaken(f"the name {name!r} is taken by another {table.noun}: choose another name")
        self._check(written, item_id)
        self._stored[item_id] = columns

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

    async def _items(self, rows: Sequence[Row]) -> builtins.list[A]:
        return [self._read(row) for row in rows]

    def _read(self, row: Row) -> A:
        item_id, body, version = row
        found = self._loaded.get(item_id)
        if found is None:
            found = self._loaded[item_id] = self._decode(body, version)
            self._stored[item_id] = self._columns(found)
        return found

    def _decode(self, body: str, version: int) -> A:
        return decode(self._table.kind, body, version)


def _escape_like(words: str) -> str:
    """Escape a text for LIKE."""
    return words.replace("!", "!!").replace("%", "!%").replace("_", "!_")


@cache
def _sql(statement: str, table: str) -> str:
    return statement.replace("{table}", table)


def joined(wanted: Sequence[tuple[str, Sequence[object]]]) -> str:
    """Return conditions as one."""
    return " AND ".join(condition for condition, _ in wanted) or "1 = 1"
