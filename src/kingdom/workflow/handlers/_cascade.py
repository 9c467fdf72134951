"""All templates, for what has to be taken out of each."""

from __future__ import annotations

from kingdom.workflow.domain.template import WorkflowTemplate
from kingdom.workflow.ports import Transaction


async def all_templates(tx: Transaction) -> list[WorkflowTemplate]:
    """Every template, page by page."""
    found: list[WorkflowTemplate] = []
    while page := await tx.templates.list(after=found[-1].id if found else None):
        found += page
    return found
