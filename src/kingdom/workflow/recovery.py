"""What an engine does first: bring every workflow that a former engine left to where it can go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.resources import Checkpoint, WorkTree
from kingdom.workflow.domain.statuses import (
    AgentStatus,
    QueryStatus,
    ReportStatus,
    TaskStatus,
    WorkflowStatus,
    WorkStatus,
    WorkTreeStatus,
)
from kingdom.workflow.domain.work import Work
from kingdom.workflow.event_queues import engine_worker
from kingdom.workflow.store.transactions import STREAM
from kingdom.workflow.usecases.lifecycle import finish_transition
from kingdom.workflow.usecases.resources import trees_of
from kingdom.workflow.usecases.steps import begin_work, deliver_query, may_be_alive, stop_agent, write_report

_HANDLED_KEPT_SECONDS: Final = 7 * 86400.0  # for handled events on the bus; `wf_event` keeps them longer
_KNOWN_TREE_STATUSES: Final = (
    WorkTreeStatus.CREATING,
    WorkTreeStatus.READY,
    WorkTreeStatus.FAILED,
    WorkTreeStatus.PENDING_RELEASE,
)


class Recovery:
    """Brings every workflow that a former engine left to where it can go on. Runs once, when an engine starts.

    Every step may be cut off by a crash and repeated.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    async def run(self, drain: Callable[[], Awaitable[None]]) -> None:
        """Recover; ``drain`` handles everything that waits on the bus."""
        context = self._context
        context.delivered = set()
        try:
            await self._release_events()
            trees, running, left = await self._find_left()
            await self._stop_strays()
            await context.git.prune(trees)
            await context.agents.recover(running)
            for work in left:
                await stop_agent(context, work)
            await self._undo_checkpoints()
            await self._finish_transitions()
            for work in running:
                if work.agent_status is AgentStatus.STARTING:
                    await begin_work(context, work)
            await drain()
            await self._resend()
        finally:
            context.delivered = None

    async def _release_events(self) -> None:
        bus = self._context.store.bus
        await bus.release(await bus.recall(STREAM, worker=engine_worker(self._context.store)))
        await bus.purge(_HANDLED_KEPT_SECONDS, stream=STREAM)

    async def _find_left(self) -> tuple[list[WorkTree], list[Work], list[Work]]:
        """Return the known worktrees, the running works, and the other works whose agent may still run."""
        async with self._context.store.transaction() as tx:
            trees = await tx.work_trees.with_status(*_KNOWN_TREE_STATUSES)
            works = await tx.works.with_status(
                WorkStatus.RUNNING, WorkStatus.PAUSED, WorkStatus.WAITING, WorkStatus.FAILED
            )
        trees, works = await self._without_others(trees), [work for work in works if self._is_mine(work.workflow_id)]
        running = [work for work in works if work.status is WorkStatus.RUNNING]
        left = [
            work
            for work in works
            if work.status is not WorkStatus.RUNNING and (may_be_alive(work) or work.agent_status is AgentStatus.ERROR)
        ]
        return trees, running, left

    def _is_mine(self, workflow_id: str) -> bool:
        holds = self._context.store.holds
        return holds is None or holds.is_mine(workflow_id)

    async def _without_others(self, trees: list[WorkTree]) -> list[WorkTree]:
        """Return the worktrees without those of workflows that another machine has taken over."""
        holds = self._context.store.holds
        others = {} if holds is None else await holds.others({tree.workflow_id for tree in trees})
        for tree in trees:
            if tree.workflow_id in others:
                await self._context.git.release(tree)  # what was left of it here is kept under a rescue ref
        return [tree for tree in trees if tree.workflow_id not in others]

    async def _stop_strays(self) -> None:
        """Stop the agents that a former engine left here, of workflows that another engine has taken over."""
        if self._context.store.holds is None:
            return
        async with self._context.store.reading() as tx:
            here = [await tx.works.find_at_work(work_id) for work_id in await self._context.agents.works_here()]
        mine = {work.id for work in here if work is not None and self._is_mine(work.workflow_id)}
        await self._context.agents.stop_others(mine, "another engine has taken over its workflow")

    async def _undo_checkpoints(self) -> None:
        """Undo unfinished checkpoints of attempts that are over: nobody will finish them."""
        orphans: list[tuple[Checkpoint, list[WorkTree]]] = []
        async with self._context.store.transaction() as tx:
            for point in await tx.checkpoints.with_status("OPEN"):
                if not self._is_mine(point.workflow_id):
                    continue
                workflow = await tx.workflows.get(point.workflow_id)
                work = await tx.works.find(point.work_id)
                if work is None or work.attempt != point.work_attempt or workflow.is_over:
                    trees = await tx.work_trees.of_workflow(workflow.id)
                    orphans.append((point, [] if work is None else trees_of(work, trees)))
        for point, trees in orphans:
            await self._context.git.undo(point, trees)
            async with self._context.store.transaction() as tx:
                await tx.checkpoints.delete(point.id)

    async def _finish_transitions(self) -> None:
        """Finish workflows that are PREPARING or RESUMING."""
        async with self._context.store.transaction() as tx:
            between = await tx.workflows.with_status(WorkflowStatus.PREPARING, WorkflowStatus.RESUMING)
        for workflow in between:
            if self._is_mine(workflow.id):
                await finish_transition(self._context, workflow.id)

    async def _resend(self) -> None:
        """Send queries and reports that are recorded as sent but that this engine gave to no agent."""
        async with self._context.store.transaction() as tx:
            works = await tx.works.with_status(WorkStatus.RUNNING)
        for work in works:
            if not self._is_mine(work.workflow_id):
                continue
            async with self._context.locks.of(work.workflow_id):
                await self._resend_work(work.id)

    async def _resend_work(self, work_id: str) -> None:
        async with self._context.store.transaction() as tx:
            work = await tx.works.find(work_id)
            if work is None or work.status is not WorkStatus.RUNNING:
                return
            workflow = await tx.workflows.get(work.workflow_id)
            task = work.current_task
            report = await tx.reports.find(task.report_id) if task is not None and task.report_id else None
        delivered = self._context.delivered or set()
        if task is None or task.status is not TaskStatus.RUNNING or (task.id, task.attempt) in delivered:
            return
        if task.query_status in (QueryStatus.SENT, QueryStatus.PROCESSING):
            await deliver_query(self._context, workflow, work, task)
        elif report is not None and task.report_status is ReportStatus.GENERATING:
            await write_report(self._context, work, task, report)
