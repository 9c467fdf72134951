"""Start, pause, resume, cancel and delete workflows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kingdom.workflow.context import UnitOfWork, WorkflowContext
from kingdom.workflow.domain.events import (
    WorkCompleted,
    WorkflowCancelled,
    WorkflowDeleted,
    WorkflowFailed,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowStarted,
)
from kingdom.workflow.domain.resources import WorkSpace, WorkTree
from kingdom.workflow.domain.statuses import (
    WORKFLOW_TRANSITIONS,
    WorkflowStatus,
    WorkStatus,
    WorkTreeStatus,
    check_transition,
)
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import ResumePlan, Workflow
from kingdom.workflow.errors import IllegalTransition, NotModifiable, WorkflowError
from kingdom.workflow.ports import WorkflowTransaction
from kingdom.workflow.usecases.resources import CheckpointService, RollbackService, TreeOutcome, WorkflowResourceService
from kingdom.workflow.usecases.steps import StopService, may_be_alive

# StartWorkflow: repositories and MCP servers are registered, worktrees are made, and the first Work starts.


STARTABLE_STATUSES: Final = (WorkflowStatus.CREATED, WorkflowStatus.READY)
"""Where a workflow stands that can be started."""


class StartWorkflow:
    """Start a workflow that was created, or one that is ready."""

    def __init__(self, parts: WorkflowContext) -> None:
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

    async def _prepared(self, workflow_id: str, outcomes: Sequence[TreeOutcome]) -> None:
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


# PauseWorkflow: agents are stopped, then the workflow rests until a person says more.


class PauseWorkflow:
    """Pause a workflow that runs."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts
        self._halting = StopService(parts)

    async def execute(self, workflow_id: str, reason: str | None = None) -> None:
        """Stop its agents, then pause it; raises :class:`kingdom.workflow.errors.IllegalTransition`."""
        async with self._parts.turns.of(workflow_id):
            async with self._parts.store.transaction() as tx:
                workflow = await tx.workflows.get(workflow_id)
                works = await tx.works.of_workflow(workflow_id)
            check_transition(
                "workflow", workflow_id, WORKFLOW_TRANSITIONS, workflow.status, WorkflowStatus.PAUSED
            )  # before anything stops
            await self._halting.stop_agents(works)
            async with self._parts.step() as step:
                workflow = await step.tx.workflows.get(workflow_id)
                works = await step.tx.works.of_workflow(workflow_id)
                await self._halting.pause_works(step, workflow, works, stopped=True)
                workflow.pause(reason)
                await step.tx.workflows.save(workflow)
                step.tell(workflow_id, WorkflowPaused(workflow_id))


# ResumeWorkflow: a workflow goes on, from a checkpoint or where it stands.


class CannotResume(WorkflowError):
    """A workflow could not be brought back to where it was to go on from."""

    code = "WFL_CANNOT_RESUME"


