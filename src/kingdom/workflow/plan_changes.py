"""A plan that was edited as a whole, as the changes that make it so: each with its words for people.

Works and tasks are known by their names: what has another name is another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, TypeAlias, TypeVar

from kingdom.workflow.domain.changes import (
    AddTask,
    AddWork,
    Change,
    RemoveTask,
    RemoveWork,
    ReorderTasks,
    ReorderWorks,
    SetGitRefs,
    SetMcpServerRefs,
    UpdateTask,
    UpdateWork,
)
from kingdom.workflow.domain.errors import NotModifiable
from kingdom.workflow.domain.statuses import TaskStatus, WorkStatus
from kingdom.workflow.domain.task import Task
from kingdom.workflow.domain.template import TaskDefinition, WorkDefinition, WorkflowTemplate
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.usecases.create_template_from_workflow import definition_of

Told: TypeAlias = tuple[str, Change]
N = TypeVar("N", Work, Task)


def plan_of(workflow: Workflow, works: Sequence[Work]) -> WorkflowTemplate:
    """The plan a workflow has now, in the form of a template."""
    return WorkflowTemplate(
        workflow.id,
        workflow.name,
        tuple(definition_of(work) for work in works),
        workflow.description,
        workflow.git_refs,
        workflow.mcp_server_refs,
        workflow.on_failure,
    )


def plan_changes(workflow: Workflow, works: Sequence[Work], wanted: WorkflowTemplate) -> list[Told]:
    """What makes the plan of a workflow into the wanted one; empty when it is that.

    Raises :class:`NotModifiable` for what cannot be changed in a workflow. What has begun is left to
    :class:`kingdom.workflow.usecases.modify_workflow.ModifyWorkflow` to refuse.
    """
    if wanted.on_failure != workflow.on_failure:
        raise NotModifiable(f"on_failure of workflow {workflow.id} is {workflow.on_failure} and stays so")
    found: list[Told] = []
    if wanted.git_refs != workflow.git_refs:
        found.append(("other repositories", SetGitRefs(wanted.git_refs)))
    if wanted.mcp_server_refs != workflow.mcp_server_refs:
        found.append(("other MCP servers", SetMcpServerRefs(wanted.mcp_server_refs)))
    return [*found, *_works(works, wanted.works)]


def _works(works: Sequence[Work], wanted: Sequence[WorkDefinition]) -> Iterator[Told]:
    new = {definition.name: definition for definition in wanted}
    for work in works:
        if work.name not in new:
            yield f"work {work.name} is removed", RemoveWork(work.id)
    kept = [work for work in works if work.name in new]
    for work in kept:
        definition = new[work.name]
        if values := _different(definition_of(work), definition, leave="tasks"):
            yield f"work {work.name}: another {_listed(values)}", UpdateWork(work.id, values)
        yield from _tasks(work, definition.tasks)
    yield from _work_order(kept, list(new))
    old = {work.name for work in works}
    for at, definition in enumerate(wanted):
        if definition.name not in old:
            yield f"work {definition.name} is added", AddWork(definition, at)


def _work_order(kept: Sequence[Work], names: Sequence[str]) -> Iterator[Told]:
    ordered = _in_order(kept, names)
    if ordered == list(kept):
        return
    begun = max((at + 1 for at, work in enumerate(kept) if work.status is not WorkStatus.PENDING), default=0)
    if ordered[:begun] != list(kept[:begun]):
        stay = ", ".join(work.name for work in kept[:begun])
        raise NotModifiable(f"works up to the last one that has begun stay in their order: {stay}")
    order = ", ".join(work.name for work in ordered)
    yield f"works in another order: {order}", ReorderWorks(tuple(work.id for work in ordered[begun:]))


def _tasks(work: Work, wanted: Sequence[TaskDefinition]) -> Iterator[Told]:
    new = {definition.name: definition for definition in wanted}
    before = {task.name: definition for task, definition in zip(work.tasks, definition_of(work).tasks, strict=True)}
    for task in work.tasks:
        if task.name not in new:
            yield f"work {work.name}: task {task.name} is removed", RemoveTask(task.id)
        elif values := _different(before[task.name], new[task.name]):
            yield f"work {work.name}: task {task.name}: another {_listed(values)}", UpdateTask(task.id, values)
    kept = [task for task in work.tasks if task.name in new]
    ordered = _in_order(kept, list(new))
    if ordered != kept:
        waiting = tuple(task.id for task in ordered if task.status is TaskStatus.PENDING)
        order = ", ".join(task.name for task in ordered)
        yield f"work {work.name}: tasks in another order: {order}", ReorderTasks(work.id, waiting)
    for at, definition in enumerate(wanted):
        if definition.name not in before:
            yield f"work {work.name}: task {definition.name} is added", AddTask(work.id, definition, at)


def _in_order(items: Sequence[N], names: Sequence[str]) -> list[N]:
    return sorted(items, key=lambda item: names.index(item.name))


def _different(before: Any, after: Any, leave: str = "") -> dict[str, Any]:
    names = [field.name for field in fields(before) if field.name != leave]
    return {name: getattr(after, name) for name in names if getattr(before, name) != getattr(after, name)}


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(name.replace("_", " ") for name in values)
