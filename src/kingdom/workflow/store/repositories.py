"""Reading and writing aggregates inside a transaction."""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from kingdom.workflow.domain.errors import NotFound
from kingdom.workflow.store.codec import decode, encode
from kingdom.workflow.store.errors import ConcurrentChange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kingdom.workflow.store.sessions import Row, Session
    from kingdom.workflow.store.tables import Table

A = TypeVar("A")
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


class Kept(NamedTuple):
    """An aggregate that was saved and not written yet, put aside as it was then."""

    before: int  # the version that is replaced
    version: int
    body: str


class TableRepository(Generic[A]):
    """The aggregates of one table; see :class:`kingdom.workflow.ports.Repository`.

    Within one transaction an aggregate is one object, however often it is asked for, and it is written once, however
    often it is saved: with :meth:`write_changes`, or before the table is read.
    """

    def __init__(self, session: Session, table: Table[A], writing: Callable[[], Awaitable[None]]) -> None:
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

    async def find_beside(self, item_id: str, workflows: TableRepository[B]) -> A | None:
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
            wanted["label LIKE ? ESCAPE '!'"] = (f"%{_literal(search.lower())}%",)
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

    def put_aside(self) -> dict[str, Kept]:
        """What was saved and is not written yet, as it is now, whatever becomes of it."""
        return {item_id: Kept(before, before + 1, encode(item)) for item_id, (before, item) in self._changes.items()}

    def take_over(self, kept: dict[str, Kept]) -> None:
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


def _literal(words: str) -> str:
    """Words as LIKE takes them for themselves."""
    return words.replace("!", "!!").replace("%", "!%").replace("_", "!_")


@cache
def _sql(statement: str, table: str) -> str:
    return statement.replace("{table}", table)
