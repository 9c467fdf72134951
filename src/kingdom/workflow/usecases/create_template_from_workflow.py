"""CreateTemplateFromWorkflow: the plan of a workflow, as it became, for others."""

from __future__ import annotations

from kingdom.workflow.domain.events import WorkflowTemplateCreated
from kingdom.workflow.domain.task import Task
from kingdom.workflow.domain.template import TaskDefinition, WorkDefinition, WorkflowTemplate
from kingdom.workflow.domain.work import Work
from kingdom.workflow.parts import Parts
from kingdom.workflow.ports import Told


class CreateTemplateFromWorkflow:
    """Make a template from a workflow."""

    def __init__(self, parts: Parts) -> None:
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
            tx.record(Told(WorkflowTemplateCreated(template.id), "WorkflowTemplate", template.id))
        return template.id


def definition_of(work: Work) -> WorkDefinition:
    """A Work as a plan has it."""
    return WorkDefinition(
        work.name,
        tuple(_task(task) for task in work.tasks),
        work.engine,
        work.model,
        work.engine_options,
        work.mcp_server_refs,
        work.after,
        work.merge,
        work.pause_after,
    )


def _task(task: Task) -> TaskDefinition:
    return TaskDefinition(task.name, task.query, task.outline, task.retries)
