"""CreateWorkflow: a workflow with its works, from a template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kingdom.workflow.domain.changes import work_from
from kingdom.workflow.domain.events import WorkflowCreated
from kingdom.workflow.domain.sources import GitRef, McpServerRef
from kingdom.workflow.domain.template import OnFailure
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.parts import Parts


class CreateWorkflow:
    """Make a workflow; it starts with :class:`kingdom.workflow.usecases.start_workflow.StartWorkflow`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def execute(
        self,
        template_id: str,
        *,
        workflow_id: str | None = None,
        name: str | None = None,
        issue_key: str | None = None,
        description: str | None = None,
        variables: Mapping[str, object] | None = None,
        git_refs: Sequence[GitRef] | None = None,
        mcp_server_refs: Sequence[McpServerRef] | None = None,
        on_failure: OnFailure | None = None,
    ) -> str:
        """Make a workflow from a template, with what is given here instead of the template's; returns its id.

        Whoever must not make a second one brings its id along, made and written down before.
        """
        parts = self._parts
        async with parts.step() as step:
            template = await step.tx.templates.get(template_id)
            workflow = Workflow(
                workflow_id or parts.ids.new("wf"),
                name or template.name,
                parts.clock(),
                template.id,
                issue_key,
                template.description if description is None else description,
                template.git_refs if git_refs is None else tuple(git_refs),
                template.mcp_server_refs if mcp_server_refs is None else tuple(mcp_server_refs),
                dict(variables or {}),
                on_failure or template.on_failure,
            )
            for ref in workflow.git_refs:
                await step.tx.gits.get(ref.git_id)
            for sequence, definition in enumerate(template.works):
                work = work_from(definition, workflow.id, sequence, parts.ids.new)
                workflow.work_changed(work.id, work.status)
                await step.tx.works.save(work)
            await step.tx.workflows.save(workflow)
            step.tell(workflow.id, WorkflowCreated(workflow.id))
        return workflow.id
