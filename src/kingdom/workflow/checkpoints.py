"""Compare and verify checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.workflow.domain.plan import WorkDependencies
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkStatus, WorkTreeStatus
from kingdom.workflow.errors import NotFound, WorkflowError
from kingdom.workflow.usecases.resources import valid_checkpoints

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kingdom.gitops import CheckpointProblem, FileDiff
    from kingdom.workflow.adapters.git_service import GitopsService
    from kingdom.workflow.domain.resources import Checkpoint, Git, WorkTree
    from kingdom.workflow.domain.work import Work
    from kingdom.workflow.ports import WorkflowStore
    from kingdom.workflow.store.transactions import WorkflowTransaction


_MAX_CHECKPOINTS: Final = 1_000_000  # that are read at once
_MAX_REPOSITORIES: Final = 100_000


class DifferentWorkflows(WorkflowError):
    """Two checkpoints of different workflows."""

    code = "OTHER_WORKFLOW"


@dataclass(frozen=True, slots=True)
class RepositoryChange:
    """The changes in one repository."""

    git: Git
    older: str
    newer: str
    files: list[FileDiff]


@dataclass(frozen=True, slots=True)
class _Span:
    git: Git
    older: str | None  # None: the base of the worktree's branch
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
    """Return the changes from ``older`` to ``newer``, by repository.

    Without ``older``: from the checkpoint at which the Work of ``newer`` started, or (``base``) from the base of the
    branch. At most ``max_patches`` files per repository get a patch.
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
            raise NotFound(f"the base of the branch in {span.git.name} is unknown: its worktree is gone")
        files = await service.diff(span.git, start, span.newer, patches=patches, max_patches=max_patches)
        changes.append(RepositoryChange(span.git, start, span.newer, files))
    return changes


async def compare_worktrees(
    store: WorkflowStore, service: GitopsService, workflow_id: str, *, base: bool = False, patches: bool = True
) -> list[RepositoryChange]:
    """Return what the worktrees of a workflow have that no checkpoint has yet, by worktree.

    With ``base``: what they have since the start of their branches.
    """
    async with store.reading() as tx:
        works = {work.id: work for work in await tx.works.of_workflow(workflow_id)}
        points = await valid_checkpoints(tx, workflow_id)
        trees = [
            tree
            for tree in await tx.work_trees.of_workflow(workflow_id)
            if tree.status is WorkTreeStatus.READY and not _is_done(works, tree.work_id)
        ]
        gits = {tree.git_id: await tx.gits.get(tree.git_id) for tree in trees}
    changes = []
    for tree in trees:
        own = [] if base else _points_of_tree(points, tree, works.values())
        since = own[-1].hashes[tree.git_id] if own else None
        older, newer, files = await service.uncommitted(tree, since, patches=patches)
        changes.append(RepositoryChange(gits[tree.git_id], older, newer, files))
    return changes


def _is_done(works: Mapping[str, Work], work_id: str | None) -> bool:
    return work_id is not None and (work_id not in works or works[work_id].status is WorkStatus.COMPLETED)


def _points_of_tree(points: Sequence[Checkpoint], tree: WorkTree, works: Iterable[Work]) -> list[Checkpoint]:
    """Return the checkpoints that a worktree was committed in, the last one last."""
    apart = {work.id for work in works if work.apart}
    return [
        point
        for point in points
        if tree.git_id in point.hashes and (point.work_id if point.work_id in apart else None) == tree.work_id
    ]


async def _previous_checkpoint(tx: WorkflowTransaction, point: Checkpoint) -> Checkpoint | None:
    """Return the checkpoint at which its Work started: the last earlier one of a Work before it."""
    works = await tx.works.of_workflow(point.workflow_id)
    plan = WorkDependencies(works)
    own = next((work for work in works if work.id == point.work_id), None)
    earlier = plan.before(own) if own is not None else set()
    if own is not None and not plan.apart(own):
        # Works that ran beside others reached this tree by a merge: their changes count.
        earlier -= {work.id for work in works if plan.apart(work)}
    points = [
        other
        for other in await tx.checkpoints.of_workflow(point.workflow_id)
        if other.complete and other.work_id in earlier and other.number <= point.number
    ]
    return max(points, key=lambda other: other.number, default=None)


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
    """Return the base of the branch, by git id, for the repositories without an older checkpoint."""
    wanted = {span.git.id for span in spans if span.older is None}
    trees = [tree for tree in await tx.work_trees.of_workflow(workflow_id) if tree.git_id in wanted]
    trees.sort(key=lambda tree: tree.work_id is None)  # the workflow's own trees come last and win over those of works
    return {tree.git_id: service.base(tree) for tree in trees}


# ── verification ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class CheckpointVerification:
    """The number of checkpoints checked, and the problems found."""

    checked: int
    problems: list[CheckpointProblem]


async def verify_checkpoints(
    store: WorkflowStore, service: GitopsService, workflow_id: str | None = None, *, deep: bool = False
) -> CheckpointVerification:
    """Verify the checkpoints of a workflow, or of all; ``deep`` also checks every file of every commit.

    The branches of a COMPLETED workflow must have the last checkpoint in their history.
    """
    async with store.reading() as tx:
        if workflow_id is None:
            points = await tx.checkpoints.list(limit=_MAX_CHECKPOINTS)
            completed = await tx.workflows.with_status(WorkflowStatus.COMPLETED)
        else:
            points = await tx.checkpoints.of_workflow(workflow_id)
            completed = [await tx.workflows.get(workflow_id)]
        branches: dict[tuple[str, str], str] = {}
        for workflow in completed:
            if workflow.status is WorkflowStatus.COMPLETED:
                branches |= await _branches_at(tx, workflow.id)
        gits = {git.id: git for git in await tx.gits.list(limit=_MAX_REPOSITORIES)}
    # The clone of a deleted repository may be deleted with it; that is no damage.
    known = [point for point in points if point.complete and all(git_id in gits for git_id in point.hashes)]
    return CheckpointVerification(len(known), await service.verify(gits, known, branches, deep=deep))


async def _branches_at(tx: WorkflowTransaction, workflow_id: str) -> dict[tuple[str, str], str]:
    """Return the branches of a workflow by the checkpoint and git id they must be at."""
    works = await tx.works.of_workflow(workflow_id)
    points = await valid_checkpoints(tx, workflow_id)
    found: dict[tuple[str, str], str] = {}
    for tree in await tx.work_trees.of_workflow(workflow_id):
        owned = _points_of_tree(points, tree, works)
        if owned and tree.branch is not None and tree.status is WorkTreeStatus.READY:
            found[owned[-1].id, tree.git_id] = tree.branch
    return found
