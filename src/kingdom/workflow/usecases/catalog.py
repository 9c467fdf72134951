"""Register and delete repositories, MCP servers and templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.events import (
    GitCreated,
    GitDeleted,
    McpServerRegistered,
    McpServerUnregistered,
    WorkflowTemplateCreated,
    WorkflowTemplateDeleted,
    WorkflowTemplateUpdated,
)
from kingdom.workflow.domain.plan import plan_of
from kingdom.workflow.domain.resources import Git, McpServer
from kingdom.workflow.domain.workflow import WorkflowTemplate
from kingdom.workflow.ports import RecordedEvent
from kingdom.workflow.store.transactions import WorkflowTransaction

_MAX_GITS: Final = 100_000  # repositories whose URL is compared with a deleted one's

# ── repositories ──────────────────────────────────────────────────────────────────────────────────────────────────


async def create_git(context: WorkflowContext, name: str, url: str, *, check: bool = False) -> str:
    """Register a repository and return its id. It is cloned when a workflow first needs it.

    ``check`` tries it first: :class:`kingdom.gitops.GitError` if it cannot be read or is not supported. Raises
    :class:`kingdom.workflow.errors.NameTaken`.
    """
    if check:
        await context.git.check(url)
    git = Git(context.ids.new("git"), name, url=url)
    async with context.store.transaction() as tx:
        await tx.gits.save(git)
        tx.record(RecordedEvent(GitCreated(git.id), "Git", git.id))
    return git.id


async def delete_git(context: WorkflowContext, git_id: str) -> None:
    """Delete a repository; templates that name it lose the reference.

    Its clone is deleted too, unless it holds work of workflows or another repository has the same URL. Raises
    :class:`kingdom.workflow.errors.StillInUse` while a workflow uses it.
    """
    async with context.unit_of_work() as unit:
        git = await unit.tx.gits.get(git_id)
        git.check_unused()
        await unit.tx.gits.delete(git_id)
        unit.tx.record(RecordedEvent(GitDeleted(git_id), "Git", git_id))
        if not any(other.url == git.url for other in await unit.tx.gits.list(limit=_MAX_GITS)):
            unit.after_commit(
                lambda: context.call_external(
                    f"the clone of {git.name} could not be deleted", lambda: context.git.discard(git)
                )
            )


# ── MCP servers ───────────────────────────────────────────────────────────────────────────────────────────────────


async def register_mcp_server(
    context: WorkflowContext,
    name: str,
    *,
    command: Sequence[str] = (),
    url: str | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Register an MCP server, a command to run or a URL to connect to, and return its id.

    Raises :class:`kingdom.workflow.errors.NameTaken`.
    """
    server = McpServer(context.ids.new("mcp"), name, command=tuple(command), url=url, env=dict(env or {}))
    async with context.store.transaction() as tx:
        await tx.mcp_servers.save(server)
        tx.record(RecordedEvent(McpServerRegistered(server.id), "McpServer", server.id))
    return server.id


async def unregister_mcp_server(context: WorkflowContext, server_id: str) -> None:
    """Delete an MCP server; templates that name it lose the reference.

    Raises :class:`kingdom.workflow.errors.StillInUse` while a workflow uses it.
    """
    async with context.store.transaction() as tx:
        server = await tx.mcp_servers.get(server_id)
        server.check_unused()
        await tx.mcp_servers.delete(server_id)
        tx.record(RecordedEvent(McpServerUnregistered(server_id), "McpServer", server_id))


# ── templates ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def create_workflow_template(context: WorkflowContext, template: WorkflowTemplate) -> str:
    """Store a new template, whose id the caller made, and return the id."""
    async with context.store.transaction() as tx:
        await _check_references(tx, template)
        await tx.templates.save(template)
        tx.record(RecordedEvent(WorkflowTemplateCreated(template.id), "WorkflowTemplate", template.id))
    return template.id


async def update_workflow_template(context: WorkflowContext, template: WorkflowTemplate) -> None:
    """Replace the template with this id and version. Workflows created from it do not change.

    Raises :class:`kingdom.workflow.errors.ConcurrentChange` if somebody else changed it meanwhile.
    """
    async with context.store.transaction() as tx:
        await tx.templates.get(template.id)
        await _check_references(tx, template)
        await tx.templates.save(template)
        tx.record(RecordedEvent(WorkflowTemplateUpdated(template.id), "WorkflowTemplate", template.id))


async def delete_workflow_template(context: WorkflowContext, template_id: str) -> None:
    """Delete a template. Workflows created from it stay."""
    async with context.store.transaction() as tx:
        await tx.templates.get(template_id)
        await tx.templates.delete(template_id)
        tx.record(RecordedEvent(WorkflowTemplateDeleted(template_id), "WorkflowTemplate", template_id))


async def create_template_from_workflow(
    context: WorkflowContext, workflow_id: str, name: str | None = None, *, description: str | None = None
) -> str:
    """Store the current plan of a workflow as a template and return the template's id."""
    async with context.store.transaction() as tx:
        workflow = await tx.workflows.get(workflow_id)
        template = plan_of(workflow, await tx.works.of_workflow(workflow_id))
        template.id, template.name = context.ids.new("tpl"), name or workflow.name
        template.description = workflow.description if description is None else description
        await tx.templates.save(template)
        tx.record(RecordedEvent(WorkflowTemplateCreated(template.id), "WorkflowTemplate", template.id))
    return template.id


async def _check_references(tx: WorkflowTransaction, template: WorkflowTemplate) -> None:
    """Raise :class:`kingdom.workflow.errors.NotFound` if the template names a missing repository or MCP server."""
    for git_ref in template.git_refs:
        await tx.gits.get(git_ref.git_id)
    for ref in (*template.mcp_server_refs, *(ref for work in template.works for ref in work.mcp_server_refs)):
        await tx.mcp_servers.get(ref.mcp_server_id)
