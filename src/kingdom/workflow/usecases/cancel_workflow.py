"""CancelWorkflow: agents are stopped, and what is not done will not be."""

from __future__ import annotations

from kingdom.workflow.domain.events import WorkflowCancelled
from kingdom.workflow.domain.statuses import WORKFLOW, WorkflowStatus, WorkStatus, move
from kingdom.workflow.parts import Parts
from kingdom.workflow.services.halting import HaltingService, may_be_alive


class CancelWorkflow:
    """Cancel a workflow that is not over."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._halting = HaltingService(parts)

    async def execute(self, workflow_id: str) -> None:
        """Stop its agents, then cancel it; raises :class:`kingdom.workflow.domain.errors.IllegalTransition`."""
        async with self._parts.turns.of(workflow_id):
            async with self._parts.store.transaction() as tx:
                workflow = await tx.workflows.get(workflow_id)
                works = await tx.works.of_workflow(workflow_id)
            move("workflow", workflow_id, WORKFLOW, workflow.status, WorkflowStatus.CANCELLED)
            await self._halting.unpark(workflow_id)
            await self._halting.stop_agents(works)
            async with self._parts.step() as step:
                workflow = await step.tx.workflows.get(workflow_id)
                for work in await step.tx.works.of_workflow(workflow_id):
                    if may_be_alive(work):
                        work.agent_stopped()
                    if work.status is not WorkStatus.COMPLETED:
                        work.cancel()
                    workflow.work_changed(work.id, work.status)
                    await step.tx.works.save(work)
                workflow.cancel()
                await step.tx.workflows.save(workflow)
                step.tell(workflow_id, WorkflowCancelled(workflow_id))
