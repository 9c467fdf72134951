"""Handlers of workflows, works, worktrees and templates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from kingdom.gitops import GitError, RemoteFailed, is_outage
from kingdom.workflow.context import UnitOfWork
from kingdom.workflow.domain.events import (
    AgentStopped,
    GitDeleted,
    McpServerUnregistered,
    WorkCompleted,
    WorkflowGitRefsUpdated,
    WorkStarted,
    WorkStatusChanged,
    WorkTreeCreated,
    WorkTreeFailed,
    WorkTreePendingRelease,
)
from kingdom.workflow.domain.resources import Committed, WorkTree
from kingdom.workflow.domain.statuses import AgentStatus, TaskStatus, WorkflowStatus, WorkStatus, WorkTreeStatus
from kingdom.workflow.domain.workflow import Workflow, WorkflowTemplate
from kingdom.workflow.handlers.base import Handler, IncomingEvent
from kingdom.workflow.ports import NotLanded
from kingdom.workflow.store.transactions import WorkflowTransaction
from kingdom.workflow.usecases.landing import end_landing
from kingdom.workflow.usecases.lifecycle import prepare_workflow
from kingdom.workflow.usecases.resources import (
    commit_checkpoint,
    finish_checkpoint,
    intend_checkpoint,
    plan_trees,
    record_released,
    register_uses,
    release_uses,
)
from kingdom.workflow.usecases.steps import continue_task, halt_after_failure, may_be_alive, start_next_works

_TERMINATED_STATUSES: Final = (WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED, WorkflowStatus.FAILED)


# ── workflows ─────────────────────────────────────────────────────────────────────────────────────────────────────


class WorkflowStartedHandler(Handler):
    """Starts every Work that may start."""

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        workflow = await unit.tx.workflows.find_alone(incoming.aggregate_id)
        if workflow is None:
            return self.refuse(incoming, "it is gone")
        return await start_next_works(self.context, unit, workflow)


@dataclass(frozen=True, slots=True)
class _Terminated:
    released: list[WorkTree]
    not_landed: NotLanded | None = None


class WorkflowTerminatedHandler(Handler):
    """Lands a workflow that says so, releases repositories and MCP servers, and removes worktrees in PENDING_RELEASE.

    The other worktrees stay.
    """

    has_prelude: ClassVar[bool] = True

    async def before(self, incoming: IncomingEvent) -> object:
        """Remove the worktrees that are to be released, and land."""
        async with self.context.store.transaction() as tx:
            workflow = await tx.workflows.find_alone(incoming.aggregate_id)
            trees = await tx.work_trees.of_workflow(incoming.aggregate_id)
        pending = [tree for tree in trees if tree.status is WorkTreeStatus.PENDING_RELEASE]
        if workflow is None or not _is_terminated(workflow):
            return None
        for tree in pending:
            await self.context.git.release(tree)
        if workflow.landing and self.context.land is not None:
            return _Terminated(pending, await self.context.land(workflow.id, patient=True))
        return _Terminated(pending)

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        workflow = await unit.tx.workflows.find_alone(incoming.aggregate_id)
        if workflow is None or not _is_terminated(workflow):
            reason = "it is gone" if workflow is None else f"the workflow is {workflow.status} again"
            return self.refuse(incoming, reason)
        if isinstance(prelude, _Terminated):
            await record_released(unit, prelude.released)
            if workflow.landing:
                await end_landing(self.context, unit, workflow, prelude.not_landed)
        works = await unit.tx.works.of_workflow(workflow.id)
        return await release_uses(unit.tx, workflow, works)


class WorkflowGitRefsUpdatedHandler(Handler):
    """A READY workflow becomes PREPARING until its new worktrees are made. Others make them when they go on."""

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, WorkflowGitRefsUpdated)
        workflow = await unit.tx.workflows.find_alone(event.workflow_id)
        if workflow is None or workflow.status is not WorkflowStatus.READY or not event.added_refs:
            return
        workflow.prepare()
        await unit.tx.workflows.save(workflow)
        await register_uses(unit.tx, workflow, await unit.tx.works.of_workflow(workflow.id))
        await plan_trees(self.context, unit.tx, workflow)
        unit.after_commit(lambda: prepare_workflow(self.context, event.workflow_id))


def _is_terminated(workflow: Workflow | None) -> bool:
    return workflow is not None and workflow.status in _TERMINATED_STATUSES


# ── works and worktrees ───────────────────────────────────────────────────────────────────────────────────────────


class WorkStartedHandler(Handler):
    """Sends the query of the Work's first task that is not done."""

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, WorkStarted)
        work = await self.work_of(unit, incoming, event.work_id)
        workflow = await unit.tx.workflows.find_alone(event.workflow_id)
        if work is None or workflow is None:
            return None
        if workflow.status is not WorkflowStatus.RUNNING or work.status is not WorkStatus.RUNNING:
            return self.refuse(incoming, f"the workflow is {workflow.status}, the work {work.status}")
        if work.agent_status is AgentStatus.ERROR:
            return None  # it could not begin; the AgentError behind this event says why
        task = work.current_task
        if task is not None and task.status is TaskStatus.PENDING:
            await continue_task(self.context, unit, workflow, work, task)
        return None


