"""`/api/workflows`: create, list, start, pause, resume, cancel, fork and delete workflows."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import Field, model_validator

from kingdom.web.acting import acts_on
from kingdom.web.api.court_models import SinceQuery, UntilQuery
from kingdom.web.api.templates import check_name
from kingdom.web.api.workflow_models import (
    Deleted,
    IssueKey,
    NameSearch,
    WorkflowId,
    WorkflowSortQuery,
    error_prefix,
    workflow_router,
)
from kingdom.web.context import Context, WebContext
from kingdom.web.envelope import ApiError, ApiModel, Cursor, Limit, Ok, Page, ok
from kingdom.web.views import templates, workflows
from kingdom.web.views.documents import epoch_seconds_of
from kingdom.web.views.redaction import restore_ref_secrets
from kingdom.web.views.templates import Template
from kingdom.web.views.workflow_state import find_checkpoint, find_workflow, workflow_state
from kingdom.web.views.workflows import WorkflowAction, WorkflowFull, WorkflowSummary, allowed_actions
from kingdom.workflow import usecases
from kingdom.workflow.domain.landing import LandPlan
from kingdom.workflow.domain.resources import GitRef, McpServerRef
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.domain.workflow import OnFailure
from kingdom.workflow.errors import IllegalTransition
from kingdom.workflow.plan_model import (
    Description,
    GitRefs,
    IdText,
    LandFields,
    McpServerRefs,
    Name,
    Variables,
    checked_land_text,
    to_domain,
)
from kingdom.workflow.usecases.follow_up import follow_up_name
from kingdom.workflow.usecases.lifecycle import FIRST_POINT

router = workflow_router("workflows", "workflows")


class WorkflowBody(ApiModel):
    """A workflow to create from a template. Given fields replace those of the template."""

    template_id: IdText = Field(examples=["tpl-0198c2d2"])
    name: Name | None = Field(default=None, examples=["Fix the timeout"])
    issue_key: IssueKey | None = Field(default=None, examples=["WEB-42"])
    description: Description | None = None
    variables: Variables = Field(
        default_factory=dict,
        description="Values of the variables in queries, such as `{{ issue.title }}`.",
        examples=[{"issue": {"title": "x"}}],
    )
    git_refs: GitRefs | None = None
    mcp_server_refs: McpServerRefs | None = None
    on_failure: OnFailure | None = Field(
        default=None, description="Whether the workflow pauses or fails when a task has failed permanently."
    )
    land: LandFields | None = None


class TemplateOfWorkflowBody(ApiModel):
    """Name and description of the new template."""

    name: Name = Field(examples=["fix"])
    description: Description | None = None


@router.get("", summary="List workflows")
async def list_workflows(
    context: Context,
    status: Annotated[
        list[WorkflowStatus] | None,
        Query(max_length=9, description="Only workflows with this status; may be repeated."),
    ] = None,
    search: NameSearch = None,
    since: SinceQuery = None,
    until: UntilQuery = None,
    sort: WorkflowSortQuery = "newest",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[Page[WorkflowSummary]]:
    """Workflows with their progress, newest first unless `sort` says otherwise."""
    begin, end = (None if at is None else epoch_seconds_of(at) for at in (since, until))
    found = await workflows.list_workflows(
        context,
        statuses=status or (),
        search=search,
        since=begin,
        until=end,
        sort=sort,
        limit=limit,
        cursor=cursor,
    )
    return ok(found)


@router.post("", status_code=201, summary="Create a workflow")
async def create_workflow(context: Context, body: WorkflowBody) -> Ok[WorkflowFull]:
    """Create a workflow; it does nothing until it is started.

    404 or 422: an unknown template, repository or MCP server.
    """
    template = await templates.find_template(context, body.template_id)
    gits, servers, land = to_domain(body.git_refs), to_domain(body.mcp_server_refs), to_domain(body.land)
    check_land(land)
    if servers is not None:
        servers = restore_ref_secrets(servers, template.mcp_server_refs)
    await check_refs(context, gits or (), servers or ())
    with error_prefix("WFL"):
        workflow_id = await usecases.create_workflow(
            context.parts,
            body.template_id,
            name=body.name,
            issue_key=body.issue_key,
            description=body.description,
            variables=body.variables,
            git_refs=gits,
            mcp_server_refs=servers,
            on_failure=body.on_failure,
            land=land,
        )
    acts_on(workflow_id, workflow=True)
    return ok(await workflows.read_workflow(context, workflow_id))


@router.get("/{workflowId}", summary="Get a workflow")
async def get_workflow(context: Context, workflow_id: WorkflowId) -> Ok[WorkflowFull]:
    """Works, tasks, repositories and checkpoints of a workflow, and the actions that are allowed now."""
    return ok(await workflows.read_workflow(context, workflow_id))


@router.post("/{workflowId}/template", status_code=201, summary="Create a template from a workflow")
async def create_template_from_workflow(
    context: Context, workflow_id: WorkflowId, body: TemplateOfWorkflowBody
) -> Ok[Template]:
    """Save the current plan of a workflow as a template."""
    async with workflow_state(context).name_lock:
        await check_name(context, body.name)
        with error_prefix("WFL"):
            template_id = await usecases.create_template_from_workflow(
                context.parts, workflow_id, body.name, description=body.description
            )
    return ok(await templates.read_template(context, template_id))


async def check_refs(
    context: WebContext, git_refs: tuple[GitRef, ...], mcp_server_refs: tuple[McpServerRef, ...]
) -> None:
    """Raise when a referenced repository or MCP server does not exist."""
    async with context.parts.store.reading() as tx:
        for at, git in enumerate(git_refs):
            if await tx.gits.find(git.git_id) is None:
                raise ApiError(422, "GIT_NOT_FOUND", f"gitRefs.{at}: no repository {git.git_id!r}")
        for at, server in enumerate(mcp_server_refs):
            if await tx.mcp_servers.find(server.mcp_server_id) is None:
                raise ApiError(422, "MCP_NOT_FOUND", f"mcpServerRefs.{at}: no MCP server {server.mcp_server_id!r}")


def check_land(plan: LandPlan | None) -> None:
    """Raise when a text of a plan to land is not a template."""
    for name in ("branch", "title", "body"):
        if (text := getattr(plan, name, None)) is not None:
            try:
                checked_land_text(text)
            except ValueError as error:
                raise ApiError(422, "TPL_INVALID", f"land.{name}: {error}") from error


# ── Lifecycle ──
#
# Starting clones repositories and resuming resets worktrees; both may take minutes. These routes start the command and
# answer 202. Refusals are returned at once; later errors show in the workflow's state and events.


_REFUSAL_SECONDS: Final = 0.25  # how long a route waits for an immediate refusal


class StartBody(ApiModel):
    """Options for starting a workflow."""

    prepare_only: bool = Field(default=False, description="Only create the worktrees; the workflow stays READY.")


class PauseBody(ApiModel):
    """Options for pausing a workflow."""

    reason: str | None = Field(default=None, min_length=1, max_length=1000, examples=["I want to look at it"])


class ResumeBody(ApiModel):
    """Where to resume: after a pause where it stopped, after a failure from the last checkpoint (default)."""

    checkpoint_id: IdText | None = Field(
        default=None,
        description="Go back to this checkpoint; `start`: before the first work.",
        examples=["cp-0198c2d7"],
    )
    retry: bool = Field(
        default=False, description="Retry the task at which the workflow stopped, without going back to a checkpoint."
    )
    discard: bool = Field(default=False, description="Go back to the last checkpoint, also after a pause.")
    hold: bool = Field(default=False, description="After going back, stay PAUSED, so that the plan can be changed.")

    @model_validator(mode="after")
    def _one_of_them(self) -> ResumeBody:
        if self.retry + self.discard + (self.checkpoint_id is not None) > 1:
            raise ValueError("give one of checkpointId, retry and discard, not several")
        if self.hold and not self.discard and self.checkpoint_id is None:
            raise ValueError("hold needs checkpointId or discard")
        return self


class WorkflowAnswerBody(ApiModel):
    """A person's answer to the question of an agent."""

    text: str = Field(min_length=1, max_length=16_000, examples=["Use the blue one."])


