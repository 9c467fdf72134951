"""The plan of a workflow: which Work waits for which, and how the plan may be changed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from kingdom.workflow.domain.landing import LandPlan
from kingdom.workflow.domain.resources import GitRef, McpServerRef
from kingdom.workflow.domain.statuses import ReportStatus, TaskStatus, WorkStatus
from kingdom.workflow.domain.work import Task, Work
from kingdom.workflow.domain.workflow import (
    TaskDefinition,
    WorkDefinition,
    Workflow,
    WorkflowTemplate,
    check_continues,
    check_merge,
    check_plan,
    check_tasks,
)
from kingdom.workflow.errors import InvalidPlan, NotFound, NotModifiable


class WorkHead(NamedTuple):
    """What the order of a plan depends on, without the Work itself."""

    id: str
    sequence: int
    name: str
    after: tuple[str, ...]
    status: WorkStatus
    checkpoint_id: str | None

    @property
    def done(self) -> bool:
        """Whether it is COMPLETED and has its checkpoint."""
        return self.status is WorkStatus.COMPLETED and self.checkpoint_id is not None


W = TypeVar("W", bound=Work | WorkHead)


class WorkDependencies(Generic[W]):
    """Which works of a workflow wait for which.

    A Work without ``after`` waits for all before it; one after ``start`` waits for none.
    """

    def __init__(self, works: Sequence[W]) -> None:
        self.works = sorted(works, key=lambda work: work.sequence)
        self._sequences = [work.sequence for work in self.works]
        self._names = {work.name: work for work in self.works}
        self._plain = not any(work.after for work in self.works)
        self._before: dict[str, set[str]] = {}

    def waits_for(self, work: Work | WorkHead) -> list[W]:
        """Return the works it waits for directly."""
        if work.after:
            return [self._names[name] for name in work.after if name in self._names]  # START is no Work
        return self.works[: bisect_left(self._sequences, work.sequence)]

    def before(self, work: Work | WorkHead) -> set[str]:
        """Return the ids of all works that are done before it starts."""
        known = self._before
        open_ends: list[Work | WorkHead] = [work]
        while open_ends:
            waits = self.waits_for(open_ends[-1])
            if missing := [other for other in waits if other.id not in known]:
                open_ends += reversed(missing)
                continue
            found = known[open_ends.pop().id] = set()
            for other in reversed(waits):  # the last one usually waits for the others
                if other.id not in found:
                    found |= known[other.id]
                    found.add(other.id)
        return known[work.id]

    def apart(self, work: Work | WorkHead) -> bool:
        """Return whether another Work may run at the same time: then each has its own worktrees."""
        if self._plain:
            return False
        mine = self.before(work)
        return any(
            other.id not in mine and work.id not in self.before(other) for other in self.works if other.id != work.id
        )

    def startable(self, done: Collection[str]) -> list[W]:
        """Return the works that may start now; ``done`` are the ids of works with a checkpoint."""
        finished = frozenset(done)
        first_open = next((work.sequence for work in self.works if work.id not in finished), None)
        return [
            work
            for work in self.works
            if work.status is WorkStatus.PENDING
            and (
                all(other.id in finished for other in self.waits_for(work))
                if work.after
                else first_open is None or work.sequence <= first_open  # all before it are done
            )
        ]

    def merged_into(self, work: Work) -> list[W]:
        """Return the works whose own worktrees are merged into it before it starts."""
        return [other for other in self.waits_for(work) if self.apart(other)] if work.merge else []


# ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────


NewId: TypeAlias = Callable[[str], str]
_OPEN_TASKS: Final = (TaskStatus.PENDING, TaskStatus.FAILED, TaskStatus.RUNNING)  # RUNNING: of a Work that was paused
OPEN_WORKS: Final = (WorkStatus.PENDING, WorkStatus.PAUSED, WorkStatus.WAITING, WorkStatus.FAILED)
_TASK_FIELDS: Final = frozenset(item.name for item in fields(TaskDefinition))
_WORK_FIELDS: Final = frozenset(item.name for item in fields(WorkDefinition)) - {"tasks"}
_LINKS: Final = frozenset({"after", "merge", "continues"})


@dataclass(frozen=True, slots=True)
class AddTask:
    """Add a task to a work, at position `at` (default: the end)."""

    work_id: str
    task: TaskDefinition
    at: int | None = None


@dataclass(frozen=True, slots=True)
class RemoveTask:
    """Remove a task."""

    task_id: str


@dataclass(frozen=True, slots=True)
class UpdateTask:
    """Change the values of a task."""

    task_id: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReorderTasks:
    """Reorder the tasks of a work. List all tasks that have not started."""

    work_id: str
    task_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddWork:
    """Add a work, at position `at` (default: the end)."""

    work: WorkDefinition
    at: int | None = None


@dataclass(frozen=True, slots=True)
class RemoveWork:
    """Remove a work."""

    work_id: str


@dataclass(frozen=True, slots=True)
class UpdateWork:
    """Change the values of a work."""

    work_id: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReorderWorks:
    """Reorder the works. List all works that have not started."""

    work_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetGitRefs:
    """Replace the repositories of the workflow."""

    git_refs: tuple[GitRef, ...]


@dataclass(frozen=True, slots=True)
class SetMcpServerRefs:
    """Replace the MCP servers of the workflow; effective for works that start later."""

    mcp_server_refs: tuple[McpServerRef, ...]


@dataclass(frozen=True, slots=True)
class SetDetails:
    """Change the name and the description."""

    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class SetLandPlan:
    """Change how the workflow is landed when it is completed."""

    land: LandPlan | None


PlanChange: TypeAlias = (
    AddTask | RemoveTask | UpdateTask | ReorderTasks | AddWork | RemoveWork | UpdateWork | ReorderWorks
)
WorkflowChange: TypeAlias = SetGitRefs | SetMcpServerRefs | SetDetails | SetLandPlan
"""A change of the workflow itself, not of its works."""
Change: TypeAlias = PlanChange | WorkflowChange


@dataclass(slots=True)
class PlanEditor:
    """Applies changes to the works of a workflow. If one raises, discard the editor: nothing is saved."""

    works: list[Work]
    workflow_id: str
    new_id: NewId
    touched: set[str] = field(default_factory=set)  # ids of works to save
    linked: set[str] = field(default_factory=set)  # ids of works that were given new links to others
    removed: list[Work] = field(default_factory=list)

    def apply(self, changes: Iterable[PlanChange]) -> None:
        """Apply changes in order, then check the plan."""
        for change in changes:
            _EDITORS[type(change)](self, change)
        for sequence, work in enumerate(self.works):
            if work.sequence != sequence:
                work.sequence = sequence
                self.touched.add(work.id)
        check_plan((work.name, work.after) for work in self.works)
        names = [work.name for work in self.works]
        for work in self.works:
            check_tasks(work.name, work.tasks)
            if work.id in self.linked:
                check_merge(merge=work.merge, after=work.after)
                check_continues(work.name, work.continues, names)

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────

    def add_task(self, change: AddTask) -> None:
        """Add a task behind those that are done."""
        work = self._open_work(change.work_id)
        at = len(work.tasks) if change.at is None else change.at
        first = len(work.tasks) - len(_open_tasks(work))
        if not first <= at <= len(work.tasks):
            raise NotModifiable(
                f"a task of {work.name} can be put at {first} to {len(work.tasks)}, not at {at}: what is done stays"
            )
        work.tasks.insert(at, task_from(change.task, at, self.new_id))
        self._renumber(work)

    def remove_task(self, change: RemoveTask) -> None:
        """Remove a task that is not done."""
        work, task = self._open_task(change.task_id)
        work.tasks.remove(task)
        self._renumber(work)

    def update_task(self, change: UpdateTask) -> None:
        """Change a task that is not done; the values of a failed or interrupted one apply to its next attempt."""
        work, task = self._open_task(change.task_id)
        values = _checked_values("a task", change.values, _TASK_FIELDS)
        for name, value in values.items():
            setattr(task, name, value)
        if "query" in values:
            task.forget_response()
        if "outline" in values and task.report_status in (ReportStatus.NOT_REQUIRED, ReportStatus.PENDING):
            task.report_status = ReportStatus.PENDING if task.outline else ReportStatus.NOT_REQUIRED
        self.touched.add(work.id)

    def reorder_tasks(self, change: ReorderTasks) -> None:
        """Reorder the pending tasks."""
        work = self._open_work(change.work_id)
        movable = [task for task in _open_tasks(work) if task.status is TaskStatus.PENDING]
        fixed = [task for task in work.tasks if task not in movable]
        work.tasks = fixed + _reordered(f"tasks of work {work.name}", movable, change.task_ids)
        self._renumber(work)

    # ── works ─────────────────────────────────────────────────────────────────────────────────────────────────

    def add_work(self, change: AddWork) -> None:
        """Add a Work behind those that have started."""
        begun = self._begun()
        at = len(self.works) if change.at is None else change.at
        if not begun <= at <= len(self.works):
            raise NotModifiable(f"a work can be put at {begun} to {len(self.works)}, not at {at}: what has begun stays")
        work = work_from(change.work, self.workflow_id, at, self.new_id)
        self.works.insert(at, work)
        self.linked.add(work.id)
        self.touched.add(work.id)

    def remove_work(self, change: RemoveWork) -> None:
        """Remove a Work that has not started."""
        work = self._waiting_work(change.work_id)
        self.works.remove(work)
        self.removed.append(work)
        self._link_those_continuing(work.name)

    def update_work(self, change: UpdateWork) -> None:
        """Change a Work; once it has started, ``after`` and ``merge`` are fixed."""
        work = self._open_work(change.work_id)
        values = _checked_values("a work", change.values, _WORK_FIELDS)
        if work.status is not WorkStatus.PENDING and (late := {"after", "merge"} & values.keys()):
            raise NotModifiable(f"work {work.name} has begun: its {min(late)} cannot be changed any more")
        if values.get("name", work.name) != work.name:
            self._link_those_continuing(work.name)
        for name, value in values.items():
            setattr(work, name, value)
        if _LINKS & values.keys():
            self.linked.add(work.id)
        self.touched.add(work.id)

    def reorder_works(self, change: ReorderWorks) -> None:
        """Reorder the works that have not started."""
        begun = self._begun()
        fixed, movable = self.works[:begun], self.works[begun:]
        self.works = fixed + _reordered("works", movable, change.work_ids)

    # ── lookup ────────────────────────────────────────────────────────────────────────────────────────────────

    def _link_those_continuing(self, name: str) -> None:
        self.linked.update(work.id for work in self.works if work.continues == name)

    def _begun(self) -> int:
        """Return how many works are fixed: all up to the last one that has started."""
        return max((index + 1 for index, w in enumerate(self.works) if w.status is not WorkStatus.PENDING), default=0)

    def _work(self, work_id: str) -> Work:
        found = next((work for work in self.works if work.id == work_id), None)
        if found is None:
            raise NotFound(f"workflow {self.workflow_id} has no work {work_id}")
        return found

    def _open_work(self, work_id: str) -> Work:
        work = self._work(work_id)
        if work.status not in OPEN_WORKS:
            raise NotModifiable(f"work {work.name} is {work.status} and cannot be changed any more")
        return work

    def _waiting_work(self, work_id: str) -> Work:
        work = self._work(work_id)
        if work.status is not WorkStatus.PENDING or any(task.status is TaskStatus.COMPLETED for task in work.tasks):
            raise NotModifiable(f"work {work.name} has begun and cannot be taken out any more")
        return work

    def _open_task(self, task_id: str) -> tuple[Work, Task]:
        for work in self.works:
            for task in work.tasks:
                if task.id == task_id:
                    self._open_work(work.id)
                    if task.status not in _OPEN_TASKS:
                        raise NotModifiable(
                            f"task {task.name} of work {work.name} is {task.status}: what is done stays"
                        )
                    return work, task
        raise NotFound(f"workflow {self.workflow_id} has no task {task_id}")

    def _renumber(self, work: Work) -> None:
        for order, task in enumerate(work.tasks):
            task.order = order
        self.touched.add(work.id)


_EDITORS: Final[dict[type, Callable[[PlanEditor, Any], None]]] = {
    AddTask: PlanEditor.add_task,
    RemoveTask: PlanEditor.remove_task,
    UpdateTask: PlanEditor.update_task,
    ReorderTasks: PlanEditor.reorder_tasks,
    AddWork: PlanEditor.add_work,
    RemoveWork: PlanEditor.remove_work,
    UpdateWork: PlanEditor.update_work,
    ReorderWorks: PlanEditor.reorder_works,
}


def work_from(definition: WorkDefinition, workflow_id: str, sequence: int, new_id: NewId) -> Work:
    """Create a Work of a workflow from its definition."""
    tasks = [task_from(task, order, new_id) for order, task in enumerate(definition.tasks)]
    values = _values(definition, _WORK_FIELDS) | {"engine_options": dict(definition.engine_options)}
    return Work(new_id("work"), workflow_id, sequence, tasks=tasks, **values)


def task_from(definition: TaskDefinition, order: int, new_id: NewId) -> Task:
    """Create a task of a Work from its definition."""
    return Task(new_id("task"), order, **_values(definition, _TASK_FIELDS))


def definition_of(work: Work) -> WorkDefinition:
    """Return the plan of an existing Work."""
    tasks = tuple(TaskDefinition(**_values(task, _TASK_FIELDS)) for task in work.tasks)
    return WorkDefinition(tasks=tasks, **_values(work, _WORK_FIELDS))


def plan_of(workflow: Workflow, works: Iterable[Work]) -> WorkflowTemplate:
    """Return the current plan of a workflow as a template."""
    return WorkflowTemplate(
        workflow.id,
        workflow.name,
        tuple(definition_of(work) for work in works),
        workflow.description,
        workflow.git_refs,
        workflow.mcp_server_refs,
        workflow.on_failure,
        workflow.land,
    )


def _values(item: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(item, name) for name in names}


def continuing(last: Work, name: str, query: str) -> WorkDefinition:
    """Return a Work of one task that goes on in the conversation of another one."""
    return replace(
        definition_of(last),
        name=name,
        tasks=(TaskDefinition("go-on", query),),
        after=(),
        merge=False,
        pause_after=False,
        continues=last.name,
    )


def _open_tasks(work: Work) -> list[Task]:
    return [task for task in work.tasks if task.status in _OPEN_TASKS]


def _checked_values(what: str, values: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    if unknown := values.keys() - known:
        raise InvalidPlan(f"{what} has no {min(unknown)!r} to change: {', '.join(sorted(known))}")
    tuples = {"outline", "mcp_server_refs", "after"} & values.keys()
    return {**values, **{name: tuple(values[name]) for name in tuples}}


def _reordered(what: str, items: Sequence[Any], ids: Sequence[str]) -> list[Any]:
    by_id = {item.id: item for item in items}
    if sorted(ids) != sorted(by_id):
        raise NotModifiable(
            f"the order of {what} takes exactly those that have not begun: {', '.join(by_id) or 'none'}"
        )
    return [by_id[item_id] for item_id in ids]