class WorkStatusChangedHandler(Handler):
    """Gives the workflow another version if the status of its Work changed: `work_statuses` differ then."""

    view: ClassVar[bool] = True

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, WorkStatusChanged)
        workflow = await unit.tx.workflows.find_alone(event.workflow_id)
        work = await unit.tx.works.find_at_work(event.work_id)
        if workflow is None or work is None:
            return self.refuse(incoming, "it is gone")
        if unit.tx.works.status_changed(work):
            workflow.work_changed(work.id, work.status)
            await unit.tx.workflows.save(workflow)
        return None


class WorkTreeStatusChangedHandler(Handler):
    """Updates the workflow's `work_tree_statuses` to the worktree's current status."""

    view: ClassVar[bool] = True

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, (WorkTreeCreated, WorkTreeFailed, WorkTreePendingRelease))
        workflow = await unit.tx.workflows.find_alone(event.workflow_id)
        tree = await unit.tx.work_trees.find(event.work_tree_id)
        if workflow is None or tree is None:
            return self.refuse(incoming, "it is gone")
        if tree.work_id is None and tree.status is not WorkTreeStatus.RELEASED:  # a Work's own trees do not count
            workflow.work_tree_changed(tree.git_id, tree.status)
            await unit.tx.workflows.save(workflow)
        return None


@dataclass(frozen=True, slots=True)
class _CheckpointResult:
    checkpoint_id: str | None  # None: it could not be made
    commits: dict[str, Committed] = field(default_factory=dict)
    error: str = ""


class WorkCompletedHandler(Handler):
    """Makes a checkpoint, then starts the next works or pauses. A repetition finds the commits again."""

    has_prelude: ClassVar[bool] = True

    async def before(self, incoming: IncomingEvent) -> object:
        """Record the intent, stop the agent so that nobody writes any more, then commit."""
        event = incoming.event
        assert isinstance(event, WorkCompleted)
        async with self.context.store.transaction() as tx:
            workflow = await tx.workflows.find_alone(event.workflow_id)
            work = await tx.works.find_at_work(event.work_id)
            if workflow is None or work is None or workflow.is_over:
                return None
            attempt = work.attempt if incoming.attempt is None else incoming.attempt
            intent = await intend_checkpoint(self.context, tx, work, attempt)
        if may_be_alive(work):
            await self.context.agents.stop(work.id, record=False)
        if intent is None:
            return None
        try:
            return _CheckpointResult(intent.point.id, await commit_checkpoint(self.context, intent))
        except RemoteFailed as error:
            if is_outage(error):
                raise  # the commits are made; the event is retried until they are pushed, too
            return _CheckpointResult(None, error=str(error))
        except GitError as error:
            return _CheckpointResult(None, error=str(error))

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, WorkCompleted)
        workflow = await unit.tx.workflows.find_alone(event.workflow_id)
        work = await self.work_of(unit, incoming, event.work_id)
        if workflow is None or work is None or not isinstance(prelude, _CheckpointResult):
            return None
        if may_be_alive(work):
            unit.record(workflow.id, AgentStopped(work.id), work.attempt)
        work.agent_stopped()
        await unit.tx.works.save(work)
        if prelude.checkpoint_id is None:
            if workflow.status is WorkflowStatus.RUNNING:
                reason = f"what work {work.name} left could not be committed: {prelude.error}"
                work.fail(reason)
                fail = workflow.on_failure == "fail"
                await halt_after_failure(self.context, unit, workflow, work, reason, fail=fail)
            return None
        await finish_checkpoint(unit, prelude.checkpoint_id, prelude.commits)
        work.checkpointed(prelude.checkpoint_id)
        if work.pause_after and workflow.status is WorkflowStatus.RUNNING and workflow.review is None:
            workflow.review = f"review after {work.name}"
            await unit.tx.workflows.save(workflow)
        return await start_next_works(self.context, unit, workflow)


# ── templates ─────────────────────────────────────────────────────────────────────────────────────────────────────


class GitDeletedHandler(Handler):
    """Removes references to a deleted repository from every template."""

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, GitDeleted)
        for template in await _all_templates(unit.tx):
            if template.remove_git(event.git_id):
                await unit.tx.templates.save(template)


class McpServerUnregisteredHandler(Handler):
    """Removes references to an unregistered MCP server from every template."""

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, McpServerUnregistered)
        for template in await _all_templates(unit.tx):
            if template.remove_mcp_server(event.mcp_server_id):
                await unit.tx.templates.save(template)


async def _all_templates(tx: WorkflowTransaction) -> list[WorkflowTemplate]:
    found: list[WorkflowTemplate] = []
    while page := await tx.templates.list(after=found[-1].id if found else None):
        found += page
    return found
