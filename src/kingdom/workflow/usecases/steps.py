"""The steps of a running workflow: start works, send queries, complete tasks, stop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kingdom.workflow.context import UnitOfWork, WorkflowContext, workflow_event
from kingdom.workflow.domain.events import (
    AgentError,
    QueryFailed,
    QuerySent,
    TaskCompleted,
    TaskStarted,
    WorkCompleted,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowPaused,
    WorkStarted,
    WorkStatusChanged,
)
from kingdom.workflow.domain.plan import WorkDependencies
from kingdom.workflow.domain.resources import Checkpoint, WorkSpace, WorkTree
from kingdom.workflow.domain.statuses import AgentStatus, WorkflowStatus, WorkStatus, WorkTreeStatus
from kingdom.workflow.domain.work import Task, Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.ports import WorkflowTransaction
from kingdom.workflow.store.transactions import STREAM
from kingdom.workflow.usecases.resources import CheckpointService, WorkflowResourceService, trees_of

# Stopping agents, and workflows that cannot go on.


_MAX_DEAD_EVENTS = 10_000  # dead events that are looked through
_ALIVE_STATUSES = (AgentStatus.STARTING, AgentStatus.RUNNING)


def may_be_alive(work: Work) -> bool:
    """Whether a Work may have an agent that runs."""
    return work.agent_status in _ALIVE_STATUSES


class StopService:
    """Brings a workflow to a stop."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    async def stop_agents(self, works: Iterable[Work]) -> None:
        """End the agents of works; on return nothing of them is alive. Outside of any transaction."""
        for work in works:
            if may_be_alive(work):
                await self._parts.agents.stop(work.id)

    async def requeue_dead_events(self, workflow_id: str) -> None:
        """Have events that could not be handled tried once more: whatever they hold back must go on."""
        bus = self._parts.store.bus
        dead = [
            item.event_id
            for item in await bus.dead(STREAM, _MAX_DEAD_EVENTS)
            if item.envelope.aggregate_id == workflow_id
        ]
        await bus.requeue(STREAM, dead)

    async def pause_works(
        self, step: UnitOfWork, workflow: Workflow, works: Iterable[Work], *, stopped: bool = False
    ) -> None:
        """Pause the works that run; ``stopped``: their agents, and all others, are."""
        for work in works:
            if work.status is WorkStatus.RUNNING:
                work.pause()
                workflow.work_changed(work.id, work.status)
            elif not (stopped and may_be_alive(work)):
                continue
            if stopped:
                work.agent_stopped()
            await step.tx.works.save(work)

    async def give_up(self, step: UnitOfWork, workflow: Workflow, work: Work, reason: str, *, fail: bool) -> None:
        """A Work failed: the workflow pauses or fails, and what runs beside it stops."""
        step.tell(workflow.id, WorkStatusChanged(work.id, workflow.id, work.status), work.attempt)
        await self.halt(step, workflow, reason, fail=fail)

    async def halt(self, step: UnitOfWork, workflow: Workflow, reason: str, *, fail: bool) -> None:
        """Pause the workflow, or have it fail."""
        works = await step.tx.works.of_workflow(workflow.id)
        running = [work for work in works if may_be_alive(work) or work.agent_status is AgentStatus.ERROR]
        await self.pause_works(step, workflow, works)
        if fail:
            workflow.fail(reason)
            step.tell(workflow.id, WorkflowFailed(workflow.id, reason))
        else:
            workflow.pause(reason)
            step.tell(workflow.id, WorkflowPaused(workflow.id))
        await step.tx.workflows.save(workflow)
        for work in running:
            step.then(lambda work=work: self.stop(work))  # type: ignore[misc]

    async def stop(self, left: Work) -> None:
        """End the agent of a Work that does not run any more, and note it; may be repeated."""

        async def stop() -> None:
            await self._parts.agents.stop(left.id)
            async with self._parts.store.transaction() as tx:
                work = await tx.works.find(left.id)
                if work is not None and work.status is not WorkStatus.RUNNING and may_be_alive(work):
                    work.agent_stopped()
                    await tx.works.save(work)

        await self._parts.outside(f"the agent of work {left.id} could not be stopped", stop)


# SendQuery: the query of a task goes to the agent of its Work.


class SendQuery:
    """A step of a running workflow."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    def execute(self, step: UnitOfWork, workflow: Workflow, work: Work, task: Task) -> None:
        """Note that the query is sent, and send it once that is committed. The caller saves the Work."""
        task.send()
        step.tell(workflow.id, TaskStarted(work.id, task.id), task.attempt)
        step.tell(workflow.id, QuerySent(work.id, task.id), task.attempt)
        step.then(lambda: self.deliver(workflow, work, task))

    async def deliver(self, workflow: Workflow, work: Work, task: Task) -> None:
        """Give the agent what was noted as sent; may be repeated. What goes wrong is told as ``QueryFailed``."""
        if self._parts.delivered is not None:
            self._parts.delivered.add((task.id, task.attempt))
        attempt = task.attempt

        async def send() -> None:
            text = await self._parts.queries.text(workflow, work, task)
            await self._parts.agents.send_query(work, task, text)

        await self._parts.outside(
            f"the query of task {task.id} could not be sent",
            send,
            lambda why: workflow_event(workflow.id, QueryFailed(work.id, task.id, why), attempt),
        )


# CompleteTask: everything a task asked for is there; the next one follows, or the Work is done.


class CompleteTask:
    """A step of a running workflow."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._send_query = SendQuery(parts)

    async def execute(self, step: UnitOfWork, workflow: Workflow, work: Work, task: Task) -> None:
        """Complete a task, and send the next one's query or complete the Work."""
        task.complete()
        following = work.current_task
        if following is None:
            work.complete()
        step.tell(workflow.id, TaskCompleted(work.id, task.id), task.attempt)
        step.tell(workflow.id, WorkStatusChanged(work.id, workflow.id, work.status), work.attempt)
        if following is None:
            step.tell(workflow.id, WorkCompleted(work.id, workflow.id), work.attempt)
        else:
            self._send_query.execute(step, workflow, work, following)
        await step.tx.works.save(work)


