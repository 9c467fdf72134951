"""ResumeWorkflow: a workflow goes on, from a checkpoint or where it stands."""

from __future__ import annotations

from kingdom.workflow.domain.errors import WorkflowError
from kingdom.workflow.domain.events import WorkCompleted, WorkflowPaused, WorkflowResumed
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkStatus
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Resuming, Workflow
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.services.checkpoint import CheckpointService
from kingdom.workflow.services.halting import HaltingService
from kingdom.workflow.services.resource import WorkflowResourceService
from kingdom.workflow.services.rollback import RollbackService


class CannotResume(WorkflowError):
    """A workflow could not be brought back to where it was to go on from."""

    code = "WFL_CANNOT_RESUME"


class ResumeWorkflow:
    """Resume a workflow that is PAUSED or FAILED."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._checkpoints = CheckpointService(parts)
        self._resources = WorkflowResourceService(parts)
        self._halting = HaltingService(parts)
        self._rollback = RollbackService(parts)

    async def execute(self, workflow_id: str, *, checkpoint_id: str | None = None, retry: bool = False) -> None:
        """Go on from the last valid checkpoint, from the one given, or (``retry``) in place.

        From a checkpoint: the worktrees are reset to it (to their base where there is none yet), what was done since
        is kept under a rescue ref, and the works behind it begin anew. In place: nothing is reset but the task that
        the workflow stopped at. Raises :class:`kingdom.workflow.domain.errors.NotFound` when the checkpoint, or what
        the workflow uses, is not there any more, and :class:`CannotResume` when the trees cannot be reset; the
        workflow is PAUSED then.
        """
        async with self._parts.turns.of(workflow_id):
            async with self._parts.step() as step:
                workflow = await step.tx.workflows.get(workflow_id)
                point = None if retry else await self._checkpoints.choose(step.tx, workflow_id, checkpoint_id)
                workflow.resume(Resuming("in place" if retry else "reset", None if point is None else point.id))
                await self._resources.register_uses(step.tx, workflow, await step.tx.works.of_workflow(workflow_id))
                await self._resources.plan_trees(step.tx, workflow)
                await step.tx.workflows.save(workflow)
            await self._halting.unpark(workflow_id)
            await self.finish(workflow_id)

    async def finish(self, workflow_id: str) -> None:
        """Bring a workflow that is RESUMING to where it goes on from; may be repeated. In the workflow's turn."""
        async with self._parts.store.transaction() as tx:
            workflow = await tx.workflows.get(workflow_id)
            works = await tx.works.of_workflow(workflow_id)
        plan = workflow.resuming
        if workflow.status is not WorkflowStatus.RESUMING or plan is None:
            return
        try:
            await self._halting.stop_agents(works)
            await self._make_trees(workflow_id)
            if plan.mode == "reset":
                await self._rollback.reset(workflow_id, plan.checkpoint_id)
        except Exception as error:
            await self._cannot(workflow_id, f"it could not be resumed: {error}")
            raise CannotResume(f"workflow {workflow_id} could not be resumed, it is paused: {error}") from error
        async with self._parts.step() as step:
            workflow = await step.tx.workflows.get(workflow_id)
            if plan.mode == "reset":
                await self._rollback.record(step, workflow, plan.checkpoint_id)
            else:
                await self._wait_again(step, workflow)
            await self._go_on(step, workflow)

    async def _make_trees(self, workflow_id: str) -> None:
        outcomes = await self._resources.make_trees(workflow_id)
        async with self._parts.step() as step:
            problems = await self._resources.record_trees(step, outcomes)
        if problems:
            raise CannotResume("; ".join(problems))

    async def _cannot(self, workflow_id: str, reason: str) -> None:
        async with self._parts.step() as step:
            workflow = await step.tx.workflows.get(workflow_id)
            workflow.pause(reason)
            await step.tx.workflows.save(workflow)
            step.tell(workflow_id, WorkflowPaused(workflow_id))

    async def _wait_again(self, step: Step, workflow: Workflow) -> None:
        """In place: works that stopped wait to go on; those whose checkpoint is missing get another chance of it."""
        points = {point.work_id for point in await self._checkpoints.valid(step.tx, workflow.id)}
        for work in await step.tx.works.of_workflow(workflow.id):
            if work.status in (WorkStatus.PAUSED, WorkStatus.FAILED, WorkStatus.RUNNING):
                work.wait_again()
                workflow.work_changed(work.id, work.status)
                await step.tx.works.save(work)
            elif work.status is WorkStatus.COMPLETED and work.id not in points:
                step.tell(workflow.id, WorkCompleted(work.id, workflow.id), work.attempt)

    async def _go_on(self, step: Step, workflow: Workflow) -> None:
        works = await step.tx.works.of_workflow(workflow.id)
        workflow.resumed()
        await step.tx.workflows.save(workflow)
        step.tell(workflow.id, WorkflowResumed(workflow.id, _first(works).id))


def _first(works: list[Work]) -> Work:
    """The Work it goes on from: the first that is not done, or the last."""
    return next((work for work in works if work.status is not WorkStatus.COMPLETED), works[-1])
