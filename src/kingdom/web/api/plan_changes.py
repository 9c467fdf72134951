"""``PATCH /api/workflows/{id}`` and ``/plan``: change the part of a plan that has not started."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from kingdom.web.api.templates import YamlText
from kingdom.web.api.workflow_models import (
    Description,
    EngineName,
    GitRefBody,
    IdText,
    ListPosition,
    McpServerRefBody,
    ModelName,
    Name,
    Outline,
    QueryText,
    RetryCount,
    TaskBody,
    Variables,
    WorkBody,
    WorkflowId,
    Yaml,
    error_prefix,
    workflow_router,
)
from kingdom.web.api.workflows import check_refs
from kingdom.web.context import Context, WebContext
from kingdom.web.envelope import ApiError, ApiModel, Ok, ok
from kingdom.web.views import templates, workflows
from kingdom.web.views.redaction import restore_ref_secrets, restore_secrets
from kingdom.web.views.templates import EXAMPLE_YAML, git_refs, mcp_refs, task_definition, work_definition
from kingdom.web.views.workflow_state import find_workflow, workflow_state
from kingdom.web.views.workflows import WorkflowFull
from kingdom.workflow import usecases
from kingdom.workflow.domain import plan as domain
from kingdom.workflow.domain.resources import McpServerRef
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.templates import plan_changes, plan_of

router = workflow_router("workflows", "workflows")


class TaskValues(ApiModel):
    """New values of a task; omitted fields are unchanged."""

    name: Name | None = None
    query: QueryText | None = None
    outline: Outline | None = None
    retries: RetryCount | None = None


class WorkValues(ApiModel):
    """New values of a work; omitted fields are unchanged."""

    name: Name | None = None
    engine: EngineName | None = None
    model: ModelName | None = Field(default=None, description="null: the engine's default model.")
    engine_options: Variables | None = None
    mcp_server_refs: Annotated[list[McpServerRefBody], Field(max_length=20)] | None = None
    after: Annotated[list[Name], Field(max_length=50)] | None = None
    merge: bool | None = None
    pause_after: bool | None = None


class AddTaskChange(ApiModel):
    """Add a task to a work, at position `at` (default: the end)."""

    type: Literal["addTask"]
    work_id: IdText
    task: TaskBody
    at: ListPosition | None = None


class RemoveTaskChange(ApiModel):
    """Remove a task."""

    type: Literal["removeTask"]
    task_id: IdText


class UpdateTaskChange(ApiModel):
    """Change the values of a task."""

    type: Literal["updateTask"]
    task_id: IdText
    values: TaskValues


class ReorderTasksChange(ApiModel):
    """Reorder the tasks of a work. List all tasks that have not started."""

    type: Literal["reorderTasks"]
    work_id: IdText
    task_ids: Annotated[list[IdText], Field(max_length=100)]


class AddWorkChange(ApiModel):
    """Add a work, at position `at` (default: the end)."""

    type: Literal["addWork"]
    work: WorkBody
    at: ListPosition | None = None


class RemoveWorkChange(ApiModel):
    """Remove a work."""

    type: Literal["removeWork"]
    work_id: IdText


class UpdateWorkChange(ApiModel):
    """Change the values of a work."""

    type: Literal["updateWork"]
    work_id: IdText
    values: WorkValues


class ReorderWorksChange(ApiModel):
    """Reorder the works. List all works that have not started."""

    type: Literal["reorderWorks"]
    work_ids: Annotated[list[IdText], Field(max_length=100)]


class SetGitRefsChange(ApiModel):
    """Replace the repositories of the workflow."""

    type: Literal["setGitRefs"]
    git_refs: Annotated[list[GitRefBody], Field(max_length=20)]


class SetDetailsChange(ApiModel):
    """Change the name and the description."""

    type: Literal["setDetails"]
    name: Name
    description: Description = ""


class SetMcpServerRefsChange(ApiModel):
    """Replace the MCP servers of the workflow; effective for works that start later."""

    type: Literal["setMcpServerRefs"]
    mcp_server_refs: Annotated[list[McpServerRefBody], Field(max_length=20)]


PlanChange: TypeAlias = Annotated[
    AddTaskChange
    | RemoveTaskChange
    | UpdateTaskChange
    | ReorderTasksChange
    | AddWorkChange
    | RemoveWorkChange
    | UpdateWorkChange
    | ReorderWorksChange
    | SetGitRefsChange
    | SetMcpServerRefsChange
    | SetDetailsChange,
    Field(discriminator="type"),
]


class ModifyBody(ApiModel):
    """Changes of a plan. They are applied in order, all or none."""

    changes: Annotated[list[PlanChange], Field(min_length=1, max_length=100)] = Field(
        examples=[[{"type": "updateTask", "taskId": "task-0198c2d5", "values": {"query": "Fix it properly."}}]]
    )


class PlanBody(ApiModel):
    """The complete new plan. Works and tasks are matched by name."""

    yaml: Yaml = Field(examples=[EXAMPLE_YAML])
    dry_run: bool = Field(default=False, description="Only return the changes; do not apply them.")


class PlanChangeResult(ApiModel):
    """The changes between the old and the new plan."""

    changes: list[str] = Field(examples=[["work fix: task task-1: another query"]])
    made: bool = Field(description="Whether the changes were applied; false for a dry run and when nothing changes.")


@router.patch("/{workflowId}", summary="Modify a workflow")
async def modify_workflow(context: Context, workflow_id: WorkflowId, body: ModifyBody) -> Ok[WorkflowFull]:
    """Change the part of the plan that has not started. 409 MOD_NOT_NOW unless CREATED, READY, PAUSED or FAILED."""
    workflow, works = await _read(context, workflow_id)
    workflow.check_modifiable()
    changes = [await _domain_change(context, change, workflow, works) for change in body.changes]
    with error_prefix("MOD"):
        await usecases.modify_workflow(context.parts, workflow_id, changes)
    return ok(await workflows.read_workflow(context, workflow_id))


@router.get("/{workflowId}/plan", summary="Get the plan of a workflow as YAML", operation_id="getWorkflowPlan")
async def get_plan(context: Context, workflow_id: WorkflowId) -> Ok[YamlText]:
    """The current plan, in the format of a template."""
    return ok(YamlText(yaml=await workflows.read_plan(context, workflow_id)))


@router.put("/{workflowId}/plan", summary="Replace the plan of a workflow", operation_id="changeWorkflowPlan")
async def change_plan(context: Context, workflow_id: WorkflowId, body: PlanBody) -> Ok[PlanChangeResult]:
    """Apply the differences to the given plan and return them. The rules of PATCH apply."""
    workflow, works = await _read(context, workflow_id)
    workflow.check_modifiable()
    wanted = restore_secrets(await templates.from_yaml(context, body.yaml, workflow_id), plan_of(workflow, works))
    changes = plan_changes(workflow, works, wanted)
    made = bool(changes) and not body.dry_run
    if made:
        with error_prefix("MOD"):
            await usecases.modify_workflow(context.parts, workflow_id, [change for _, change in changes])
    return ok(PlanChangeResult(changes=[words for words, _ in changes], made=made))


async def _read(context: WebContext, workflow_id: str) -> tuple[Workflow, list[Work]]:
    async with context.parts.store.reading() as tx:
        return await find_workflow(tx, workflow_id), await tx.works.of_workflow(workflow_id)


async def _domain_change(context: WebContext, change: Any, workflow: Workflow, works: list[Work]) -> domain.Change:
    """Check the references of a change and convert it to the domain's form."""
    match change:
        case AddTaskChange():
            return domain.AddTask(change.work_id, task_definition(change.task), change.at)
        case RemoveTaskChange():
            return domain.RemoveTask(change.task_id)
        case UpdateTaskChange():
            return domain.UpdateTask(change.task_id, _given_values(change.values))
        case ReorderTasksChange():
            return domain.ReorderTasks(change.work_id, tuple(change.task_ids))
        case AddWorkChange():
            work = work_definition(change.work)
            _check_engine(context, work.engine)
            await _checked_refs(context, work.mcp_server_refs, ())
            return domain.AddWork(work, change.at)
        case RemoveWorkChange():
            return domain.RemoveWork(change.work_id)
        case UpdateWorkChange():
            return await _update_work(context, change, works)
        case ReorderWorksChange():
            return domain.ReorderWorks(tuple(change.work_ids))
        case SetDetailsChange():
            return domain.SetDetails(change.name, change.description)
        case SetGitRefsChange():
            refs = git_refs(change.git_refs)
            await check_refs(context, refs, ())
            return domain.SetGitRefs(refs)
        case _:
            wanted = mcp_refs(change.mcp_server_refs)
            return domain.SetMcpServerRefs(await _checked_refs(context, wanted, workflow.mcp_server_refs))


