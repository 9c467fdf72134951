"""DeleteWorkflowTemplate: a plan is forgotten; workflows that were made from it stay."""

from __future__ import annotations

from kingdom.workflow.domain.events import WorkflowTemplateDeleted
from kingdom.workflow.parts import Parts
from kingdom.workflow.ports import Told


class DeleteWorkflowTemplate:
    """Forget a template."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def execute(self, template_id: str) -> None:
        """Forget a template."""
        async with self._parts.store.transaction() as tx:
            await tx.templates.get(template_id)
            await tx.templates.delete(template_id)
            tx.record(Told(WorkflowTemplateDeleted(template_id), "WorkflowTemplate", template_id))
