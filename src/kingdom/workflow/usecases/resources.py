"""Worktrees, workspaces and checkpoints of workflows: make, record, roll back, release."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kingdom.workflow.context import UnitOfWork, WorkflowContext
from kingdom.workflow.domain.events import (
    CheckpointCreated,
    WorkSpaceCreated,
    WorkTreeCreated,
    WorkTreeFailed,
    WorkTreeReleased,
)
from kingdom.workflow.domain.resources import Checkpoint, Committed, Git, GitRef, McpServer, WorkSpace, WorkTree
from kingdom.workflow.domain.statuses import WorkStatus, WorkTreeStatus
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.errors import NotFound
from kingdom.workflow.ports import PreparedTree, Repository, WorkflowTransaction

# WorkflowResourceService: who uses which repository and MCP server, worktrees and workspaces.


@dataclass(frozen=True, slots=True)
class TreeOutcome:
    """What became of the making of a worktree."""

    tree: WorkTree  # as it was when its making began
    made: PreparedTree | None
    error: str = ""


class WorkflowResourceService:
    """What workflows have and use. Everything here may be repeated."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    # ── uses ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def register_uses(self, tx: WorkflowTransaction, workflow: Workflow, works: Iterable[Work]) -> None:
        """Register what a workflow uses; raises :class:`NotFound` that says what was deleted."""
        for git_id in sorted({ref.git_id for ref in workflow.git_refs}):  # in one order, so that nobody waits crosswise
            git = await tx.gits.find_locked(git_id)
            if git is None:
                raise NotFound(_missing_source("repository", git_id, workflow))
            if git.add_workflow(workflow.id):
                await tx.gits.save(git)
        for server_id in sorted(set(server_ids(workflow, works))):
            server = await tx.mcp_servers.find_locked(server_id)
            if server is None:
                raise NotFound(_missing_source("MCP server", server_id, workflow))
            if server.add_workflow(workflow.id):
                await tx.mcp_servers.save(server)

    async def release_uses(self, tx: WorkflowTransaction, workflow: Workflow, works: Iterable[Work]) -> None:
        """Release everything a workflow used, also what its plan does not name any more."""
        trees = await tx.work_trees.of_workflow(workflow.id)
        git_ids = [ref.git_id for ref in workflow.git_refs] + [tree.git_id for tree in trees]
        await self.release(tx.gits, git_ids, workflow.id)
        await self.release(tx.mcp_servers, server_ids(workflow, works), workflow.id)

    async def release(
        self, sources: Repository[Git] | Repository[McpServer], ids: Iterable[str], workflow_id: str
    ) -> None:
        """Release single uses."""
        for source_id in sorted(set(ids)):
            used = await sources.find_locked(source_id)
            if used is not None and used.remove_workflow(workflow_id):
                await sources.save(used)  # type: ignore[arg-type]

    # ── worktrees ─────────────────────────────────────────────────────────────────────────────────────────────

    async def plan_trees(self, tx: WorkflowTransaction, workflow: Workflow, work: Work | None = None) -> list[WorkTree]:
        """The worktrees that have to be made, as rows in CREATING: of the workflow, or of a Work that has its own."""
        work_id = None if work is None else work.id
        there = {
            tree.git_id: tree
            for tree in await tx.work_trees.of_workflow(workflow.id)
            if tree.work_id == work_id and tree.status is not WorkTreeStatus.RELEASED
        }
        return [tree for ref in workflow.git_refs if (tree := await self._plan_tree(tx, workflow, ref, there, work_id))]

    async def _plan_tree(
        self, tx: WorkflowTransaction, workflow: Workflow, ref: GitRef, there: dict[str, WorkTree], work_id: str | None
    ) -> WorkTree | None:
        tree = there.get(ref.git_id)
        if tree is None:
            tree = WorkTree(self._parts.ids.new("wt"), workflow.id, ref.git_id, ref.base, work_id=work_id)
        elif tree.status is WorkTreeStatus.FAILED:
            tree.base = ref.base
            tree.retry_creation()
        elif tree.status is WorkTreeStatus.PENDING_RELEASE:
            tree.reclaim()
        elif tree.status is WorkTreeStatus.READY:
            return None
        await tx.work_trees.save(tree)
        return tree

    async def make_trees(self, workflow_id: str, work_id: str | None = None) -> list[TreeOutcome]:
        """Make the worktrees that are CREATING, all at the same time; outside of any transaction."""
        async with self._parts.store.transaction() as tx:
            trees = [
                (await tx.gits.find(tree.git_id), tree)
                for tree in await tx.work_trees.of_workflow(workflow_id)
                if tree.status is WorkTreeStatus.CREATING and tree.work_id == work_id
            ]
        return await asyncio.gather(*(self._make_tree(git, tree) for git, tree in trees))

    async def _make_tree(self, git: Git | None, tree: WorkTree) -> TreeOutcome:
        if git is None:
            return TreeOutcome(tree, None, f"the repository {tree.git_id} was deleted")
        try:
            return TreeOutcome(tree, await self._parts.git.prepare(git, tree))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is why there is no worktree
            return TreeOutcome(tree, None, str(error) or type(error).__name__)

    async def record_trees(self, step: UnitOfWork, outcomes: Sequence[TreeOutcome]) -> list[str]:
        """Note what became of worktrees; returns what went wrong."""
        problems = []
        for outcome in outcomes:
            tree = await step.tx.work_trees.find(outcome.tree.id)
            if tree is None:  # the workflow was deleted meanwhile
                step.then(lambda gone=outcome.tree: self._parts.git.release(gone))  # type: ignore[misc]
                continue
            if tree.status is not WorkTreeStatus.CREATING:
                continue  # the repository was taken out of the workflow meanwhile
            if outcome.made is None:
                problems.append(outcome.error)
                tree.fail(outcome.error)
                step.tell(tree.workflow_id, WorkTreeFailed(tree.id, tree.workflow_id, outcome.error))
            else:
                tree.ready(outcome.made.path, outcome.made.branch)
                step.tell(tree.workflow_id, WorkTreeCreated(tree.id, tree.workflow_id))
            await step.tx.work_trees.save(tree)
        return problems

    async def record_released(self, step: UnitOfWork, trees: Iterable[WorkTree]) -> None:
        """Note that worktrees are gone."""
        for gone in trees:
            tree = await step.tx.work_trees.find(gone.id)
            if tree is not None and tree.status is not WorkTreeStatus.RELEASED:
                tree.released()
                await step.tx.work_trees.save(tree)
                step.tell(tree.workflow_id, WorkTreeReleased(tree.id, tree.workflow_id))

    # ── workspaces ────────────────────────────────────────────────────────────────────────────────────────────

    async def space_of(self, tx: WorkflowTransaction, work: Work) -> WorkSpace | None:
        """The workspace of a Work, if it has one."""
        return await tx.work_spaces.find(space_id(work))

    async def plan_space(self, step: UnitOfWork, work: Work) -> WorkSpace:
        """The workspace of a Work, as a row; the folder follows."""
        space = await self.space_of(step.tx, work)
        if space is None:
            space = WorkSpace(space_id(work), work.workflow_id, work.id, self._parts.files.path(work))
            await step.tx.work_spaces.save(space)
            step.tell(work.workflow_id, WorkSpaceCreated(space.id, work.id), work.attempt)
        return space


