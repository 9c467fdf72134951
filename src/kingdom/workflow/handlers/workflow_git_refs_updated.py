"""WorkflowGitRefsUpdated: the worktrees of repositories that came in are made."""

from __future__ import annotations

from typing import ClassVar

from kingdom.workflow.domain.events import WorkflowGitRefsUpdated
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.services.resource import WorkflowResourceService
from kingdom.workflow.usecases.start_workflow import StartWorkflow


class WorkflowGitRefsUpdatedHandler(Handler):
    """A READY workflow becomes PREPARING until the new worktrees are there. Others make them when they go on."""

    outside: ClassVar[bool] = False

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._resources = WorkflowResourceService(parts)
        self._start = StartWorkflow(parts)

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """Plan the worktrees; they are made after the commit."""
        event = news.event
        assert isinstance(event, WorkflowGitRefsUpdated)
        workflow = await step.tx.workflows.find(event.workflow_id)
        if workflow is None or workflow.status is not WorkflowStatus.READY or not event.added_refs:
            return
        workflow.prepare()
        await step.tx.workflows.save(workflow)
        await self._resources.register_uses(step.tx, workflow, await step.tx.works.of_workflow(workflow.id))
        await self._resources.plan_trees(step.tx, workflow)
        step.then(lambda: self._start.prepare(event.workflow_id))
