"""``/api/workflows/{id}/start|pause|resume|cancel|fork``, and deleting one.

Starting clones, resuming resets: both may take minutes. They are begun, and the answer is 202; what becomes of them is
told by the workflow's state and events. What is refused is refused at once.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from pydantic import Field, model_validator

from kingdom.web.api.work.routing import Deleted, WorkflowId, told_as, work_router
from kingdom.web.api.work.values import IdText, Name
from kingdom.web.context import Context, WebContext
from kingdom.web.envelope import ApiModel, Ok, ok
from kingdom.web.views import workflows
from kingdom.web.views.finding import find_checkpoint, find_workflow
from kingdom.web.views.workflows import Act, WorkflowFull, WorkflowSummary, allowed
from kingdom.workflow.domain.errors import IllegalTransition
from kingdom.workflow.usecases.fork_workflow import ForkWorkflow

router = work_router("workflows", "workflows")
_AT_ONCE: Final = 0.25  # seconds in which a refusal is waited for


class StartBody(ApiModel):
    """How to start."""

    prepare_only: bool = Field(default=False, description="Only make its worktrees: it stays READY.")


class PauseBody(ApiModel):
    """Why it is paused."""

    reason: str | None = Field(default=None, min_length=1, max_length=1000, examples=["I want to look at it"])


class ResumeBody(ApiModel):
    """Where to go on from: the last checkpoint, a chosen one, or (`retry`) where it stopped."""

    checkpoint_id: IdText | None = Field(default=None, examples=["cp-0198c2d7"])
    retry: bool = Field(default=False, description="Do not go back: try the task again at which it stopped.")

    @model_validator(mode="after")
    def _one_of_them(self) -> ResumeBody:
        if self.retry and self.checkpoint_id is not None:
            raise ValueError("retry goes back to no checkpoint: give checkpointId or retry, not both")
        return self


class ForkBody(ApiModel):
    """Where to fork from."""

    checkpoint_id: IdText = Field(examples=["cp-0198c2d7"])
    name: Name | None = Field(default=None, examples=["Fix the timeout, another way"])


@router.post("/{workflowId}/start", status_code=202, summary="Start a workflow")
async def start_workflow(
    context: Context, workflow_id: WorkflowId, body: StartBody | None = None
) -> Ok[WorkflowSummary]:
    """Repositories are cloned, worktrees made, the first works begun. Only a CREATED or READY one can be started."""
    await _check(context, workflow_id, "start", "started")
    await _begin(context, "StartWorkflow", workflow_id, prepare_only=(body or StartBody()).prepare_only)
    return ok(await workflows.read_summary(context, workflow_id))


@router.post("/{workflowId}/resume", status_code=202, summary="Resume a workflow")
async def resume_workflow(
    context: Context, workflow_id: WorkflowId, body: ResumeBody | None = None
) -> Ok[WorkflowSummary]:
    """Worktrees go back to a checkpoint, works behind it begin anew. What would be lost is kept under a rescue ref."""
    body = body or ResumeBody()
    await _check(context, workflow_id, "resume", "resumed")
    if body.checkpoint_id is not None:
        async with context.parts.store.reading() as tx:
            await find_checkpoint(tx, workflow_id, body.checkpoint_id)
    given = {"checkpoint_id": body.checkpoint_id, "retry": body.retry}
    await _begin(context, "ResumeWorkflow", workflow_id, **given)
    return ok(await workflows.read_summary(context, workflow_id))


@router.post("/{workflowId}/pause", summary="Pause a workflow")
async def pause_workflow(
    context: Context, workflow_id: WorkflowId, body: PauseBody | None = None
) -> Ok[WorkflowSummary]:
    """Its agents are stopped before the answer is given."""
    await _check(context, workflow_id, "pause", "paused")
    with told_as("WFL"):
        await context.control.carry("PauseWorkflow", workflow_id, reason=(body or PauseBody()).reason)
    return ok(await workflows.read_summary(context, workflow_id))


@router.post("/{workflowId}/cancel", summary="Cancel a workflow")
async def cancel_workflow(context: Context, workflow_id: WorkflowId) -> Ok[WorkflowSummary]:
    """Its agents are stopped before the answer is given; what is not done will not be."""
    await _check(context, workflow_id, "cancel", "cancelled")
    with told_as("WFL"):
        await context.control.carry("CancelWorkflow", workflow_id)
    return ok(await workflows.read_summary(context, workflow_id))


@router.delete("/{workflowId}", summary="Delete a workflow")
async def delete_workflow(context: Context, workflow_id: WorkflowId) -> Ok[Deleted]:
    """With its worktrees, workspaces and reports; branches stay. Refused while it is busy (409 MOD_NOT_NOW)."""
    with told_as("WFL"):
        await context.control.carry("DeleteWorkflow", workflow_id)
    return ok(Deleted(id=workflow_id))


@router.post("/{workflowId}/fork", status_code=201, summary="Fork a workflow")
async def fork_workflow(context: Context, workflow_id: WorkflowId, body: ForkBody) -> Ok[WorkflowFull]:
    """A second workflow that goes on from a checkpoint, on branches of its own. The first one stays as it is."""
    async with context.parts.store.reading() as tx:
        await find_workflow(tx, workflow_id)
        point = await find_checkpoint(tx, workflow_id, body.checkpoint_id)
    with told_as("WFL"):
        fork_id = await ForkWorkflow(context.parts).execute(point.id, name=body.name)
    return ok(await workflows.read_workflow(context, fork_id))


async def _check(context: WebContext, workflow_id: str, act: Act, wanted: str) -> None:
    """Raise when this cannot be asked of a workflow as it stands."""
    async with context.parts.store.reading() as tx:
        workflow = await find_workflow(tx, workflow_id)
    if act not in allowed(workflow):
        raise IllegalTransition("workflow", workflow_id, workflow.status, wanted)


async def _begin(context: WebContext, kind: str, workflow_id: str, **arguments: Any) -> None:
    """Have something begun that takes long; what is refused right away is raised."""
    begun = context.control.begin(kind, workflow_id, **arguments)
    with told_as("WFL"):
        await asyncio.wait({begun}, timeout=_AT_ONCE)
        if begun.done():
            begun.result()