class FollowUpBody(ApiModel):
    """What a person wants next, or differently."""

    text: str = Field(min_length=1, max_length=16_000, pattern=r"\S", examples=["Handle --quiet, too."])
    work: Name | None = Field(
        default=None, description="The work whose agent goes on; default: the one that stopped, or the last one done."
    )


class ForkBody(ApiModel):
    """Options for forking a workflow."""

    checkpoint_id: IdText = Field(examples=["cp-0198c2d7"])
    name: Name | None = Field(default=None, examples=["Fix the timeout, another way"])


class LandBody(LandFields):
    """How to land a workflow."""

    git_id: IdText | None = Field(default=None, description="Only this repository.")
    base: Annotated[str, Field(min_length=1, max_length=250)] | None = Field(
        default=None, description="Branch to merge into; default: the one it started from."
    )


@router.post("/{workflowId}/start", status_code=202, summary="Start a workflow")
async def start_workflow(
    context: Context, workflow_id: WorkflowId, body: StartBody | None = None
) -> Ok[WorkflowSummary]:
    """Clone repositories, create worktrees and start the first works. The workflow must be CREATED or READY."""
    await _check_allowed(context, workflow_id, "start", "started")
    await _start_command(context, "StartWorkflow", workflow_id, prepare_only=(body or StartBody()).prepare_only)
    return ok(await workflows.read_summary(context, workflow_id))


