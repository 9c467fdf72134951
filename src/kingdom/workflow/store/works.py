"""Works and their tasks as rows.

A task is a row of its own, so that a step reads and writes the tasks it changes, however many a Work has. The version
of the Work guards them all: to change a task is to save its Work.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kingdom.workflow.domain.plan import WorkHead
from kingdom.workflow.domain.statuses import TaskStatus, WorkStatus
from kingdom.workflow.domain.work import Task, Work
from kingdom.workflow.store.documents import decode, encode
from kingdom.workflow.store.repositories import WORKS, PendingWrite, Row, TableRepository

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.store.repositories import DatabaseSession

_MAX_ROWS: Final = 500  # of tasks in one statement
_NEXT_TASKS: Final = 2  # read with a step: the one it is about, usually, and the one behind it
_NOT_IN_BODY: Final = ("tasks", "partial")
_STATUSES: Final = {str(status): status for status in WorkStatus}
_OPEN: Final = f"status <> '{TaskStatus.COMPLETED}'"  # as in the index of open tasks
_SELECT_TASKS: Final = "SELECT work_id, id, body FROM wf_task"
# The joined tasks are found by their ids: with a condition instead, all tasks of the Work would be read.
_SELECT_STEP: Final = f"""
    SELECT work.id, work.body, work.version, its.id, its.body, its.version, task.id, task.body
    FROM wf_work AS work
    LEFT JOIN wf_workflow AS its ON its.id = work.workflow_id
    LEFT JOIN (
        SELECT CAST(? AS text) AS id
        UNION SELECT id FROM (
            SELECT id FROM wf_task WHERE work_id = ? AND {_OPEN} ORDER BY rank, id LIMIT {_NEXT_TASKS}
        ) AS next
    ) AS wanted ON 1 = 1
    LEFT JOIN wf_task AS task ON task.work_id = work.id AND task.id = wanted.id
    WHERE work.id = ? ORDER BY task.rank, task.id
"""  # noqa: S608  made of constants
_SELECT_HEADS: Final = """
    SELECT id, rank, status, name, waits, checkpoint FROM wf_work WHERE workflow_id = ? ORDER BY rank, id
"""
_WRITE_TASKS: Final = """
    INSERT INTO wf_task (work_id, id, rank, status, body) VALUES {rows}
    ON CONFLICT (work_id, id) DO UPDATE SET rank = excluded.rank, status = excluded.status, body = excluded.body
"""
_WRITE_BOTH: Final = """
    WITH written AS ({update}), tasks AS (
        INSERT INTO wf_task (work_id, id, rank, status, body)
        SELECT * FROM (VALUES {rows}) AS task (work_id, id, rank, status, body) WHERE EXISTS (SELECT FROM written)
        ON CONFLICT (work_id, id) DO UPDATE SET rank = excluded.rank, status = excluded.status, body = excluded.body
    )
    SELECT id FROM written