async def _update_work(context: WebContext, change: UpdateWorkChange, works: list[Work]) -> domain.UpdateWork:
    values = _given_values(change.values)
    if change.values.engine is not None:
        _check_engine(context, change.values.engine)
    if change.values.mcp_server_refs is not None:
        before = next((work.mcp_server_refs for work in works if work.id == change.work_id), ())
        values["mcp_server_refs"] = await _checked_refs(context, mcp_refs(change.values.mcp_server_refs), before)
    return domain.UpdateWork(change.work_id, values)


def _given_values(values: TaskValues | WorkValues) -> dict[str, Any]:
    """Return the given values. Only `model` may be null."""
    given = values.model_dump(exclude_unset=True)
    if nothing := [name for name, value in given.items() if value is None and name != "model"]:
        raise ApiError(422, "MOD_INVALID", f"values.{nothing[0]} is null: omit it to leave it unchanged")
    return given


async def _checked_refs(
    context: WebContext, refs: tuple[McpServerRef, ...], before: tuple[McpServerRef, ...]
) -> tuple[McpServerRef, ...]:
    await check_refs(context, (), refs)
    return restore_ref_secrets(refs, before)


def _check_engine(context: WebContext, name: str) -> None:
    known = sorted(workflow_state(context).engines)
    if name not in known:
        raise ApiError(422, "MOD_INVALID", f"unknown engine {name!r:.80}: use one of {', '.join(known)}")
