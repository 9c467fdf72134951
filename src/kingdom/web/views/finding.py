"""Workflows and checkpoints by their ids, for views and routes that need one to be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.web.envelope import not_found

if TYPE_CHECKING:
    from kingdom.workflow.domain.resources import Checkpoint
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.ports import Transaction


async def find_workflow(tx: Transaction, workflow_id: str) -> Workflow:
    """A workflow; raises :class:`kingdom.web.envelope.ApiError` when there is none."""
    found = await tx.workflows.find(workflow_id)
    if found is None:
        raise not_found("WFL", "workflow", workflow_id)
    return found


async def find_checkpoint(tx: Transaction, workflow_id: str, checkpoint_id: str) -> Checkpoint:
    """A finished checkpoint of a workflow; raises :class:`kingdom.web.envelope.ApiError` when there is none."""
    found = await tx.checkpoints.find(checkpoint_id)
    if found is None or not found.complete or found.workflow_id != workflow_id:
        raise not_found("WFL", "checkpoint", checkpoint_id)
    return found
