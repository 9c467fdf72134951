"""DeleteWorkflow: a workflow is forgotten, with everything it had on disk but its branches."""

from __future__ import annotations

from typing import Final

from kingdom.workflow.domain.errors import NotModifiable
from kingdom.workflow.domain.events import WorkflowDeleted
from kingdom.workflow.domain.resources import WorkSpace, WorkTree
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkTreeStatus
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.parts import Parts
from kingdom.workflow.ports import Transaction
from kingdom.workflow.services.resource import WorkflowResourceService

BUSY: Final = (WorkflowStatus.PREPARING, WorkflowStatus.RUNNING, WorkflowStatus.RESUMING)
"""Where a workflow stands while it cannot be deleted."""


class DeleteWorkflow:
    """Delete a workflow nobody works on."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._resources = WorkflowResourceService(parts)

    async def execute(self, workflow_id: str) -> None:
        """Remove its worktrees, workspaces and runs, then everything that is recorded of it but its events and cost.

        Uncommitted work is kept under a rescue ref first. Raises :class:`NotModifiable` while it is busy.
        """
        async with self._parts.turns.of(workflow_id):
            async with self._parts.store.transaction() as tx:
                workflow = await tx.workflows.get(workflow_id)
                _check(workflow)
                trees = [
                    tree
                    for tree in await tx.work_trees.of_workflow(workflow_id)
                    if tree.status is not WorkTreeStatus.RELEASED
                ]
                for tree in trees:
                    if tree.status is not WorkTreeStatus.PENDING_RELEASE:
                        tree.release_later()  # should we be cut off, nobody takes it for whole
                        await tx.work_trees.save(tree)
                spaces = await tx.work_spaces.of_workflow(workflow_id)
                works = await tx.works.of_workflow(workflow_id)
            await self._remove(trees, spaces)
            for work in works:
                await self._parts.agents.forget(work.id)
            async with self._parts.step() as step:
                workflow = await step.tx.workflows.get(workflow_id)
                _check(workflow)
                works = await step.tx.works.of_workflow(workflow_id)
                await self._resources.release_uses(step.tx, workflow, works)
                await _forget(step.tx, workflow_id)
                step.tell(workflow_id, WorkflowDeleted(workflow_id))

    async def _remove(self, trees: list[WorkTree], spaces: list[WorkSpace]) -> None:
        for tree in trees:
            await self._parts.git.release(tree)
        for space in spaces:
            await self._parts.files.remove(space)


async def _forget(tx: Transaction, workflow_id: str) -> None:
    for rows in (tx.works, tx.reports, tx.checkpoints, tx.work_trees, tx.work_spaces):
        for item in await rows.of_workflow(workflow_id):
            await rows.delete(item.id)
    await tx.workflows.delete(workflow_id)


def _check(workflow: Workflow) -> None:
    if workflow.status in BUSY:
        raise NotModifiable(f"workflow {workflow.id} is {workflow.status} and cannot be deleted now: cancel it first")
