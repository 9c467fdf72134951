"""``/api/workflows``: the list, a new one, one in full, and a template made of one."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field

from kingdom.web.api.work.bodies import GitRefBody, McpServerRefBody
from kingdom.web.api.work.routing import Search, WorkflowId, told_as, work_router
from kingdom.web.api.work.templates import check_name
from kingdom.web.api.work.values import Description, IdText, IssueKey, Name, Variables
from kingdom.web.context import Context, WebContext
from kingdom.web.envelope import ApiError, ApiModel, Ok, Page, ok
from kingdom.web.paging import Cursor, Limit
from kingdom.web.views import templates, workflows
from kingdom.web.views.redaction import restored_refs
from kingdom.web.views.templates import Template, git_refs, mcp_refs
from kingdom.web.views.work_desk import work_desk
from kingdom.web.views.workflows import WorkflowFull, WorkflowSummary
from kingdom.workflow.domain.sources import GitRef, McpServerRef
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.usecases.create_template_from_workflow import CreateTemplateFromWorkflow
from kingdom.workflow.usecases.create_workflow import CreateWorkflow

router = work_router("workflows", "workflows")


class WorkflowBody(ApiModel):
    """A workflow to make from a template; what is given here stands in the place of the template's."""

    template_id: IdText = Field(examples=["tpl-0198c2d2"])
    name: Name | None = Field(default=None, examples=["Fix the timeout"])
    issue_key: IssueKey | None = Field(default=None, examples=["WEB-42"])
    description: Description | None = None
    variables: Variables = Field(
        default_factory=dict, description="For the queries: `{{ issue.title }}`.", examples=[{"issue": {"title": "x"}}]
    )
    git_refs: Annotated[list[GitRefBody], Field(max_length=20)] | None = None
    mcp_server_refs: Annotated[list[McpServerRefBody], Field(max_length=20)] | None = None
    on_failure: Literal["pause", "fail"] | None = Field(
        default=None, description="What becomes of it when a task failed for good."
    )


class TemplateOfWorkflowBody(ApiModel):
    """What the template shall be called."""

    name: Name = Field(examples=["fix"])
    description: Description | None = None


@router.get("", summary="List workflows")
async def list_workflows(
    context: Context,
    status: Annotated[
        list[WorkflowStatus] | None, Query(max_length=9, description="Only in this state; may be repeated.")
    ] = None,
    search: Search = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[Page[WorkflowSummary]]:
    """The workflows with their progress, the newest first."""
    return ok(await workflows.list_workflows(context, statuses=status or (), search=search, limit=limit, cursor=cursor))


@router.post("", status_code=201, summary="Create a workflow")
async def create_workflow(context: Context, body: WorkflowBody) -> Ok[WorkflowFull]:
    """It does nothing until it is started. Refused: a template, repository or MCP server that is not there."""
    template = await templates.find_template(context, body.template_id)
    gits = None if body.git_refs is None else git_refs(body.git_refs)
    servers = None
    if body.mcp_server_refs is not None:
        servers = restored_refs(mcp_refs(body.mcp_server_refs), template.mcp_server_refs)
    await check_refs(context, gits or (), servers or ())
    with told_as("WFL"):
        workflow_id = await CreateWorkflow(context.parts).execute(
            body.template_id,
            name=body.name,
            issue_key=body.issue_key,
            description=body.description,
            variables=body.variables,
            git_refs=gits,
            mcp_server_refs=servers,
            on_failure=body.on_failure,
        )
    return ok(await workflows.read_workflow(context, workflow_id))


@router.get("/{workflowId}", summary="Get a workflow")
async def get_workflow(context: Context, workflow_id: WorkflowId) -> Ok[WorkflowFull]:
    """Its works and tasks, its repositories, its checkpoints, and what can be asked of it."""
    return ok(await workflows.read_workflow(context, workflow_id))


@router.post("/{workflowId}/template", status_code=201, summary="Make a template of a workflow")
async def create_template_from_workflow(
    context: Context, workflow_id: WorkflowId, body: TemplateOfWorkflowBody
) -> Ok[Template]:
    """A template of the plan as it is now."""
    async with work_desk(context).naming:
        await check_name(context, body.name)
        with told_as("WFL"):
            template_id = await CreateTemplateFromWorkflow(context.parts).execute(
                workflow_id, body.name, description=body.description
            )
    return ok(await templates.read_template(context, template_id))


async def check_refs(
    context: WebContext, git_refs: tuple[GitRef, ...], mcp_server_refs: tuple[McpServerRef, ...]
) -> None:
    """Raise when one of these is not there."""
    async with context.parts.store.reading() as tx:
        for at, git in enumerate(git_refs):
            if await tx.gits.find(git.git_id) is None:
                raise ApiError(422, "GIT_NOT_FOUND", f"gitRefs.{at}: there is no repository {git.git_id!r}")
        for at, server in enumerate(mcp_server_refs):
            if await tx.mcp_servers.find(server.mcp_server_id) is None:
                raise ApiError(
                    422, "MCP_NOT_FOUND", f"mcpServerRefs.{at}: there is no MCP server {server.mcp_server_id!r}"
                )