# StartNextWork: the works that may start do so; when all are done, so is the workflow.


class StartNextWork:
    """A step of a running workflow."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts
        self._resources = WorkflowResourceService(parts)
        self._checkpoints = CheckpointService(parts)

    async def execute(self, step: UnitOfWork, workflow: Workflow) -> None:
        """Start what may start now; may be repeated. Nothing happens to a workflow that does not run."""
        if workflow.status is not WorkflowStatus.RUNNING:
            return
        works = await step.tx.works.of_workflow(workflow.id)
        points = {point.work_id: point for point in await self._checkpoints.valid(step.tx, workflow.id)}
        done = [work.id for work in works if work.status is WorkStatus.COMPLETED and work.id in points]
        running = any(work.status is WorkStatus.RUNNING for work in works)
        if len(done) == len(works):
            workflow.complete()
            step.tell(workflow.id, WorkflowCompleted(workflow.id))
            await step.tx.workflows.save(workflow)
        elif workflow.review is None:
            plan = WorkDependencies(works)
            for work in plan.startable(done):
                await self._start(step, workflow, work, plan, points)
        elif not running:
            workflow.pause(workflow.review)
            step.tell(workflow.id, WorkflowPaused(workflow.id))
            await step.tx.workflows.save(workflow)

    async def _start(
        self, step: UnitOfWork, workflow: Workflow, work: Work, plan: WorkDependencies, points: dict[str, Checkpoint]
    ) -> None:
        work.start(apart=plan.apart(work))
        await step.tx.works.save(work)
        if work.apart:
            await self._plan_own_trees(step, workflow, work, plan, points)
        space = await self._resources.plan_space(step, work)
        step.tell(workflow.id, WorkStarted(work.id, workflow.id), work.attempt)
        step.then(lambda: self.begin(work, space))

    async def _plan_own_trees(
        self, step: UnitOfWork, workflow: Workflow, work: Work, plan: WorkDependencies, points: dict[str, Checkpoint]
    ) -> None:
        """Worktrees of its own, that start from what the Work before it left."""
        earlier = [points[other.id] for other in plan.waits_for(work)]
        if len(earlier) != 1:  # several lines: it starts where the workflow's own one stands
            together = [item.id for item in plan.works if item.id in plan.before(work) and not plan.apart(item)]
            earlier = [points[together[-1]]] if together else []
        for tree in await self._resources.plan_trees(step.tx, workflow, work):
            if earlier and tree.git_id in earlier[0].hashes:
                tree.base = earlier[0].hashes[tree.git_id]
                await step.tx.work_trees.save(tree)

    # ── after the commit ──────────────────────────────────────────────────────────────────────────────────────

    async def begin(self, work: Work, space: WorkSpace | None = None) -> None:
        """Make what a started Work needs, and start its agent; may be repeated. A workspace not given is looked up.

        What goes wrong is told as ``AgentError``: the Work fails with it, and nothing is asked of its agent before
        that.
        """

        async def start() -> None:
            await self._make_places(work)
            await self._parts.files.make(space or await self._space_of(work))
            await self._parts.agents.start(work)

        async def note(tx: WorkflowTransaction) -> None:
            stored = await tx.works.find(work.id)
            if stored is not None and stored.attempt == work.attempt and stored.agent_status is AgentStatus.STARTING:
                stored.agent_start_failed()
                await tx.works.save(stored)

        await self._parts.outside(
            f"work {work.id} could not begin",
            start,
            lambda why: workflow_event(work.workflow_id, AgentError(work.id, why), work.attempt),
            note,
        )

    async def _space_of(self, work: Work) -> WorkSpace:
        async with self._parts.store.transaction() as tx:
            space = await self._resources.space_of(tx, work)
        if space is None:
            raise _CannotStart(f"work {work.id} has no workspace any more")
        return space

    async def _make_places(self, work: Work) -> None:
        if work.apart and (outcomes := await self._resources.make_trees(work.workflow_id, work.id)):
            async with self._parts.step() as step:
                problems = await self._resources.record_trees(step, outcomes)
            if problems:
                raise _CannotStart("; ".join(problems))
        if work.merge:
            async with self._parts.store.transaction() as tx:
                works = await tx.works.of_workflow(work.workflow_id)
                trees = await tx.work_trees.of_workflow(work.workflow_id)
            await self._merge(work, works, trees)

    async def _merge(self, work: Work, works: Sequence[Work], trees: Sequence[WorkTree]) -> None:
        sources = {other.id: other.name for other in WorkDependencies(works).merged_into(work)}
        for tree in trees_of(work, trees):
            theirs = [
                other
                for other in trees
                if other.work_id in sources and other.git_id == tree.git_id and other.status is WorkTreeStatus.READY
            ]
            await self._parts.git.merge(tree, theirs, f"{work.name}: merge {', '.join(sources.values())}")


class _CannotStart(Exception):
    """There is nowhere to work."""