@router.post("/{workflowId}/resume", status_code=202, summary="Resume a workflow")
async def resume_workflow(
    context: Context, workflow_id: WorkflowId, body: ResumeBody | None = None
) -> Ok[WorkflowSummary]:
    """Go on where it stopped, or reset the worktrees to a checkpoint and restart the works after it.

    What this drops is kept under rescue refs. A COMPLETED workflow can go back to a checkpoint.
    """
    body = body or ResumeBody()
    await _check_allowed(context, workflow_id, "resume" if body.checkpoint_id is None else "goBack", "resumed")
    if body.checkpoint_id not in (None, FIRST_POINT):
        async with context.parts.store.reading() as tx:
            await find_checkpoint(tx, workflow_id, str(body.checkpoint_id))
    await _start_command(context, "ResumeWorkflow", workflow_id, **body.model_dump())
    return ok(await workflows.read_summary(context, workflow_id))


@router.post("/{workflowId}/answer", status_code=202, summary="Answer an agent's question")
async def answer_workflow(context: Context, workflow_id: WorkflowId, body: WorkflowAnswerBody) -> Ok[WorkflowSummary]:
    """Give the answer to the agent of the work that is WAITING. It goes on in the same conversation."""
    await _check_allowed(context, workflow_id, "answer", "answered")
    await _start_command(context, "AnswerWorkflow", workflow_id, text=body.text)
    return ok(await workflows.read_summary(context, workflow_id))


@router.post("/{workflowId}/follow-up", status_code=202, summary="Have the agent do more, or something differently")
async def follow_up_workflow(context: Context, workflow_id: WorkflowId, body: FollowUpBody) -> Ok[WorkflowSummary]:
    """Go on in the same conversation and on the same branch; the workflow must be PAUSED, FAILED or COMPLETED.

    A work that stopped repeats its task with the text. Behind a work that is done, a new one is added.
    """
    await _check_allowed(context, workflow_id, "followUp", "followed up")
    async with context.parts.store.reading() as tx:
        name = await follow_up_name(tx, workflow_id, body.text)
    await _start_command(context, "FollowUpWorkflow", workflow_id, name=name, **body.model_dump(exclude_none=True))
    return ok(await workflows.read_summary(context, workflow_id))


