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
from kingdom.workflow.domain.resources import Git, McpServer
from kingdom.workflow.domain.work import Task, Work
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, WorkflowTemplate
from kingdom.workflow.errors import NameTaken
from kingdom.workflow.ports import RecordedEvent, Repository, WorkflowTransaction

# Names by which people and templates know things.


_MAX_NAMES: Final = 100_000  # of one kind: a name is compared with all of them


async def check_name_free(sources: Repository[Git] | Repository[McpServer], name: str, what: str) -> None:
    """Raise :class:`NameTaken` when there is one of this name. In the transaction that makes the new one."""
    if any(source.name == name for source in await sources.list(limit=_MAX_NAMES)):
        raise NameTaken(f"there is {what} called {name} already: choose another name")


# CreateGit: a repository that workflows can use.


class CreateGit:
    """Register a repository. It is cloned when a workflow first needs it."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    async def execute(self, name: str, url: str) -> str:
        """Register a repository; returns its id. Raises :class:`kingdom.workflow.errors.NameTaken`."""
        git = Git(self._parts.ids.new("git"), name, url=url)
        async with self._parts.store.transaction() as tx:
            await check_name_free(tx.gits, name, "a repository")
            await tx.gits.save(git)
            tx.record(RecordedEvent(GitCreated(git.id), "Git", git.id))
        return git.id


# DeleteGit: a repository that no workflow uses is forgotten.


_MAX_GITS: Final = 100_000  # repositories that are compared


class DeleteGit:
    """Forget a repository; templates that name it lose the reference."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    async def execute(self, git_id: str) -> None:
        """Delete a repository; raises :class:`kingdom.workflow.errors.StillInUse` while a workflow uses it.

        Its clone goes as well, unless work of workflows is in it, or it is another repository's, too.
        """
        parts = self._parts
        async with parts.step() as step:
            git = await step.tx.gits.get(git_id)
            git.check_unused()
            await step.tx.gits.delete(git_id)
            step.tx.record(RecordedEvent(GitDeleted(git_id), "Git", git_id))
            if not any(other.url == git.url for other in await step.tx.gits.list(limit=_MAX_GITS)):
                step.then(lambda: parts.outside(f"the clone of {git.name} stays", lambda: parts.git.discard(git)))


# RegisterMcpServer: an MCP server that agents can be given.


class RegisterMcpServer:
    """Register an MCP server: a command to run, or a URL to speak to."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    async def execute(
        self, name: str, *, command: Sequence[str] = (), url: str | None = None, env: Mapping[str, str] | None = None
    ) -> str:
        """Register an MCP server; returns its id. Raises :class:`kingdom.workflow.errors.NameTaken`."""
        server = McpServer(
            self._parts.ids.new("mcp"), name, command=tuple(command), url=url, env=dict(env or {})
        )  # fmt: skip
        async with self._parts.store.transaction() as tx:
            await check_name_free(tx.mcp_servers, name, "an MCP server")
            await tx.mcp_servers.save(server)
            tx.record(RecordedEvent(McpServerRegistered(server.id), "McpServer", server.id))
        return server.id


# UnregisterMcpServer: an MCP server that no workflow uses is forgotten.


class UnregisterMcpServer:
    """Forget an MCP server; templates that name it lose the reference."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    async def execute(self, server_id: str) -> None:
        """Forget an MCP server; raises :class:`kingdom.workflow.errors.StillInUse` while a workflow uses it."""
        async with self._parts.store.transaction() as tx:
            server = await tx.mcp_servers.get(server_id)
            server.check_unused()
            await tx.mcp_servers.delete(server_id)
            tx.record(RecordedEvent(McpServerUnregistered(server_id), "McpServer", server_id))


# CreateWorkflowTemplate: a plan that workflows can be made from.


class CreateWorkflowTemplate:
    """Keep a template."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    async def execute(self, template: WorkflowTemplate) -> str:
        """Keep a template, whose id the caller made; returns it."""
        async with self._parts.store.transaction() as tx:
            await check_references(tx, template)
            await tx.templates.save(template)
            tx.record(RecordedEvent(WorkflowTemplateCreated(template.id), "WorkflowTemplate", template.id))
        return template.id


async def check_references(tx: WorkflowTransaction, template: WorkflowTemplate) -> None:
    """Raise :class:`kingdom.workflow.errors.NotFound` when the template names what is not there."""
    for git_ref in template.git_refs:
        await tx.gits.get(git_ref.git_id)
    for ref in (*template.mcp_server_refs, *(ref for work in template.works for ref in work.mcp_server_refs)):
        await tx.mcp_servers.get(ref.mcp_server_id)


# UpdateWorkflowTemplate: a plan is changed; workflows that were made from it stay as they are.


class UpdateWorkflowTemplate:
    """Change a template."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    async def execute(self, template: WorkflowTemplate) -> None:
        """Put a template in the place of the one with its id and version.

        Raises :class:`kingdom.workflow.store.ConcurrentChange` when somebody else changed it meanwhile.
        """
        async with self._parts.store.transaction() as tx:
            await tx.templates.get(template.id)
            await check_references(tx, template)
            await tx.templates.save(template)
            tx.record(RecordedEvent(WorkflowTemplateUpdated(template.id), "WorkflowTemplate", template.id))


# DeleteWorkflowTemplate: a plan is forgotten; workflows that were made from it stay.


class DeleteWorkflowTemplate:
    """Forget a template."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    async def execute(self, template_id: str) -> None:
        """Forget a template."""
        async with self._parts.store.transaction() as tx:
            await tx.templates.get(template_id)
            await tx.templates.delete(template_id)
            tx.record(RecordedEvent(WorkflowTemplateDeleted(template_id), "WorkflowTemplate", template_id))


# CreateTemplateFromWorkflow: the plan of a workflow, as it became, for others.


class CreateTemplateFromWorkflow:
    """Make a template from a workflow."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    async def execute(self, workflow_id: str, name: str | None = None, *, description: str | None = None) -> str:
        """Make a template of the plan a workflow has now; returns its id."""
        async with self._parts.store.transaction() as tx:
            workflow = await tx.workflows.get(workflow_id)
            template = WorkflowTemplate(
                self._parts.ids.new("tpl"),
                name or workflow.name,
                tuple(definition_of(work) for work in await tx.works.of_workflow(workflow_id)),
                workflow.description if description is None else description,
                workflow.git_refs,
                workflow.mcp_server_refs,
                workflow.on_failure,
            )
            await tx.templates.save(template)
            tx.record(RecordedEvent(WorkflowTemplateCreated(template.id), "WorkflowTemplate", template.id))
        return template.id


def definition_of(work: Work) -> WorkDefinition:
    """A Work as a plan has it."""
    return WorkDefinition(
        work.name,
        tuple(_task_definition(task) for task in work.tasks),
        work.engine,
        work.model,
        work.engine_options,
        work.mcp_server_refs,
        work.after,
        work.merge,
        work.pause_after,
    )


def _task_definition(task: Task) -> TaskDefinition:
    return TaskDefinition(task.name, task.query, task.outline, task.retries)
