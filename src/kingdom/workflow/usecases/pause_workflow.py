"""PauseWorkflow: agents are stopped, then the workflow rests until a person says more."""

from __future__ import annotations

from kingdom.workflow.domain.events import WorkflowPaused
from kingdom.workflow.domain.statuses import WORKFLOW, WorkflowStatus, move
from kingdom.workflow.parts import Parts
from kingdom.workflow.services.halting import HaltingService


class PauseWorkflow:
    """Pause a workflow that runs."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._halting = HaltingService(parts)

    async def execute(self, workflow_id: str, reason: str | None = None) -> None:
        """Stop its agents, then pause it; raises :class:`kingdom.workflow.domain.errors.IllegalTransition`."""
        async with self._parts.turns.of(workflow_id):
            async with self._parts.store.transaction() as tx:
                workflow = await tx.workflows.get(workflow_id)
                works = await tx.works.of_workflow(workflow_id)
            move("workflow", workflow_id, WORKFLOW, workflow.status, WorkflowStatus.PAUSED)  # before anything stops
            await self._halting.stop_agents(works)
            async with self._parts.step() as step:
                workflow = await step.tx.workflows.get(workflow_id)
                works = await step.tx.works.of_workflow(workflow_id)
                await self._halting.pause_works(step, workflow, works, stopped=True)
                workflow.pause(reason)
                await step.tx.workflows.save(workflow)
                step.tell(workflow_id, WorkflowPaused(workflow_id))
