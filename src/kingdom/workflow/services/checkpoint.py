"""CheckpointService: what a Work left, as one commit in each repository, all or none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kingdom.workflow.domain.errors import NotFound
from kingdom.workflow.domain.events import CheckpointCreated
from kingdom.workflow.domain.resources import Checkpoint, Committed, WorkTree
from kingdom.workflow.domain.statuses import WorkStatus, WorkTreeStatus
from kingdom.workflow.domain.work import Work
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.ports import Transaction


class Intent(NamedTuple):
    """A checkpoint that is about to be made."""

    point: Checkpoint
    trees: list[WorkTree]
    message: str


class CheckpointService:
    """Checkpoints are made in three strokes: the intent, the commits, and the hashes with the end of it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    # ── making ────────────────────────────────────────────────────────────────────────────────────────────────

    async def intend(self, tx: Transaction, work: Work, attempt: int) -> Intent | None:
        """Record what is about to be committed; may be repeated. None when the attempt is over."""
        if work.attempt != attempt or work.status is not WorkStatus.COMPLETED:
            return None
        point = await self._intent(tx, work)
        trees = trees_of(work, await tx.work_trees.of_workflow(work.workflow_id))
        return Intent(point, trees, f"{work.name} (attempt {work.attempt})")

    async def commit(self, intent: Intent) -> dict[str, Committed]:
        """Make the commits; may be repeated. When nobody writes any more, outside of any transaction.

        Raises :class:`kingdom.gitops.GitError`; the intent then stays.
        """
        if intent.point.complete or not intent.trees:
            return {}
        return await self._parts.git.commit_all(intent.point, intent.trees, intent.message)

    async def _intent(self, tx: Transaction, work: Work) -> Checkpoint:
        points = await tx.checkpoints.of_workflow(work.workflow_id, work.sequence)
        point = next((item for item in points if (item.work_id, item.work_attempt) == (work.id, work.attempt)), None)
        if point is None:
            new = self._parts.ids.new("cp")
            point = Checkpoint(new, work.workflow_id, work.id, work.sequence, work.attempt, self._parts.clock())
            await tx.checkpoints.save(point)
        return point

    async def finish(self, step: Step, point_id: str, made: dict[str, Committed]) -> None:
        """Record that all commits are there."""
        point = await step.tx.checkpoints.get(point_id)
        if not point.complete:
            point.finish(made)
            await step.tx.checkpoints.save(point)
            step.tell(point.workflow_id, CheckpointCreated(point.id, point.workflow_id, point.work_id))

    # ── finding ───────────────────────────────────────────────────────────────────────────────────────────────

    async def valid(self, tx: Transaction, workflow_id: str) -> list[Checkpoint]:
        """The checkpoints one can go back to, in the order they were made."""
        points = await tx.checkpoints.of_workflow(workflow_id)
        return sorted((point for point in points if point.complete and point.valid), key=lambda point: point.id)

    async def choose(self, tx: Transaction, workflow_id: str, checkpoint_id: str | None) -> Checkpoint | None:
        """A checkpoint by its id, or the last one; None when there is none yet. Raises :class:`NotFound`."""
        points = await self.valid(tx, workflow_id)
        if checkpoint_id is None:
            return points[-1] if points else None
        found = next((point for point in points if point.id == checkpoint_id), None)
        if found is None:
            known = ", ".join(point.id for point in points) or "none"
            raise NotFound(f"workflow {workflow_id} has no valid checkpoint {checkpoint_id}; it has {known}")
        return found


def kept_by(point: Checkpoint | None, points: Iterable[Checkpoint]) -> dict[str, Checkpoint]:
    """What stays when a workflow goes back to a checkpoint: that one and those made before it, by work id."""
    return {} if point is None else {item.work_id: item for item in points if item.id <= point.id}


def trees_of(work: Work, trees: Iterable[WorkTree]) -> list[WorkTree]:
    """The worktrees a Work works in: its own, when others may run beside it, or the workflow's."""
    owner = work.id if work.apart else None
    return [tree for tree in trees if tree.work_id == owner and tree.status is WorkTreeStatus.READY]
