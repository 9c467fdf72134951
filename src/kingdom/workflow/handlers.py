"""Which handler handles which event, and the handlers of workflows, works and worktrees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from kingdom.gitops import GitError
from kingdom.workflow.context import UnitOfWork, WorkflowContext
from kingdom.workflow.domain.events import (
    UI_ONLY,
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
from kingdom.workflow.domain.resources import Committed
from kingdom.workflow.domain.statuses import AgentStatus, TaskStatus, WorkflowStatus, WorkStatus, WorkTreeStatus
from kingdom.workflow.domain.workflow import Workflow, WorkflowTemplate
from kingdom.workflow.ports import WorkflowTransaction
from kingdom.workflow.task_handlers import (
    AgentErrorHandler,
    AgentStartedHandler,
    AgentStoppedHandler,
    Handler,
    IncomingEvent,
    QueryFailedHandler,
    QueryRespondedHandler,
    ReportFailedHandler,
    ReportGeneratedHandler,
)
from kingdom.workflow.usecases.lifecycle import StartWorkflow
from kingdom.workflow.usecases.resources import CheckpointService, WorkflowResourceService
from kingdom.workflow.usecases.steps import SendQuery, StartNextWork, StopService, may_be_alive

# All templates, for what has to be taken out of each.


async def all_templates(tx: WorkflowTransaction) -> list[WorkflowTemplate]:
    """Every template, page by page."""
    found: list[WorkflowTemplate] = []
    while page := await tx.templates.list(after=found[-1].id if found else None):
        found += page
    return found


# WorkflowStarted and WorkflowResumed: the next Work starts.


class WorkflowStartedHandler(Handler):
    """Starts what may start."""

    def __init__(self, parts: WorkflowContext) -> None:
        super().__init__(parts)
        self._start_next_work = StartNextWork(parts)

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """Start the next Work."""
        workflow = await step.tx.workflows.find(news.aggregate_id)
        if workflow is None:
            return self.refuse(news, "it is gone")
        return await self._start_next_work.execute(step, workflow)


# WorkStarted: the first query is sent.


class WorkStartedHandler(Handler):
    """Sends the query of the Work's first task, or of the first that is not done yet."""

    def __init__(self, parts: WorkflowContext) -> None:
        super().__init__(parts)
        self._send_query = SendQuery(parts)

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """Send the query, unless it is sent already."""
        event = news.event
        assert isinstance(event, WorkStarted)
        work = await self.work_of(step, news, event.work_id)
        workflow = await step.tx.workflows.find(event.workflow_id)
        if work is None or workflow is None:
            return None
        if workflow.status is not WorkflowStatus.RUNNING or work.status is not WorkStatus.RUNNING:
            return self.refuse(news, f"the workflow is {workflow.status}, the work {work.status}")
        if work.agent_status is AgentStatus.ERROR:
            return None  # it could not begin, and what comes behind this says why
        task = work.current_task
        if task is not None and task.status is TaskStatus.PENDING:
            self._send_query.execute(step, workflow, work, task)
            await step.tx.works.save(work)
        return None


# WorkStatusChanged: the workflow knows the states of its works.


class WorkStatusChangedHandler(Handler):
    """Updates the workflow's ``work_statuses``, to what the Work is now: an older event cannot undo a newer one."""

    view: ClassVar[bool] = True

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """Note the state of the Work."""
        event = news.event
        assert isinstance(event, WorkStatusChanged)
        workflow = await step.tx.workflows.find(event.workflow_id)
        work = await step.tx.works.find(event.work_id)
        if workflow is None or work is None:
            return self.refuse(news, "it is gone")
        if workflow.work_statuses.get(work.id) is not work.status:
            workflow.work_changed(work.id, work.status)
            await step.tx.workflows.save(workflow)
        return None


# WorkTreeCreated, WorkTreeFailed, WorkTreePendingRelease: the workflow knows the states of its worktrees.


class WorkTreeStatusChangedHandler(Handler):
    """Updates the workflow's ``work_tree_statuses``, to what the worktree is now."""

    view: ClassVar[bool] = True

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """Note the state of the worktree."""
        event = news.event
        assert isinstance(event, (WorkTreeCreated, WorkTreeFailed, WorkTreePendingRelease))
        workflow = await step.tx.workflows.find(event.workflow_id)
        tree = await step.tx.work_trees.find(event.work_tree_id)
        if workflow is None or tree is None:
            return self.refuse(news, "it is gone")
        if tree.work_id is None and tree.status is not WorkTreeStatus.RELEASED:  # a Work's own trees are its own affair
            workflow.work_tree_changed(tree.git_id, tree.status)
            await step.tx.workflows.save(workflow)
        return None


# WorkCompleted: what the Work left becomes a checkpoint, then the next Work starts.


@dataclass(frozen=True, slots=True)
class _CheckpointResult:
    checkpoint_id: str | None  # None: it could not be made
    commits: dict[str, Committed] = field(default_factory=dict)
    error: str = ""


