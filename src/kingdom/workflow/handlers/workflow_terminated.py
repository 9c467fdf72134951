"""WorkflowCompleted, WorkflowCancelled, WorkflowFailed: what the workflow used is free again."""

from __future__ import annotations

from typing import ClassVar

from kingdom.workflow.domain.statuses import WorkflowStatus, WorkTreeStatus
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.services.resource import WorkflowResourceService

_TERMINATED = (WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED, WorkflowStatus.FAILED)


class WorkflowTerminatedHandler(Handler):
    """Releases repositories and MCP servers, and removes worktrees in PENDING_RELEASE. The others stay."""

    outside: ClassVar[bool] = True

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._resources = WorkflowResourceService(parts)

    async def before(self, news: News) -> object:
        """Remove the worktrees that were to be released."""
        async with self.parts.store.transaction() as tx:
            workflow = await tx.workflows.find(news.aggregate_id)
            trees = await tx.work_trees.of_workflow(news.aggregate_id)
        pending = [tree for tree in trees if tree.status is WorkTreeStatus.PENDING_RELEASE]
        if not _over(workflow):
            return None
        for tree in pending:
            await self.parts.git.release(tree)
        return pending

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """Release what is used."""
        workflow = await step.tx.workflows.find(news.aggregate_id)
        if workflow is None or not _over(workflow):
            return self.refuse(news, "it is gone" if workflow is None else f"the workflow is {workflow.status} again")
        if isinstance(made, list):
            await self._resources.record_released(step, made)
        works = await step.tx.works.of_workflow(workflow.id)
        return await self._resources.release_uses(step.tx, workflow, works)


def _over(workflow: Workflow | None) -> bool:
    return workflow is not None and workflow.status in _TERMINATED