@router.post("/{workflowId}/pause", summary="Pause a workflow")
async def pause_workflow(
    context: Context, workflow_id: WorkflowId, body: PauseBody | None = None
) -> Ok[WorkflowSummary]:
    """Stop the agents of a workflow. Responds when they have stopped."""
    await _check_allowed(context, workflow_id, "pause", "paused")
    with error_prefix("WFL"):
        await context.control.execute("PauseWorkflow", workflow_id, reason=(body or PauseBody()).reason)
    return ok(await workflows.read_summary(context, workflow_id))


@router.post("/{workflowId}/cancel", summary="Cancel a workflow")
async def cancel_workflow(context: Context, workflow_id: WorkflowId) -> Ok[WorkflowSummary]:
    """Stop the agents of a workflow and end it; it cannot be resumed. Responds when they have stopped."""
    await _check_allowed(context, workflow_id, "cancel", "cancelled")
    with error_prefix("WFL"):
        await context.control.execute("CancelWorkflow", workflow_id)
    return ok(await workflows.read_summary(context, workflow_id))


@router.delete("/{workflowId}", summary="Delete a workflow")
async def delete_workflow(context: Context, workflow_id: WorkflowId) -> Ok[Deleted]:
    """Delete a workflow with its worktrees, workspaces and reports; branches remain. 409 MOD_NOT_NOW: it is busy."""
    with error_prefix("WFL"):
        await context.control.execute("DeleteWorkflow", workflow_id)
    return ok(Deleted(id=workflow_id))


@router.post("/{workflowId}/fork", status_code=201, summary="Fork a workflow")
async def fork_workflow(context: Context, workflow_id: WorkflowId, body: ForkBody) -> Ok[WorkflowFull]:
    """Create a second workflow that continues from a checkpoint on its own branches.

    The first workflow is unchanged.
    """
    async with context.parts.store.reading() as tx:
        await find_workflow(tx, workflow_id)
        point = await find_checkpoint(tx, workflow_id, body.checkpoint_id)
    with error_prefix("WFL"):
        fork_id = await usecases.fork_workflow(context.parts, point.id, name=body.name)
    return ok(await workflows.read_workflow(context, fork_id))


@router.post("/{workflowId}/land", summary="Land a workflow")
async def land_workflow(context: Context, workflow_id: WorkflowId, body: LandBody | None = None) -> Ok[WorkflowFull]:
    """Push the branches of a workflow and open or update its pull requests. May be repeated.

    Without a body, it is landed as its template says. 409: it runs, or a remote refuses it.
    """
    await _check_allowed(context, workflow_id, "land", "landed")
    given = {} if body is None else {"only": body.git_id, "base": body.base}
    with error_prefix("WFL"):
        await workflow_state(context).lander(context.parts.store).land(workflow_id, to_domain(body), **given)
    return ok(await workflows.read_workflow(context, workflow_id))


async def _check_allowed(context: WebContext, workflow_id: str, act: WorkflowAction, wanted: str) -> None:
    """Raise when the action is not allowed in the workflow's current state."""
    async with context.parts.store.reading() as tx:
        workflow = await find_workflow(tx, workflow_id)
    if act not in allowed_actions(workflow):
        raise IllegalTransition("workflow", workflow_id, workflow.status, wanted)


async def _start_command(context: WebContext, kind: str, workflow_id: str, **arguments: Any) -> None:
    """Start a long-running command. Raises an immediate refusal; later errors show in the workflow's state."""
    task = context.control.start(kind, workflow_id, **arguments)
    with error_prefix("WFL"):
        await asyncio.wait({task}, timeout=_REFUSAL_SECONDS)
        if task.done():
            task.result()