class ResumeWorkflow:
    """Resume a workflow that is PAUSED or FAILED."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts
        self._checkpoints = CheckpointService(parts)
        self._resources = WorkflowResourceService(parts)
        self._halting = StopService(parts)
        self._rollback = RollbackService(parts)

    async def execute(self, workflow_id: str, *, checkpoint_id: str | None = None, retry: bool = False) -> None:
        """Go on from the last valid checkpoint, from the one given, or (``retry``) in place.

        From a checkpoint: the worktrees are reset to it (to their base where there is none yet), what was done since
        is kept under a rescue ref, and the works behind it begin anew. In place: nothing is reset but the task that
        the workflow stopped at. Raises :class:`kingdom.workflow.errors.NotFound` when the checkpoint, or what
        the workflow uses, is not there any more, and :class:`CannotResume` when the trees cannot be reset; the
        workflow is PAUSED then.
        """
        async with self._parts.turns.of(workflow_id):
            async with self._parts.step() as step:
                workflow = await step.tx.workflows.get(workflow_id)
                point = None if retry else await self._checkpoints.choose(step.tx, workflow_id, checkpoint_id)
                workflow.resume(ResumePlan("in place" if retry else "reset", None if point is None else point.id))
                await self._resources.register_uses(step.tx, workflow, await step.tx.works.of_workflow(workflow_id))
                await self._resources.plan_trees(step.tx, workflow)
                await step.tx.workflows.save(workflow)
            await self._halting.requeue_dead_events(workflow_id)
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

    async def _wait_again(self, step: UnitOfWork, workflow: Workflow) -> None:
        """In place: works that stopped wait to go on; those whose checkpoint is missing get another chance of it."""
        points = {point.work_id for point in await self._checkpoints.valid(step.tx, workflow.id)}
        for work in await step.tx.works.of_workflow(workflow.id):
            if work.status in (WorkStatus.PAUSED, WorkStatus.FAILED, WorkStatus.RUNNING):
                work.requeue()
                workflow.work_changed(work.id, work.status)
                await step.tx.works.save(work)
            elif work.status is WorkStatus.COMPLETED and work.id not in points:
                step.tell(workflow.id, WorkCompleted(work.id, workflow.id), work.attempt)

    async def _go_on(self, step: UnitOfWork, workflow: Workflow) -> None:
        works = await step.tx.works.of_workflow(workflow.id)
        workflow.resumed()
        await step.tx.workflows.save(workflow)
        step.tell(workflow.id, WorkflowResumed(workflow.id, _first_open_work(works).id))


def _first_open_work(works: list[Work]) -> Work:
    """The Work it goes on from: the first that is not done, or the last."""
    return next((work for work in works if work.status is not WorkStatus.COMPLETED), works[-1])


# CancelWorkflow: agents are stopped, and what is not done will not be.


class CancelWorkflow:
    """Cancel a workflow that is not over."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts
        self._halting = StopService(parts)

    async def execute(self, workflow_id: str) -> None:
        """Stop its agents, then cancel it; raises :class:`kingdom.workflow.errors.IllegalTransition`."""
        async with self._parts.turns.of(workflow_id):
            async with self._parts.store.transaction() as tx:
                workflow = await tx.workflows.get(workflow_id)
                works = await tx.works.of_workflow(workflow_id)
            check_transition("workflow", workflow_id, WORKFLOW_TRANSITIONS, workflow.status, WorkflowStatus.CANCELLED)
            await self._halting.requeue_dead_events(workflow_id)
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


# DeleteWorkflow: a workflow is forgotten, with everything it had on disk but its branches.


BUSY_STATUSES: Final = (WorkflowStatus.PREPARING, WorkflowStatus.RUNNING, WorkflowStatus.RESUMING)
"""Where a workflow stands while it cannot be deleted."""


class DeleteWorkflow:
    """Delete a workflow nobody works on."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts
        self._resources = WorkflowResourceService(parts)

    async def execute(self, workflow_id: str) -> None:
        """Remove its worktrees, workspaces and runs, then everything that is recorded of it but its events and cost.

        Uncommitted work is kept under a rescue ref first. Raises :class:`NotModifiable` while it is busy.
        """
        async with self._parts.turns.of(workflow_id):
            async with self._parts.store.transaction() as tx:
                workflow = await tx.workflows.get(workflow_id)
                _check_deletable(workflow)
                trees = [
                    tree
                    for tree in await tx.work_trees.of_workflow(workflow_id)
                    if tree.status is not WorkTreeStatus.RELEASED
                ]
                for tree in trees:
                    if tree.status is not WorkTreeStatus.PENDING_RELEASE:
                        tree.mark_for_release()  # should we be cut off, nobody takes it for whole
                        await tx.work_trees.save(tree)
                spaces = await tx.work_spaces.of_workflow(workflow_id)
                works = await tx.works.of_workflow(workflow_id)
            await self._remove(trees, spaces)
            for work in works:
                await self._parts.agents.forget(work.id)
            async with self._parts.step() as step:
                workflow = await step.tx.workflows.get(workflow_id)
                _check_deletable(workflow)
                works = await step.tx.works.of_workflow(workflow_id)
                await self._resources.release_uses(step.tx, workflow, works)
                await _delete_rows(step.tx, workflow_id)
                step.tell(workflow_id, WorkflowDeleted(workflow_id))

    async def _remove(self, trees: list[WorkTree], spaces: list[WorkSpace]) -> None:
        for tree in trees:
            await self._parts.git.release(tree)
        for space in spaces:
            await self._parts.files.remove(space)


async def _delete_rows(tx: WorkflowTransaction, workflow_id: str) -> None:
    for rows in (tx.works, tx.reports, tx.checkpoints, tx.work_trees, tx.work_spaces):
        for item in await rows.of_workflow(workflow_id):
            await rows.delete(item.id)
    await tx.workflows.delete(workflow_id)


def _check_deletable(workflow: Workflow) -> None:
    if workflow.status in BUSY_STATUSES:
        raise NotModifiable(f"workflow {workflow.id} is {workflow.status} and cannot be deleted now: cancel it first")
