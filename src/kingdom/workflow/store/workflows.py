"""Workflows as rows, and the statuses of their works."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Self

from kingdom.workflow.domain.statuses import WorkStatus
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.store.documents import decode, encode
from kingdom.workflow.store.repositories import WORKFLOWS, Row, TableRepository

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kingdom.workflow.store.repositories import DatabaseSession

_MAX_WORKFLOWS: Final = 500  # in one statement
_NOT_IN_BODY: Final = ("work_statuses",)  # the works have them
_SELECT_STATUSES: Final = "SELECT workflow_id, id, status FROM wf_work WHERE workflow_id IN ({marks}) ORDER BY rank, id"


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
