"""StartWorkflow: repositories and MCP servers are registered, worktrees are made, and the first Work starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kingdom.workflow.domain.errors import IllegalTransition
from kingdom.workflow.domain.events import WorkflowFailed, WorkflowStarted
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.parts import Parts
from kingdom.workflow.services.resource import Outcome, WorkflowResourceService

STARTABLE: Final = (WorkflowStatus.CREATED, WorkflowStatus.READY)
"""Where a workflow stands that can be started."""


class StartWorkflow:
    """Start a workflow that was created, or one that is ready."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._resources = WorkflowResourceService(parts)

    async def execute(self, workflow_id: str, *, prepare_only: bool = False) -> None:
        """Prepare a workflow and start it; with ``prepare_only`` it stays READY until this is called again.

        When a worktree cannot be made the workflow is FAILED with the reason; it can be resumed.
        """
        async with self._parts.turns.of(workflow_id), self._parts.step() as step:
            workflow = await step.tx.workflows.get(workflow_id)
            if workflow.status is WorkflowStatus.READY and not prepare_only:
                workflow.start()
                step.tell(workflow_id, WorkflowStarted(workflow_id))
            else:
                if workflow.status is WorkflowStatus.PAUSED:  # it may be prepared anew, but it goes on by a resume
                    raise IllegalTransition("workflow", workflow_id, workflow.status, "started: resume it")
                workflow.prepare()
                workflow.prepare_only = prepare_only
                await self._resources.register_uses(step.tx, workflow, await step.tx.works.of_workflow(workflow_id))
                await self._resources.plan_trees(step.tx, workflow)
            await step.tx.workflows.save(workflow)
        if workflow.status is WorkflowStatus.PREPARING:
            outcomes = await self._resources.make_trees(workflow_id)  # may take long: one can cancel meanwhile
            async with self._parts.turns.of(workflow_id):
                await self._prepared(workflow_id, outcomes)

    async def prepare(self, workflow_id: str) -> None:
        """Make the worktrees of a workflow that is PREPARING, and go on; may be repeated. In the workflow's turn."""
        await self._prepared(workflow_id, await self._resources.make_trees(workflow_id))

    async def _prepared(self, workflow_id: str, outcomes: Sequence[Outcome]) -> None:
        async with self._parts.step() as step:
            problems = await self._resources.record_trees(step, outcomes)
            workflow = await step.tx.workflows.find(workflow_id)
            if workflow is None or workflow.status is not WorkflowStatus.PREPARING:
                return  # it was cancelled meanwhile
            if problems:
                reason = f"a worktree could not be made: {'; '.join(problems)}"
                workflow.fail(reason)
                step.tell(workflow_id, WorkflowFailed(workflow_id, reason))
            else:
                workflow.ready()
                if not workflow.prepare_only:
                    workflow.start()
                    step.tell(workflow_id, WorkflowStarted(workflow_id))
            await step.tx.workflows.save(workflow)