def space_id(work: Work) -> str:
    """The id of the workspace of a Work, by which it is found without a search."""
    return f"ws-{work.id.removeprefix('work-')}"


def server_ids(workflow: Workflow, works: Iterable[Work]) -> list[str]:
    """The MCP servers a workflow and its works use."""
    refs = [*workflow.mcp_server_refs, *(ref for work in works for ref in work.mcp_server_refs)]
    return [ref.mcp_server_id for ref in refs]


def _missing_source(what: str, item_id: str, workflow: Workflow) -> str:
    return (
        f"there is no {what} {item_id} (any more), which workflow {workflow.id} uses: register it again, or take it "
        "out of the workflow"
    )


# CheckpointService: what a Work left, as one commit in each repository, all or none.


class CheckpointIntent(NamedTuple):
    """A checkpoint that is about to be made."""

    point: Checkpoint
    trees: list[WorkTree]
    message: str


class CheckpointService:
    """Checkpoints are made in three strokes: the intent, the commits, and the hashes with the end of it."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    # ── making ────────────────────────────────────────────────────────────────────────────────────────────────

    async def intend(self, tx: WorkflowTransaction, work: Work, attempt: int) -> CheckpointIntent | None:
        """Record what is about to be committed; may be repeated. None when the attempt is over."""
        if work.attempt != attempt or work.status is not WorkStatus.COMPLETED:
            return None
        point = await self._intent(tx, work)
        trees = trees_of(work, await tx.work_trees.of_workflow(work.workflow_id))
        return CheckpointIntent(point, trees, f"{work.name} (attempt {work.attempt})")

    async def commit(self, intent: CheckpointIntent) -> dict[str, Committed]:
        """Make the commits; may be repeated. When nobody writes any more, outside of any transaction.

        Raises :class:`kingdom.gitops.GitError`; the intent then stays.
        """
        if intent.point.complete or not intent.trees:
            return {}
        return await self._parts.git.commit_all(intent.point, intent.trees, intent.message)

    async def _intent(self, tx: WorkflowTransaction, work: Work) -> Checkpoint:
        points = await tx.checkpoints.of_workflow(work.workflow_id, work.sequence)
        point = next((item for item in points if (item.work_id, item.work_attempt) == (work.id, work.attempt)), None)
        if point is None:
            new = self._parts.ids.new("cp")
            point = Checkpoint(new, work.workflow_id, work.id, work.sequence, work.attempt, self._parts.clock())
            await tx.checkpoints.save(point)
        return point

    async def finish(self, step: UnitOfWork, point_id: str, made: dict[str, Committed]) -> None:
        """Record that all commits are there."""
        point = await step.tx.checkpoints.get(point_id)
        if not point.complete:
            point.finish(made)
            await step.tx.checkpoints.save(point)
            step.tell(point.workflow_id, CheckpointCreated(point.id, point.workflow_id, point.work_id))

    # ── finding ───────────────────────────────────────────────────────────────────────────────────────────────

    async def valid(self, tx: WorkflowTransaction, workflow_id: str) -> list[Checkpoint]:
        """The checkpoints one can go back to, in the order they were made."""
        points = await tx.checkpoints.of_workflow(workflow_id)
        return sorted((point for point in points if point.complete and point.valid), key=lambda point: point.id)

    async def choose(self, tx: WorkflowTransaction, workflow_id: str, checkpoint_id: str | None) -> Checkpoint | None:
        """A checkpoint by its id, or the last one; None when there is none yet. Raises :class:`NotFound`."""
        points = await self.valid(tx, workflow_id)
        if checkpoint_id is None:
            return points[-1] if points else None
        found = next((point for point in points if point.id == checkpoint_id), None)
        if found is None:
            known = ", ".join(point.id for point in points) or "none"
            raise NotFound(f"workflow {workflow_id} has no valid checkpoint {checkpoint_id}; it has {known}")
        return found


def checkpoints_up_to(point: Checkpoint | None, points: Iterable[Checkpoint]) -> dict[str, Checkpoint]:
    """What stays when a workflow goes back to a checkpoint: that one and those made before it, by work id."""
    return {} if point is None else {item.work_id: item for item in points if item.id <= point.id}


def trees_of(work: Work, trees: Iterable[WorkTree]) -> list[WorkTree]:
    """The worktrees a Work works in: its own, when others may run beside it, or the workflow's."""
    owner = work.id if work.apart else None
    return [tree for tree in trees if tree.work_id == owner and tree.status is WorkTreeStatus.READY]


# Going back to a checkpoint: trees, folders, reports, works.


@dataclass(frozen=True, slots=True)
class _RollbackPlan:
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

    def __init__(self, parts: WorkflowContext) -> None:
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

    async def record(self, step: UnitOfWork, workflow: Workflow, checkpoint_id: str | None) -> None:
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

    async def _cut(self, tx: WorkflowTransaction, workflow_id: str, checkpoint_id: str | None) -> _RollbackPlan:
        points = await self._checkpoints.valid(tx, workflow_id)
        chosen = next((point for point in points if point.id == checkpoint_id), None)
        works = await tx.works.of_workflow(workflow_id)
        kept = {
            work_id: point
            for work_id, point in checkpoints_up_to(chosen, points).items()
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
        return _RollbackPlan(
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