class WorkCompletedHandler(Handler):
    """Makes a checkpoint. The commits are made before the transaction; a repetition finds them again."""

    outside: ClassVar[bool] = True

    def __init__(self, parts: WorkflowContext) -> None:
        super().__init__(parts)
        self._checkpoints = CheckpointService(parts)
        self._halting = StopService(parts)
        self._start_next_work = StartNextWork(parts)

    async def before(self, news: IncomingEvent) -> object:
        """Note what is about to be made, make sure that nobody writes any more, then commit."""
        event = news.event
        assert isinstance(event, WorkCompleted)
        async with self.parts.store.transaction() as tx:
            workflow = await tx.workflows.find(event.workflow_id)
            work = await tx.works.find(event.work_id)
            if workflow is None or work is None or workflow.is_over:
                return None
            attempt = work.attempt if news.attempt is None else news.attempt
            intent = await self._checkpoints.intend(tx, work, attempt)
        if may_be_alive(work):
            await self.parts.agents.stop(work.id)
        if intent is None:
            return None
        try:
            return _CheckpointResult(intent.point.id, await self._checkpoints.commit(intent))
        except GitError as error:
            return _CheckpointResult(None, error=str(error))

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """Record the checkpoint and go on, or pause where the plan says so."""
        event = news.event
        assert isinstance(event, WorkCompleted)
        workflow = await step.tx.workflows.find(event.workflow_id)
        work = await self.work_of(step, news, event.work_id)
        if workflow is None or work is None or not isinstance(made, _CheckpointResult):
            return None
        work.agent_stopped()
        await step.tx.works.save(work)
        if made.checkpoint_id is None:
            if workflow.status is WorkflowStatus.RUNNING:
                reason = f"what work {work.name} left could not be committed: {made.error}"
                await self._halting.halt(step, workflow, reason, fail=workflow.on_failure == "fail")
            return None
        await self._checkpoints.finish(step, made.checkpoint_id, made.commits)
        if work.pause_after and workflow.status is WorkflowStatus.RUNNING and workflow.review is None:
            workflow.review = f"review after {work.name}"
            await step.tx.workflows.save(workflow)
        return await self._start_next_work.execute(step, workflow)


# WorkflowCompleted, WorkflowCancelled, WorkflowFailed: what the workflow used is free again.


_TERMINATED_STATUSES = (WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED, WorkflowStatus.FAILED)


class WorkflowTerminatedHandler(Handler):
    """Releases repositories and MCP servers, and removes worktrees in PENDING_RELEASE. The others stay."""

    outside: ClassVar[bool] = True

    def __init__(self, parts: WorkflowContext) -> None:
        super().__init__(parts)
        self._resources = WorkflowResourceService(parts)

    async def before(self, news: IncomingEvent) -> object:
        """Remove the worktrees that were to be released."""
        async with self.parts.store.transaction() as tx:
            workflow = await tx.workflows.find(news.aggregate_id)
            trees = await tx.work_trees.of_workflow(news.aggregate_id)
        pending = [tree for tree in trees if tree.status is WorkTreeStatus.PENDING_RELEASE]
        if not _is_terminated(workflow):
            return None
        for tree in pending:
            await self.parts.git.release(tree)
        return pending

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """Release what is used."""
        workflow = await step.tx.workflows.find(news.aggregate_id)
        if workflow is None or not _is_terminated(workflow):
            return self.refuse(news, "it is gone" if workflow is None else f"the workflow is {workflow.status} again")
        if isinstance(made, list):
            await self._resources.record_released(step, made)
        works = await step.tx.works.of_workflow(workflow.id)
        return await self._resources.release_uses(step.tx, workflow, works)


def _is_terminated(workflow: Workflow | None) -> bool:
    return workflow is not None and workflow.status in _TERMINATED_STATUSES


# WorkflowGitRefsUpdated: the worktrees of repositories that came in are made.


class WorkflowGitRefsUpdatedHandler(Handler):
    """A READY workflow becomes PREPARING until the new worktrees are there. Others make them when they go on."""

    outside: ClassVar[bool] = False

    def __init__(self, parts: WorkflowContext) -> None:
        super().__init__(parts)
        self._resources = WorkflowResourceService(parts)
        self._start = StartWorkflow(parts)

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
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


# GitDeleted: no template names the repository any more.


class GitDeletedHandler(Handler):
    """Takes the reference out of every template."""

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """Remove the reference wherever it stands."""
        event = news.event
        assert isinstance(event, GitDeleted)
        for template in await all_templates(step.tx):
            if template.remove_git(event.git_id):
                await step.tx.templates.save(template)


# McpServerUnregistered: no template names the MCP server any more.


class McpServerUnregisteredHandler(Handler):
    """Takes the reference out of every template."""

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """Remove the reference wherever it stands."""
        event = news.event
        assert isinstance(event, McpServerUnregistered)
        for template in await all_templates(step.tx):
            if template.remove_mcp_server(event.mcp_server_id):
                await step.tx.templates.save(template)


# What follows from events: a handler for each row of the table, and a list of what only an interface shows.


HANDLERS: Final[dict[str, type[Handler]]] = {
    "WorkflowStarted": WorkflowStartedHandler,
    "WorkflowResumed": WorkflowStartedHandler,
    "WorkStatusChanged": WorkStatusChangedHandler,
    "WorkStarted": WorkStartedHandler,
    "WorkCompleted": WorkCompletedHandler,
    "WorkTreeCreated": WorkTreeStatusChangedHandler,
    "WorkTreeFailed": WorkTreeStatusChangedHandler,
    "WorkTreePendingRelease": WorkTreeStatusChangedHandler,
    "WorkflowCompleted": WorkflowTerminatedHandler,
    "WorkflowCancelled": WorkflowTerminatedHandler,
    "WorkflowFailed": WorkflowTerminatedHandler,
    "AgentStarted": AgentStartedHandler,
    "AgentStopped": AgentStoppedHandler,
    "AgentError": AgentErrorHandler,
    "QueryResponded": QueryRespondedHandler,
    "QueryFailed": QueryFailedHandler,
    "ReportGenerated": ReportGeneratedHandler,
    "ReportFailed": ReportFailedHandler,
    "WorkflowGitRefsUpdated": WorkflowGitRefsUpdatedHandler,
    "GitDeleted": GitDeletedHandler,
    "McpServerUnregistered": McpServerUnregisteredHandler,
}

__all__ = ["HANDLERS", "UI_ONLY", "Handler", "IncomingEvent"]
