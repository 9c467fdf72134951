"""Reading and writing aggregates inside a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kingdom.workflow.domain.errors import NotFound
from kingdom.workflow.store.codec import decode, encode
from kingdom.workflow.store.errors import ConcurrentChange

if TYPE_CHECKING:
    from kingdom.workflow.store.sessions import Row, Session
    from kingdom.workflow.store.tables import Table

A = TypeVar("A")
_SELECT: Final = "SELECT body, version FROM {table}"
_DELETE: Final = "DELETE FROM {table} WHERE id = ?"
_INSERT: Final = """
    INSERT INTO {table} (workflow_id, rank, status, version, body, id) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING RETURNING id
"""
_UPDATE: Final = """
    UPDATE {table} SET workflow_id = ?, rank = ?, status = ?, version = ?, body = ?
    WHERE id = ? AND version = ? RETURNING id
"""


class TableRepository(Generic[A]):
    """The aggregates of one table; see :class:`kingdom.workflow.ports.Repository`."""

    def __init__(self, session: Session, table: Table[A]) -> None:
        self._session = session
        self._table = table
        self._select = self._sql(_SELECT)

    async def get(self, item_id: str) -> A:
        """One of them; raises :class:`NotFound`."""
        item = await self.find(item_id)
        if item is None:
            raise NotFound(f"there is no {self._table.label} {item_id}")
        return item

    async def find(self, item_id: str) -> A | None:
        """One of them, or None."""
        rows = await self._session.fetch(f"{self._select} WHERE id = ?", item_id)
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
        columns = (table.workflow(item), table.rank(item), table.status(item), version + 1, encode(item))
        if version == 0:
            written = await self._session.fetch(self._sql(_INSERT), *columns, item_id)
        else:
            written = await self._session.fetch(self._sql(_UPDATE), *columns, item_id, version)
        if not written:
            raise ConcurrentChange(f"{table.label} {item_id} was changed by somebody else meanwhile: read it again")
        known.version = version + 1  # type: ignore[attr-defined]

    async def delete(self, item_id: str) -> None:
        """Remove one; nothing happens when it is not there."""
        await self._session.fetch(self._sql(_DELETE), item_id)

    def _sql(self, statement: str) -> str:
        return statement.replace("{table}", self._table.name)

    def _read(self, row: Row) -> A:
        body, version = row
        return decode(self._table.kind, body, version)
