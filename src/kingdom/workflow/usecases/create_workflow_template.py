"""CreateWorkflowTemplate: a plan that workflows can be made from."""

from __future__ import annotations

from kingdom.workflow.domain.events import WorkflowTemplateCreated
from kingdom.workflow.domain.template import WorkflowTemplate
from kingdom.workflow.parts import Parts
from kingdom.workflow.ports import Told, Transaction


class CreateWorkflowTemplate:
    """Keep a template."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def execute(self, template: WorkflowTemplate) -> str:
        """Keep a template, whose id the caller made; returns it."""
        async with self._parts.store.transaction() as tx:
            await check_references(tx, template)
            await tx.templates.save(template)
            tx.record(Told(WorkflowTemplateCreated(template.id), "WorkflowTemplate", template.id))
        return template.id


async def check_references(tx: Transaction, template: WorkflowTemplate) -> None:
    """Raise :class:`kingdom.workflow.domain.errors.NotFound` when the template names what is not there."""
    for git_ref in template.git_refs:
        await tx.gits.get(git_ref.git_id)
    for ref in (*template.mcp_server_refs, *(ref for work in template.works for ref in work.mcp_server_refs)):
        await tx.mcp_servers.get(ref.mcp_server_id)
