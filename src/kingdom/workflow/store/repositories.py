"""Reading and writing aggregates inside a transaction."""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kingdom.workflow.domain.errors import NotFound
from kingdom.workflow.store.codec import decode, encode
from kingdom.workflow.store.errors import ConcurrentChange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.workflow.store.sessions import Row, Session
    from kingdom.workflow.store.tables import Table

A = TypeVar("A")
_SELECT: Final = "SELECT id, body, version FROM {table}"
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


class TableRepository(Generic[A]):
    """The aggregates of one table; see :class:`kingdom.workflow.ports.Repository`.

    Within one transaction an aggregate is one object, however often it is asked for.
    """

    def __init__(self, session: Session, table: Table[A]) -> None:
        self._session = session
        self._table = table
        self._select = self._sql(_SELECT)
        self._read_already: dict[str, A] = {}

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

    async def find_locked(self, item_id: str) -> A | None:
        """One of them, or None; nobody else changes it before this transaction is over."""
        self._read_already.pop(item_id, None)  # as it is once we have it
        rows = await self._session.fetch(f"{self._select} WHERE id = ?{self._session.row_lock}", item_id)
        return self._read(rows[0]) if rows else None

    async def of_workflow(self, workflow_id: str) -> list[A]:
        """All of one workflow, in their order."""
        rows = await self._session.fetch(f"{self._select} WHERE workflow_id = ? ORDER BY rank, id", workflow_id)
        return [self._read(row) for row in rows]

    async def with_status(self, *statuses: str) -> list[A]:
        """All in one of these states, the oldest first."""
        marks = ", ".join("?" * len(statuses))
        rows = await self._session.fetch(f"{self._select} WHERE status IN ({marks}) ORDER BY id", *statuses)
        return [self._read(row) for row in rows]

    async def page(
        self, *, statuses: Sequence[str] = (), search: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[A]:
        """The newest first, of those in one of these states whose label has these words."""
        wanted: dict[str, Sequence[object]] = {}
        if statuses:
            wanted[f"status IN ({', '.join('?' * len(statuses))})"] = statuses
        if search is not None and self._table.label is not None:
            wanted["label LIKE ? ESCAPE '!'"] = (f"%{_literal(search.lower())}%",)
        if after is not None:
            wanted["id < ?"] = (after,)
        found = self._sql(_FOUND).replace("{wanted}", " AND ".join(wanted) or "true")
        rows = await self._session.fetch(f"{self._select} {found}", *chain(*wanted.values()), limit)
        return [self._read(row) for row in rows]

    async def list(self, *, limit: int = 100, after: str | None = None) -> list[A]:
        """The newest first; ``after`` is the id the last page ended with."""
        if after is None:
            rows = await self._session.fetch(f"{self._select} ORDER BY id DESC LIMIT ?", limit)
        else:
            rows = await self._session.fetch(f"{self._select} WHERE id < ? ORDER BY id DESC LIMIT ?", after, limit)
        return [self._read(row) for row in rows]

    async def save(self, item: A) -> None:
        """Write a new or changed one; raises :class:`ConcurrentChange` when somebody else changed it meanwhile."""
        table, known = self._table, item
        item_id, version = known.id, known.version  # type: ignore[attr-defined]
        rank, status, body = table.rank(item), table.status(item), encode(item)
        columns = (table.workflow(item), rank, status, version + 1, body, item_id)
        if version == 0:
            written = await self._insert(item, columns)
        else:
            usual = (version + 1, body, item_id, version, rank, status or "")
            written = await self._session.fetch(self._sql(_UPDATE_BODY), *usual)
            written = written or await self._session.fetch(self._sql(_UPDATE), *columns, version)
        if not written:
            raise ConcurrentChange(f"{table.noun} {item_id} was changed by somebody else meanwhile: read it again")
        known.version = version + 1  # type: ignore[attr-defined]
        self._read_already[item_id] = item

    async def delete(self, item_id: str) -> None:
        """Remove one; nothing happens when it is not there."""
        await self._session.fetch(self._sql(_DELETE), item_id)
        self._read_already.pop(item_id, None)

    async def _insert(self, item: A, columns: tuple[object, ...]) -> Sequence[Row]:
        if self._table.label is None:
            return await self._session.fetch(self._sql(_INSERT), *columns)
        return await self._session.fetch(self._sql(_INSERT_LABELLED), *columns, self._table.label(item))

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
