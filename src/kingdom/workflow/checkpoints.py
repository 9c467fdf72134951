"""Compare and verify checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kingdom.workflow.domain.plan import WorkDependencies
from kingdom.workflow.errors import NotFound, WorkflowError
from kingdom.workflow.templates import MAX_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.gitops import CheckpointProblem, FileDiff
    from kingdom.workflow.adapters.git_service import GitopsService
    from kingdom.workflow.domain.resources import Checkpoint, Git
    from kingdom.workflow.ports import WorkflowStore, WorkflowTransaction


# What changed up to a checkpoint, or from one to another, in each repository of a workflow.


class DifferentWorkflows(WorkflowError):
    """Two checkpoints that have nothing to do with each other."""

    code = "OTHER_WORKFLOW"


@dataclass(frozen=True, slots=True)
class RepositoryChange:
    """What changed in one repository."""

    git: Git
    older: str
    newer: str
    files: list[FileDiff]


@dataclass(frozen=True, slots=True)
class _Span:
    git: Git
    older: str | None  # None: where the worktree's branch began
    newer: str


async def compare_checkpoints(
    store: WorkflowStore,
    service: GitopsService,
    newer: Checkpoint,
    older: Checkpoint | None = None,
    *,
    base: bool = False,
    patches: bool = True,
    max_patches: int | None = None,
) -> list[RepositoryChange]:
    """What changed from ``older`` to ``newer``.

    Without ``older``: from the checkpoint the Work of ``newer`` began at, or (``base``) from where the branch began.
    Patches are given of at most ``max_patches`` files in each repository.
    """
    if older is not None and older.workflow_id != newer.workflow_id:
        raise DifferentWorkflows(f"{older.id} is of {older.workflow_id}, {newer.id} of {newer.workflow_id}")
    async with store.reading() as tx:
        if older is None and not base:
            older = await _previous_checkpoint(tx, newer)
        spans = await _spans(tx, older, newer)
        begins = await _branch_bases(tx, newer.workflow_id, service, spans)
    changes = []
    for span in spans:
        start = span.older or begins.get(span.git.id)
        if start is None:
            raise NotFound(f"where the branch in {span.git.name} began is not known any more: its worktree is gone")
        files = await service.diff(span.git, start, span.newer, patches=patches, max_patches=max_patches)
        changes.append(RepositoryChange(span.git, start, span.newer, files))
    return changes


async def _previous_checkpoint(tx: WorkflowTransaction, point: Checkpoint) -> Checkpoint | None:
    """The checkpoint its Work began at: the last one made before it, of a Work that stands before it."""
    works = await tx.works.of_workflow(point.workflow_id)
    plan = WorkDependencies(works)
    own = next((work for work in works if work.id == point.work_id), None)
    earlier = plan.before(own) if own is not None else set()
    if own is not None and not plan.apart(own):
        # What ran beside others reached this tree by being merged: it counts as changed.
        earlier -= {work.id for work in works if plan.apart(work)}
    points = [
        other
        for other in await tx.checkpoints.of_workflow(point.workflow_id)
        if other.complete and other.work_id in earlier and other.created_at <= point.created_at
    ]
    return max(points, key=lambda other: (other.created_at, other.work_sequence), default=None)


async def _spans(tx: WorkflowTransaction, older: Checkpoint | None, newer: Checkpoint) -> list[_Span]:
    spans = []
    for git_id, commit in newer.hashes.items():
        git = await tx.gits.find(git_id)
        if git is None:
            raise NotFound(f"the repository {git_id} of {newer.id} was deleted (kingdom git ls)")
        spans.append(_Span(git, None if older is None else older.hashes.get(git_id), commit))
    return spans


async def _branch_bases(
    tx: WorkflowTransaction, workflow_id: str, service: GitopsService, spans: Sequence[_Span]
) -> dict[str, str]:
    """Where the branches began, of the repositories that have no older checkpoint."""
    wanted = {span.git.id for span in spans if span.older is None}
    trees = [tree for tree in await tx.work_trees.of_workflow(workflow_id) if tree.git_id in wanted]
    trees.sort(key=lambda tree: tree.work_id is None)  # the workflow's own trees count, those of works only without
    return {tree.git_id: service.base(tree) for tree in trees}


# Whether checkpoints can be gone back to: each commit is there, and held.


@dataclass(frozen=True, slots=True)
class CheckpointVerification:
    """How many checkpoints were looked at, and what is wrong with some."""

    checked: int
    problems: list[CheckpointProblem]


async def verify_checkpoints(
    store: WorkflowStore, service: GitopsService, workflow_id: str | None = None, *, deep: bool = False
) -> CheckpointVerification:
    """Look at the checkpoints of a workflow, or of all; ``deep`` looks for every file of every commit, too."""
    async with store.reading() as tx:
        if workflow_id is None:
            points = await tx.checkpoints.list(limit=10 * MAX_NAMES)
        else:
            points = await tx.checkpoints.of_workflow(workflow_id)
        gits = {git.id: git for git in await tx.gits.list(limit=MAX_NAMES)}
    # The clone of a repository that was deleted may be gone with it; that is no damage.
    known = [point for point in points if point.complete and all(git_id in gits for git_id in point.hashes)]
    return CheckpointVerification(len(known), await service.verify(gits, known, deep=deep))
