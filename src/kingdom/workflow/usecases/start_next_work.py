"""StartNextWork: the works that may start do so; when all are done, so is the workflow."""

from __future__ import annotations

from collections.abc import Sequence

from kingdom.workflow.domain.events import AgentError, WorkflowCompleted, WorkflowPaused, WorkStarted
from kingdom.workflow.domain.plan import Plan
from kingdom.workflow.domain.resources import Checkpoint, WorkSpace, WorkTree
from kingdom.workflow.domain.statuses import AgentStatus, WorkflowStatus, WorkStatus, WorkTreeStatus
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.parts import Parts, Step, told
from kingdom.workflow.ports import Transaction
from kingdom.workflow.services.checkpoint import CheckpointService, trees_of
from kingdom.workflow.services.resource import WorkflowResourceService


class StartNextWork:
    """A step of a running workflow."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._resources = WorkflowResourceService(parts)
        self._checkpoints = CheckpointService(parts)

    async def execute(self, step: Step, workflow: Workflow) -> None:
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
            plan = Plan(works)
            for work in plan.startable(done):
                await self._start(step, workflow, work, plan, points)
        elif not running:
            workflow.pause(workflow.review)
            step.tell(workflow.id, WorkflowPaused(workflow.id))
            await step.tx.workflows.save(workflow)

    async def _start(
        self, step: Step, workflow: Workflow, work: Work, plan: Plan, points: dict[str, Checkpoint]
    ) -> None:
        work.start(apart=plan.apart(work))
        await step.tx.works.save(work)
        if work.apart:
            await self._plan_own_trees(step, workflow, work, plan, points)
        space = await self._resources.plan_space(step, work)
        step.tell(workflow.id, WorkStarted(work.id, workflow.id), work.attempt)
        step.then(lambda: self.begin(work, space))

    async def _plan_own_trees(
        self, step: Step, workflow: Workflow, work: Work, plan: Plan, points: dict[str, Checkpoint]
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

        async def note(tx: Transaction) -> None:
            stored = await tx.works.find(work.id)
            if stored is not None and stored.attempt == work.attempt and stored.agent_status is AgentStatus.STARTING:
                stored.could_not_begin()
                await tx.works.save(stored)

        await self._parts.outside(
            f"work {work.id} could not begin",
            start,
            lambda why: told(work.workflow_id, AgentError(work.id, why), work.attempt),
            note,
        )

    async def _space_of(self, work: Work) -> WorkSpace:
        async with self._parts.store.transaction() as tx:
            space = await self._resources.space_of(tx, work)
        if space is None:
            raise _NoPlace(f"work {work.id} has no workspace any more")
        return space

    async def _make_places(self, work: Work) -> None:
        if work.apart and (outcomes := await self._resources.make_trees(work.workflow_id, work.id)):
            async with self._parts.step() as step:
                problems = await self._resources.record_trees(step, outcomes)
            if problems:
                raise _NoPlace("; ".join(problems))
        if work.merge:
            async with self._parts.store.transaction() as tx:
                works = await tx.works.of_workflow(work.workflow_id)
                trees = await tx.work_trees.of_workflow(work.workflow_id)
            await self._merge(work, works, trees)

    async def _merge(self, work: Work, works: Sequence[Work], trees: Sequence[WorkTree]) -> None:
        sources = {other.id: other.name for other in Plan(works).merged_into(work)}
        for tree in trees_of(work, trees):
            theirs = [
                other
                for other in trees
                if other.work_id in sources and other.git_id == tree.git_id and other.status is WorkTreeStatus.READY
            ]
            await self._parts.git.merge(tree, theirs, f"{work.name}: merge {', '.join(sources.values())}")


class _NoPlace(Exception):
    """There is nowhere to work."""
