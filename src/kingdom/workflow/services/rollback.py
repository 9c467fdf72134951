"""Going back to a checkpoint: trees, folders, reports, works."""

from __future__ import annotations

from dataclasses import dataclass

from kingdom.workflow.domain.resources import Checkpoint, WorkSpace, WorkTree
from kingdom.workflow.domain.statuses import WorkStatus, WorkTreeStatus
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.ports import Transaction
from kingdom.workflow.services.checkpoint import CheckpointService, kept_by, trees_of
from kingdom.workflow.services.resource import WorkflowResourceService


@dataclass(frozen=True, slots=True)
class _Cut:
    """What stays and what goes when a workflow goes back."""

    hashes: dict[str, str]  # what the workflow's own trees go back to
    undone: list[Work]
    trees: list[WorkTree]  # the workflow's own
    released: list[WorkTree]  # of works that are undone, and had their own
    spaces: list[WorkSpace]  # of works that are undone
    unfinished: list[tuple[Checkpoint, list[WorkTree]]]
    later: list[Checkpoint]


class RollbackService:
    """Goes back in two strokes: what is outside first, then what is recorded. Each may be repeated."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._checkpoints = CheckpointService(parts)
        self._resources = WorkflowResourceService(parts)

    async def reset(self, workflow_id: str, checkpoint_id: str | None) -> None:
        """Bring the trees back and remove later folders; no agent may be alive. Outside of any transaction."""
        async with self._parts.store.transaction() as tx:
            cut = await self._cut(tx, workflow_id, checkpoint_id)
        for point, trees in cut.unfinished:
            await self._parts.git.undo(point, trees)
        if cut.trees:
            await self._parts.git.reset(cut.trees, cut.hashes)
        for tree in cut.released:
            await self._parts.git.release(tree)
        for space in cut.spaces:
            await self._parts.files.remove(space)

    async def record(self, step: Step, workflow: Workflow, checkpoint_id: str | None) -> None:
        """Note all that; the works behind the checkpoint begin anew."""
        cut = await self._cut(step.tx, workflow.id, checkpoint_id)
        undone = {work.id for work in cut.undone}
        for work in cut.undone:
            if work.status is not WorkStatus.PENDING or work.attempt > 1:
                work.reset()
                await step.tx.works.save(work)
            workflow.work_changed(work.id, work.status)
        for report in await step.tx.reports.of_workflow(workflow.id):
            if report.work_id in undone:
                report.reset()
                await step.tx.reports.save(report)
        for point in cut.later:
            point.invalidate()
            await step.tx.checkpoints.save(point)
        for point, _ in cut.unfinished:
            await step.tx.checkpoints.delete(point.id)
        for space in cut.spaces:
            await step.tx.work_spaces.delete(space.id)
        await self._resources.record_released(step, cut.released)

    async def _cut(self, tx: Transaction, workflow_id: str, checkpoint_id: str | None) -> _Cut:
        points = await self._checkpoints.valid(tx, workflow_id)
        chosen = next((point for point in points if point.id == checkpoint_id), None)
        works = await tx.works.of_workflow(workflow_id)
        kept = {
            work_id: point
            for work_id, point in kept_by(chosen, points).items()
            if any(work.id == work_id and work.status is WorkStatus.COMPLETED for work in works)
        }
        undone = [work for work in works if work.id not in kept]
        trees = await tx.work_trees.of_workflow(workflow_id)
        there = [tree for tree in trees if tree.status is WorkTreeStatus.READY]
        hashes: dict[str, str] = {}
        for work in sorted((work for work in works if work.id in kept and not work.apart), key=lambda w: kept[w.id].id):
            hashes.update(kept[work.id].hashes)
        gone = {work.id for work in undone}
        all_points = await tx.checkpoints.of_workflow(workflow_id)
        by_id = {work.id: work for work in works}
        return _Cut(
            hashes,
            undone,
            [tree for tree in there if tree.work_id is None],
            [tree for tree in trees if tree.work_id in gone and tree.status is not WorkTreeStatus.RELEASED],
            [space for space in await tx.work_spaces.of_workflow(workflow_id) if space.work_id in gone],
            [(point, _trees(by_id.get(point.work_id), trees)) for point in all_points if not point.complete],
            [point for point in points if chosen is None or point.id > chosen.id],
        )


def _trees(work: Work | None, trees: list[WorkTree]) -> list[WorkTree]:
    return [] if work is None else trees_of(work, trees)