"""
_PLAIN_ROW: Final = "(?, ?, ?, ?, ?)"
_TYPED_ROW: Final = "(?::text, ?::text, ?::integer, ?::text, ?::text)"
_DELETE_TASKS: Final = "DELETE FROM wf_task WHERE work_id = ?"


class _TaskRow(NamedTuple):
    work_id: str
    id: str
    rank: int
    status: str
    body: str


class WorkRepository(TableRepository[Work]):
    """The works of a transaction. All methods but the ``find_…`` ones return them with all their tasks."""

    def __init__(self, session: DatabaseSession, before_write: Callable[[], Awaitable[None]]) -> None:
        super().__init__(session, WORKS, before_write)
        self._found: dict[str, WorkStatus] = {}  # the statuses that this transaction found, by id
        self._first: dict[str, set[str]] = {}  # by work id, ids of tasks that no open task before them is missing for
        self._tasks: dict[str, dict[str, str]] = {}  # the stored bodies of tasks that were read, by work id

    # ── parts of a Work ───────────────────────────────────────────────────────────────────────────────────────

    async def find_at_work(
        self, work_id: str, task_id: str = "", workflows: TableRepository[Workflow] | None = None
    ) -> Work | None:
        """Return a Work with the tasks that a step needs, or None: the given one and the first that are not done.

        With ``workflows``, its workflow is read by the same query.
        """
        found = self._loaded.get(work_id)
        if found is None:
            rows = await self._session.fetch(_SELECT_STEP, task_id, work_id, work_id)
            if not rows:
                return None
            if workflows is not None and rows[0][3] is not None:
                workflows._read(rows[0][3:6])
            found = self._read(rows[0][:3])
            self._add_tasks(found, ((work_id, *row[6:]) for row in rows if row[6] is not None))
            first = {task.id for task in found.tasks if task.id != task_id}
            # With fewer, the given task is one of the first, or there are no others.
            self._first[work_id] = first if len(first) == _NEXT_TASKS else {*first, task_id}
        elif found.partial and task_id and all(task.id != task_id for task in found.tasks):
            rows = await self._session.fetch(f"{_SELECT_TASKS} WHERE work_id = ? AND id = ?", work_id, task_id)
            self._add_tasks(found, rows)
        return found

    async def find_open(self, work_id: str) -> Work | None:
        """Return a Work with its tasks that are not done, or None."""
        found = await self.find_at_work(work_id)
        if found is not None and found.partial and found.current_task is not None:
            await self._fill([found])
        return found

    async def next_task(self, work: Work) -> Task | None:
        """Return the running task or else the next one; None if all are done."""
        if work.partial and (work.current_task is None or work.current_task.id not in self._first.get(work.id, ())):
            marks = ", ".join("?" * len(work.tasks))
            rows = await self._session.fetch(
                f"{_SELECT_TASKS} WHERE work_id = ? AND {_OPEN} AND id NOT IN ({marks}) "
                f"ORDER BY rank, id LIMIT {_NEXT_TASKS}",
                work.id, *(task.id for task in work.tasks),
            )  # fmt: skip
            self._add_tasks(work, rows)
            all_read = len(rows) < _NEXT_TASKS
            known = {task.id for task in work.tasks} if all_read else {row[1] for row in rows}
            self._first.setdefault(work.id, set()).update(known)
        return work.current_task

    def status_changed(self, work: Work) -> bool:
        """Return whether this transaction changes the status of a Work, or creates it."""
        return self._found.get(work.id) is not work.status

    async def heads(self, workflow_id: str) -> builtins.list[WorkHead]:
        """Return what the order of a plan depends on."""
        return [
            WorkHead(work_id, rank, name, tuple(json.loads(waits)) if waits else (), _STATUSES[status], point)
            for work_id, rank, status, name, waits, point in await self._fetch(_SELECT_HEADS, workflow_id)
        ]

    # ── whole works ───────────────────────────────────────────────────────────────────────────────────────────

    async def find(self, item_id: str) -> Work | None:
        """Return the Work with all its tasks, or None."""
        found = await super().find(item_id)
        if found is not None:
            await self._fill([found])
        return found

    async def delete(self, item_id: str) -> None:
        """Delete the Work and its tasks, if it exists."""
        await super().delete(item_id)
        await self._session.fetch(_DELETE_TASKS, item_id)
        self._tasks.pop(item_id, None)

    async def _items(self, rows: Sequence[Row]) -> builtins.list[Work]:
        works = [self._read(row) for row in rows]
        await self._fill(works)
        return works

    async def _fill(self, works: Iterable[Work]) -> None:
        """Read the tasks of works that are not read yet."""
        missing = [work for work in works if work.partial]
        for part in _chunks(missing):
            marks = ", ".join("?" * len(part))
            rows = await self._session.fetch(
                f"{_SELECT_TASKS} WHERE work_id IN ({marks}) ORDER BY rank, id", *(work.id for work in part)
            )
            by_work: dict[str, list[Row]] = {}
            for row in rows:
                by_work.setdefault(row[0], []).append(row)
            for work in part:
                self._add_tasks(work, by_work.get(work.id, ()))
                work.partial = False

    def _add_tasks(self, work: Work, rows: Iterable[Row]) -> None:
        """Add tasks that were read, in order. Those that the Work has already may be changed: they stay."""
        known, bodies = {task.id for task in work.tasks}, self._tasks.setdefault(work.id, {})
        for _, task_id, body in rows:
            if task_id not in known:
                bodies[task_id] = body
                work.tasks.append(decode(Task, body))
        work.tasks.sort(key=lambda task: (task.order, task.id))

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _insert(self, item: Work) -> None:
        await super()._insert(item)
        self._tasks[item.id] = {}
        await self._write_tasks(item)

    async def _write(self, item: Work, before: int) -> None:
        rows, gone = self._changed_tasks(item)
        if self._session.nests_inserts and item.id in self._tasks and not gone and 0 < len(rows) <= _MAX_ROWS:
            update, values = self._update(item, before)  # both in one statement: one round trip less per step
            sql = _rows_sql(_WRITE_BOTH, len(rows), _TYPED_ROW).replace("{update}", update)
            self._written(item, await self._session.fetch(sql, *values, *chain(*rows)))
            self._tasks[item.id] |= {row.id: row.body for row in rows}
        else:
            await super()._write(item, before)
            await self._write_tasks(item)

    def _changed_tasks(self, work: Work) -> tuple[builtins.list[_TaskRow], set[str]]:
        """Return the tasks that differ from what is stored, and the ids of those that were taken out."""
        stored = self._tasks.get(work.id, {})
        rows = [_TaskRow(work.id, task.id, task.order, str(task.status), encode(task)) for task in work.tasks]
        return [row for row in rows if stored.get(row.id) != row.body], stored.keys() - {row.id for row in rows}

    async def _write_tasks(self, work: Work) -> None:
        if work.id not in self._tasks and not work.partial:  # another transaction read it
            await self._session.fetch(_DELETE_TASKS, work.id)
        rows, gone = self._changed_tasks(work)
        for part in _chunks(rows):
            await self._session.fetch(_rows_sql(_WRITE_TASKS, len(part), _PLAIN_ROW), *chain(*part))
        for task_id in gone:
            await self._session.fetch(f"{_DELETE_TASKS} AND id = ?", work.id, task_id)
        known = self._tasks.setdefault(work.id, {})
        known |= {row.id: row.body for row in rows}
        for task_id in gone:
            del known[task_id]

    def _body(self, item: Work) -> str:
        return encode(item, _NOT_IN_BODY)

    def _decode(self, body: str, version: int) -> Work:
        work = decode(Work, body, version, tasks=[], partial=True)
        self._found[work.id] = work.status
        return work

    def pending_writes(self) -> dict[str, PendingWrite]:
        """Return copies of what was saved and is not written yet."""
        return {
            work_id: write._replace(parts=dict(self._tasks[work_id]) if work_id in self._tasks else None)
            for work_id, write in super().pending_writes().items()
        }

    def restored(self, kept: dict[str, PendingWrite]) -> Self:
        """Return a new repository with these pending writes."""
        new = super().restored(kept)
        new._tasks = {work_id: write.parts for work_id, write in kept.items() if write.parts is not None}
        return new

    def _empty(self) -> Self:
        return type(self)(self._session, self._before_write)


def _chunks(items: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (items[start : start + _MAX_ROWS] for start in range(0, len(items), _MAX_ROWS))


@cache
def _rows_sql(statement: str, count: int, row: str) -> str:
    return statement.replace("{rows}", ", ".join([row] * count))
