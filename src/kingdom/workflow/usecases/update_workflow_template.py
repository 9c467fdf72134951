"""UpdateWorkflowTemplate: a plan is changed; workflows that were made from it stay as they are."""

from __future__ import annotations

from kingdom.workflow.domain.events import WorkflowTemplateUpdated
from kingdom.workflow.domain.template import WorkflowTemplate
from kingdom.workflow.parts import Parts
from kingdom.workflow.ports import Told
from kingdom.workflow.usecases.create_workflow_template import check_references


class UpdateWorkflowTemplate:
    """Change a template."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def execute(self, template: WorkflowTemplate) -> None:
        """Put a template in the place of the one with its id and version.

        Raises :class:`kingdom.workflow.store.ConcurrentChange` when somebody else changed it meanwhile.
        """
        async with self._parts.store.transaction() as tx:
            await tx.templates.get(template.id)
            await check_references(tx, template)
            await tx.templates.save(template)
            tx.record(Told(WorkflowTemplateUpdated(template.id), "WorkflowTemplate", template.id))
