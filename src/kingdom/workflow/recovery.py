"""What a former engine left: every workflow is brought to where it can go on."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

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
from kingdom.workflow.handlers.query_responded import QueryRespondedHandler
from kingdom.workflow.lanes import WORKER
from kingdom.workflow.parts import Parts
from kingdom.workflow.services.checkpoint import trees_of
from kingdom.workflow.services.halting import HaltingService, may_be_alive
from kingdom.workflow.store.transactions import STREAM
from kingdom.workflow.usecases.resume_workflow import CannotResume, ResumeWorkflow
from kingdom.workflow.usecases.send_query import SendQuery
from kingdom.workflow.usecases.start_next_work import StartNextWork
from kingdom.workflow.usecases.start_workflow import StartWorkflow

_KEPT = 7 * 86400.0  # seconds for which handled events stay on the bus; what the interface shows stays longer
_TREES = (WorkTreeStatus.CREATING, WorkTreeStatus.READY, WorkTreeStatus.FAILED, WorkTreeStatus.PENDING_RELEASE)


class Recovery:
    """Runs once, when an engine starts. Everything it does may be cut off and done again."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._begin = StartNextWork(parts)
        self._start = StartWorkflow(parts)
        self._resume = ResumeWorkflow(parts)
        self._send_query = SendQuery(parts)
        self._halting = HaltingService(parts)
        self._reports = QueryRespondedHandler(parts)

    async def run(self, drain: Callable[[], Awaitable[None]]) -> None:
        """Recover; ``drain`` handles everything that waits on the bus."""
        parts = self._parts
        parts.delivered = set()
        try:
            await self._take_back_events()
            trees, running, left = await self._found()
            await parts.git.prune(trees)
            await parts.agents.recover(running)
            for work in left:
                await self._halting.stop(work)
            await self._undo_checkpoints()
            await self._finish_changes()
            for work in running:
                if work.agent_status is AgentStatus.STARTING:
                    await self._begin.begin(work)
            await drain()
            await self._send_again()
        finally:
            parts.delivered = None

    async def _take_back_events(self) -> None:
        bus = self._parts.store.bus
        await bus.release(await bus.recall(STREAM, worker=WORKER))
        await bus.purge(_KEPT, stream=STREAM)

    async def _found(self) -> tuple[list[WorkTree], list[Work], list[Work]]:
        """Known worktrees; works that run; works that do not, but may have an agent that does."""
        async with self._parts.store.transaction() as tx:
            trees = await tx.work_trees.with_status(*_TREES)
            works = await tx.works.with_status(WorkStatus.RUNNING, WorkStatus.PAUSED, WorkStatus.FAILED)
        running = [work for work in works if work.status is WorkStatus.RUNNING]
        left = [
            work
            for work in works
            if work.status is not WorkStatus.RUNNING and (may_be_alive(work) or work.agent_status is AgentStatus.ERROR)
        ]
        return trees, running, left

    async def _undo_checkpoints(self) -> None:
        """Checkpoints that were begun, of attempts that are over: they will not be finished."""
        orphans: list[tuple[Checkpoint, list[WorkTree]]] = []
        async with self._parts.store.transaction() as tx:
            for point in await tx.checkpoints.with_status("OPEN"):
                workflow = await tx.workflows.get(point.workflow_id)
                work = await tx.works.find(point.work_id)
                if work is None or work.attempt != point.work_attempt or workflow.is_over:
                    trees = await tx.work_trees.of_workflow(workflow.id)
                    orphans.append((point, [] if work is None else trees_of(work, trees)))
        for point, trees in orphans:
            await self._parts.git.undo(point, trees)
            async with self._parts.store.transaction() as tx:
                await tx.checkpoints.delete(point.id)

    async def _finish_changes(self) -> None:
        """Workflows that were between two states."""
        async with self._parts.store.transaction() as tx:
            between = await tx.workflows.with_status(WorkflowStatus.PREPARING, WorkflowStatus.RESUMING)
        for workflow in between:
            async with self._parts.turns.of(workflow.id):
                if workflow.status is WorkflowStatus.PREPARING:
                    await self._start.prepare(workflow.id)
                else:
                    with contextlib.suppress(CannotResume):  # it is paused then, with the reason
                        await self._resume.finish(workflow.id)

    async def _send_again(self) -> None:
        """Queries and reports that were asked for, and that nobody here gave to an agent."""
        async with self._parts.store.transaction() as tx:
            works = await tx.works.with_status(WorkStatus.RUNNING)
        for work in works:
            async with self._parts.turns.of(work.workflow_id):
                await self._send_work_again(work.id)

    async def _send_work_again(self, work_id: str) -> None:
        async with self._parts.store.transaction() as tx:
            work = await tx.works.find(work_id)
            if work is None or work.status is not WorkStatus.RUNNING:
                return
            workflow = await tx.workflows.get(work.workflow_id)
            task = work.current_task
            report = await tx.reports.find(task.report_id) if task is not None and task.report_id else None
        delivered = self._parts.delivered or set()
        if task is None or task.status is not TaskStatus.RUNNING or (task.id, task.attempt) in delivered:
            return
        if task.query_status in (QueryStatus.SENT, QueryStatus.PROCESSING):
            await self._send_query.deliver(workflow, work, task)
        elif report is not None and task.report_status is ReportStatus.GENERATING:
            await self._reports.write(work, task, report)
