"""``PATCH /api/workflows/{id}`` and ``/plan``: change the part of a plan that has not started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import AfterValidator, Field, create_model

from kingdom.web.api.templates import YamlText
from kingdom.web.api.workflow_models import WorkflowId, Yaml, error_prefix, workflow_router
from kingdom.web.api.workflows import check_land, check_refs
from kingdom.web.context import Context, WebContext
from kingdom.web.envelope import ApiError, ApiModel, Ok, ok
from kingdom.web.views import templates, workflows
from kingdom.web.views.redaction import restore_ref_secrets, restore_secrets
from kingdom.web.views.templates import EXAMPLE_YAML
from kingdom.web.views.workflow_state import find_workflow, workflow_state
from kingdom.web.views.workflows import WorkflowFull
from kingdom.workflow import usecases
from kingdom.workflow.domain.plan import (
    AddWork,
    Change,
    SetGitRefs,
    SetLandPlan,
    SetMcpServerRefs,
    UpdateTask,
    UpdateWork,
    plan_of,
)
from kingdom.workflow.domain.resources import McpServerRef
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.plan_model import (
    Description,
    GitRefs,
    IdText,
    LandFields,
    McpServerRefs,
    Name,
    PlanModel,
    TaskFields,
    WorkFields,
    to_domain,
    values_of,
)
from kingdom.workflow.templates import plan_changes

router = workflow_router("workflows", "workflows")


# ── Changes, as JSON ──


_Ids: TypeAlias = Annotated[list[IdText], Field(max_length=100)]
_FIELDS: Final[Mapping[str, Any]] = {
    "work_id": IdText,
    "task_id": IdText,
    "work_ids": _Ids,
    "task_ids": _Ids,
    "at": Annotated[int, Field(ge=0, le=10_000)] | None,
    "task": TaskFields,
    "work": WorkFields,
    "git_refs": GitRefs,
    "mcp_server_refs": McpServerRefs,
    "name": Name,
    "description": Description,
    "land": LandFields | None,
}


_VALUES: Final[Mapping[type, Any]] = {UpdateTask: values_of(TaskFields), UpdateWork: values_of(WorkFields, "tasks")}


def _form_of(change: type) -> Any:
    """Return the model of a change of the domain: its fields, with the limits of a request."""
    name = change.__name__
    given: dict[str, Any] = {
        field.name: (_FIELDS.get(field.name) or _VALUES[change], ... if field.default is MISSING else field.default)
        for field in fields(change)
    }
    kind: Any = Literal[name[0].lower() + name[1:]]
    made = create_model(f"{name}Change", __base__=PlanModel, __doc__=change.__doc__, type=(kind, ...), **given)
    made.domain_class = change
    return made


_NULLABLE: Final = {name for name, field in WorkFields.model_fields.items() if field.default is None}
if TYPE_CHECKING:
    PlanChange: TypeAlias = Change
else:
    PlanChange = Annotated[
        reduce(or_, map(_form_of, get_args(Change))), Field(discriminator="type"), AfterValidator(to_domain)
    ]


# ── Operations ──


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
    changes = [await _checked(context, change, workflow, works) for change in body.changes]
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


async def _checked(context: WebContext, change: Change, workflow: Workflow, works: list[Work]) -> Change:
    """Check what a change refers to, and restore hidden values."""
    match change:
        case AddWork():
            _check_engine(context, change.work.engine)
            await _checked_refs(context, change.work.mcp_server_refs, ())
        case UpdateTask():
            _check_values(change.values)
        case UpdateWork():
            _check_values(change.values)
            if "engine" in change.values:
                _check_engine(context, change.values["engine"])
            if "mcp_server_refs" in change.values:
                before = next((work.mcp_server_refs for work in works if work.id == change.work_id), ())
                refs = await _checked_refs(context, change.values["mcp_server_refs"], before)
                return UpdateWork(change.work_id, {**change.values, "mcp_server_refs": refs})
        case SetGitRefs():
            await check_refs(context, change.git_refs, ())
        case SetMcpServerRefs():
            return SetMcpServerRefs(await _checked_refs(context, change.mcp_server_refs, workflow.mcp_server_refs))
        case SetLandPlan():
            check_land(change.land)
    return change


def _check_values(values: Mapping[str, Any]) -> None:
    if nothing := [name for name, value in values.items() if value is None and name not in _NULLABLE]:
        raise ApiError(422, "MOD_INVALID", f"values.{nothing[0]} is null: omit it to leave it unchanged")


async def _checked_refs(
    context: WebContext, refs: tuple[McpServerRef, ...], before: tuple[McpServerRef, ...]
) -> tuple[McpServerRef, ...]:
    await check_refs(context, (), refs)
    return restore_ref_secrets(refs, before)


def _check_engine(context: WebContext, name: str) -> None:
    known = sorted(workflow_state(context).engines)
    if name not in known:
        raise ApiError(422, "MOD_INVALID", f"unknown engine {name!r:.80}: use one of {', '.join(known)}")
