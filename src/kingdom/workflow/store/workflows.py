"""Workflows as rows, and the statuses of their works."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, Self

from kingdom.workflow.domain.statuses import WorkStatus
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.store.documents import decode, encode
from kingdom.workflow.store.repositories import WORKFLOWS, Row, TableRepository, joined

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kingdom.workflow.store.repositories import DatabaseSession

_MAX_WORKFLOWS: Final = 500  # in one statement
_NOT_IN_BODY: Final = ("work_statuses",)  # the works have them
_SELECT_STATUSES: Final = "SELECT workflow_id, id, status FROM wf_work WHERE workflow_id IN ({marks}) ORDER BY rank, id"

_SELECT_PROGRESS: Final = """
    SELECT workflow_id, count(*), sum(CASE WHEN status = 'COMPLETED' THEN 1 ELSE 0 END)
    FROM wf_work WHERE {wanted} GROUP BY workflow_id
"""
_SELECT_IDS: Final = "SELECT {ids} FROM wf_workflow WHERE {wanted}"  # as one value: rows take ten times as long
_SELECT_CHANGED: Final = "SELECT DISTINCT aggregate_id FROM wf_event WHERE position > ? AND position <= ?"
# Only the entries of a page leave the database: to fetch ten thousand from SQLite and sort them takes 15 ms and more.
_SELECT_SORTED: Final = """
    SELECT sort_key, id FROM (SELECT id, {key} AS sort_key FROM wf_workflow WHERE {wanted}) AS entry
    WHERE {following} ORDER BY sort_key, id DESC LIMIT ?
"""
_LAST: Final = "\U0010ffff"  # those without an issue come last


class WorkflowRepository(TableRepository[Workflow]):
    """The workflows of a transaction, with the statuses of their works as they are stored."""

    def __init__(self, session: DatabaseSession, before_write: Callable[[], Awaitable[None]]) -> None:
        super().__init__(session, WORKFLOWS, before_write)
        self._complete: set[str] = set()  # ids of those whose statuses were read

    async def find_alone(self, workflow_id: str) -> Workflow | None:
        """Return the workflow without the statuses of its works, or None: what a step needs, however long the plan."""
        if (found := self._loaded.get(workflow_id)) is not None:
            return found
        rows = await self._session.fetch(f"{self._select} WHERE id = ?", workflow_id)
        return self._read(rows[0]) if rows else None

    async def find(self, item_id: str) -> Workflow | None:
        """Return the workflow, or None."""
        found = await self.find_alone(item_id)
        if found is not None:
            await self._fill([found])
        return found

    async def progress(self, workflow_ids: Sequence[str] | None = None) -> dict[str, float]:
        """Return which part of the works of each workflow, or of these, is completed, from 0 to 1."""
        wanted = "1 = 1" if workflow_ids is None else f"workflow_id IN ({', '.join('?' * len(workflow_ids))})"
        rows = await self._fetch(_SELECT_PROGRESS.replace("{wanted}", wanted), *(workflow_ids or ()))
        return {str(item_id): float(done) / float(total) for item_id, total, done in rows}

    async def last_event(self) -> int:
        """Return the position of the last event of all workflows."""
        ((last,),) = await self._session.fetch("SELECT max(position) FROM wf_event")
        return int(last or 0)

    async def changed_between(self, after: int, last: int) -> builtins.list[str]:
        """Return the ids of the workflows that have events after a position, up to another."""
        return [str(item_id) for (item_id,) in await self._session.fetch(_SELECT_CHANGED, after, last)]

    async def ids(
        self,
        *,
        statuses: Sequence[str] = (),
        search: str | None = None,
        first: str | None = None,
        end: str | None = None,
    ) -> builtins.list[str]:
        """Return all ids, newest first; the filters are those of :meth:`versions`."""
        wanted = self._wanted(statuses, search, first, end)
        select = _SELECT_IDS.replace("{ids}", self._session.joined_ids).replace("{wanted}", joined(wanted))
        ((found,),) = await self._fetch(select, *chain.from_iterable(values for _, values in wanted))
        return sorted(str(found).split(","), reverse=True) if found else []

    async def sorted_by(
        self,
        column: Literal["name", "issue", "status"],
        *,
        statuses: Sequence[str] = (),
        search: str | None = None,
        first: str | None = None,
        end: str | None = None,
        after: tuple[str, str] | None = None,
        limit: int = 100,
    ) -> builtins.list[tuple[str, str]]:
        """Return values of a column from A to Z, with their ids, the newest first among equals.

        ``after`` is the last of the previous page; the filters are those of :meth:`versions`.
        """
        wanted = self._wanted(statuses, search, first, end)
        if column == "status":
            wanted.append(("status IS NOT NULL", ()))  # the index of the statuses has these, and no row is read
            key = "status"
        else:
            line = self._session.first_line if column == "name" else self._session.other_lines
            key = f"coalesce(nullif({line}, ''), '{_LAST}')".replace("{text}", "coalesce(label, '')")
        values = list(chain.from_iterable(values for _, values in wanted))
        if after is not None:
            values += [after[0], after[0], after[1]]
        following = "1 = 1" if after is None else "sort_key > ? OR (sort_key = ? AND id < ?)"
        select = _SELECT_SORTED.replace("{key}", key).replace("{wanted}", joined(wanted))
        rows = await self._fetch(select.replace("{following}", following), *values, limit)
        return [(str(value), str(item_id)) for value, item_id in rows]

    async def _items(self, rows: Sequence[Row]) -> builtins.list[Workflow]:
        workflows = [self._read(row) for row in rows]
        await self._fill(workflows)
        return workflows

    async def _fill(self, workflows: Iterable[Workflow]) -> None:
        missing = {workflow.id: workflow for workflow in workflows if workflow.id not in self._complete}
        self._complete |= missing.keys()
        ids = list(missing)
        for start in range(0, len(ids), _MAX_WORKFLOWS):
            part = ids[start : start + _MAX_WORKFLOWS]
            select = _SELECT_STATUSES.replace("{marks}", ", ".join("?" * len(part)))
            for workflow_id, work_id, status in await self._session.fetch(select, *part):
                missing[workflow_id].work_statuses.setdefault(work_id, WorkStatus(status))

    async def _insert(self, item: Workflow) -> None:
        await super()._insert(item)
        self._complete.add(item.id)

    def _body(self, item: Workflow) -> str:
        return encode(item, _NOT_IN_BODY)

    def _decode(self, body: str, version: int) -> Workflow:
        return decode(Workflow, body, version, work_statuses={})  # an older version stored them

    def _empty(self) -> Self:
        return type(self)(self._session, self._before_write)
