"""Worktrees, workspaces and checkpoints of workflows: plan, make, record, roll back and release them.

Everything here may be repeated, so that a crash half way is finished by doing it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from shlex import quote
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
from kingdom.workflow.ports import PreparedTree
from kingdom.workflow.store.repositories import TableRepository
from kingdom.workflow.store.transactions import WorkflowTransaction

# ── uses of repositories and MCP servers ──────────────────────────────────────────────────────────────────────────


async def register_uses(tx: WorkflowTransaction, workflow: Workflow, works: Iterable[Work]) -> None:
    """Register the repositories and MCP servers a workflow uses; raise :class:`NotFound` if one was deleted."""
    for git_id in sorted({ref.git_id for ref in workflow.git_refs}):  # always in this order: no deadlock
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


async def release_uses(tx: WorkflowTransaction, workflow: Workflow, works: Iterable[Work]) -> None:
    """Release everything a workflow uses, including what its plan no longer names."""
    trees = await tx.work_trees.of_workflow(workflow.id)
    git_ids = [ref.git_id for ref in workflow.git_refs] + [tree.git_id for tree in trees]
    await release_sources(tx.gits, git_ids, workflow.id)
    await release_sources(tx.mcp_servers, server_ids(workflow, works), workflow.id)


async def release_sources(
    sources: TableRepository[Git] | TableRepository[McpServer], ids: Iterable[str], workflow_id: str
) -> None:
    """Release a workflow's use of some repositories or MCP servers."""
    for source_id in sorted(set(ids)):
        used = await sources.find_locked(source_id)
        if used is not None and used.remove_workflow(workflow_id):
            await sources.save(used)  # type: ignore[arg-type]


def server_ids(workflow: Workflow, works: Iterable[Work]) -> list[str]:
    """Return the ids of the MCP servers a workflow and its works use."""
    refs = [*workflow.mcp_server_refs, *(ref for work in works for ref in work.mcp_server_refs)]
    return [ref.mcp_server_id for ref in refs]


def _missing_source(what: str, item_id: str, workflow: Workflow) -> str:
    return (
        f"there is no {what} {item_id} (any more), which workflow {workflow.name} uses: take it out of the workflow "
        f"(kingdom workflow modify {quote(workflow.name)}), or put another one in its place"
    )


# ── worktrees ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TreeOutcome:
    """Whether a worktree could be made."""

    tree: WorkTree  # as it was before
    made: PreparedTree | None
    error: str = ""


async def plan_trees(
    context: WorkflowContext, tx: WorkflowTransaction, workflow: Workflow, work: Work | None = None
) -> list[WorkTree]:
    """Save the worktrees that have to be made, with status CREATING: the workflow's, or those of one Work."""
    work_id = None if work is None else work.id
    existing = {
        tree.git_id: tree
        for tree in await tx.work_trees.of_workflow(workflow.id)
        if tree.work_id == work_id and tree.status is not WorkTreeStatus.RELEASED
    }
    planned = [await _plan_tree(context, tx, workflow, ref, existing, work_id) for ref in workflow.git_refs]
    return [tree for tree in planned if tree is not None]


async def _plan_tree(
    context: WorkflowContext,
    tx: WorkflowTransaction,
    workflow: Workflow,
    ref: GitRef,
    existing: dict[str, WorkTree],
    work_id: str | None,
) -> WorkTree | None:
    tree = existing.get(ref.git_id)
    if tree is None:
        tree = WorkTree(context.ids.new("wt"), workflow.id, ref.git_id, ref.base, work_id=work_id)
    elif tree.status is WorkTreeStatus.FAILED:
        tree.base = ref.base
        tree.retry_creation()
    elif tree.status is WorkTreeStatus.PENDING_RELEASE:
        tree.reclaim()
    elif tree.status is WorkTreeStatus.READY:
        return None
    await tx.work_trees.save(tree)
    return tree


async def make_trees(context: WorkflowContext, workflow_id: str, work_id: str | None = None) -> list[TreeOutcome]:
    """Make the worktrees that are CREATING, concurrently. Call it outside any transaction."""
    async with context.store.transaction() as tx:
        trees = [
            (await tx.gits.find(tree.git_id), tree)
            for tree in await tx.work_trees.of_workflow(workflow_id)
            if tree.status is WorkTreeStatus.CREATING and tree.work_id == work_id
        ]
    return await asyncio.gather(*(_make_tree(context, git, tree) for git, tree in trees))


async def _make_tree(context: WorkflowContext, git: Git | None, tree: WorkTree) -> TreeOutcome:
    if git is None:
        return TreeOutcome(tree, None, f"the repository {tree.git_id} was deleted")
    try:
        return TreeOutcome(tree, await context.git.prepare(git, tree))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason why there is no worktree
        return TreeOutcome(tree, None, str(error) or type(error).__name__)


async def record_trees(context: WorkflowContext, unit: UnitOfWork, outcomes: Sequence[TreeOutcome]) -> list[str]:
    """Record the outcomes of :func:`make_trees` and return the errors."""
    problems = []
    for outcome in outcomes:
        tree = await unit.tx.work_trees.find(outcome.tree.id)
        if tree is None:  # the workflow was deleted meanwhile
            unit.after_commit(lambda gone=outcome.tree: context.git.release(gone))  # type: ignore[misc]
            continue
        if tree.status is not WorkTreeStatus.CREATING:
            continue  # the repository was removed from the workflow meanwhile
        if outcome.made is None:
            problems.append(outcome.error)
            tree.fail(outcome.error)
            unit.record(tree.workflow_id, WorkTreeFailed(tree.id, tree.workflow_id, outcome.error))
        else:
            tree.ready(outcome.made.path, outcome.made.branch, outcome.made.started_at)
            unit.record(tree.workflow_id, WorkTreeCreated(tree.id, tree.workflow_id))
        await unit.tx.work_trees.save(tree)
    return problems


async def record_released(unit: UnitOfWork, trees: Iterable[WorkTree]) -> None:
    """Record that worktrees were removed."""
    for gone in trees:
        tree = await unit.tx.work_trees.find(gone.id)
        if tree is not None and tree.status is not WorkTreeStatus.RELEASED:
            tree.released()
            await unit.tx.work_trees.save(tree)
            unit.record(tree.workflow_id, WorkTreeReleased(tree.id, tree.workflow_id))


def trees_of(work: Work, trees: Iterable[WorkTree]) -> list[WorkTree]:
    """Return the ready worktrees of a Work: its own if other works may run beside it, otherwise the workflow's."""
    owner = work.id if work.apart else None
    return [tree for tree in trees if tree.work_id == owner and tree.status is WorkTreeStatus.READY]


# ── workspaces ────────────────────────────────────────────────────────────────────────────────────────────────────


async def plan_space(context: WorkflowContext, unit: UnitOfWork, work: Work) -> WorkSpace:
    """Return the workspace row of a Work; save it if it is new. The folder is made after the commit."""
    space = await unit.tx.work_spaces.find(space_id(work))
    if space is None:
        space = WorkSpace(space_id(work), work.workflow_id, work.id, context.files.path(work))
        await unit.tx.work_spaces.save(space)
        unit.record(work.workflow_id, WorkSpaceCreated(space.id, work.id), work.attempt)
    return space


def space_id(work: Work) -> str:
    """Return the id of the workspace of a Work. It follows from the Work's id, so that no search is needed."""
    return f"ws-{work.id.removeprefix('work-')}"


# ── checkpoints ───────────────────────────────────────────────────────────────────────────────────────────────────
# A checkpoint is made in three steps: record the intent, make the commits, record their hashes.


class CheckpointIntent(NamedTuple):
    """A checkpoint that is about to be made."""

    point: Checkpoint
    trees: list[WorkTree]
    message: str


async def intend_checkpoint(
    context: WorkflowContext, tx: WorkflowTransaction, work: Work, attempt: int
) -> CheckpointIntent | None:
    """Record what is about to be committed. Return None if the attempt is over."""
    if work.attempt != attempt or work.status is not WorkStatus.COMPLETED:
        return None
    points = await tx.checkpoints.of_workflow(work.workflow_id, work.sequence)
    point = next((item for item in points if (item.work_id, item.work_attempt) == (work.id, work.attempt)), None)
    if point is None:
        new = context.ids.new("cp")
        point = Checkpoint(new, work.workflow_id, work.id, work.sequence, work.attempt, context.clock())
        await tx.checkpoints.save(point)
    trees = trees_of(work, await tx.work_trees.of_workflow(work.workflow_id))
    return CheckpointIntent(point, trees, f"{work.name} (attempt {work.attempt})")


async def commit_checkpoint(context: WorkflowContext, intent: CheckpointIntent) -> dict[str, Committed]:
    """Make the commits. Call it when nobody writes to the trees any more, and outside any transaction.

    Raises :class:`kingdom.gitops.GitError`; the intent then stays.
    """
    if intent.point.complete or not intent.trees:
        return {}
    return await context.git.commit_all(intent.point, intent.trees, intent.message)


async def finish_checkpoint(unit: UnitOfWork, point_id: str, made: dict[str, Committed]) -> None:
    """Record the commits of a checkpoint and mark it as complete."""
    point = await unit.tx.checkpoints.get(point_id)
    if not point.complete:
        point.finish(made, await unit.tx.count(checkpoint_counter(point.workflow_id)))
        await unit.tx.checkpoints.save(point)
        unit.record(point.workflow_id, CheckpointCreated(point.id, point.workflow_id, point.work_id))


def checkpoint_counter(workflow_id: str) -> str:
    """Return the name of the counter of a workflow's checkpoints."""
    return f"{workflow_id}/checkpoints"


async def valid_checkpoints(tx: WorkflowTransaction, workflow_id: str) -> list[Checkpoint]:
    """Return the checkpoints the workflow can be reset to, oldest first."""
    points = await tx.checkpoints.of_workflow(workflow_id)
    return sorted((point for point in points if point.complete and point.valid), key=lambda point: point.number)


async def choose_checkpoint(tx: WorkflowTransaction, workflow_id: str, checkpoint_id: str | None) -> Checkpoint | None:
    """Return the checkpoint with this id (raise :class:`NotFound` if it is not valid), or the last one if any."""
    points = await valid_checkpoints(tx, workflow_id)
    if checkpoint_id is None:
        return points[-1] if points else None
    found = next((point for point in points if point.id == checkpoint_id), None)
    if found is None:
        workflow, works = await tx.workflows.get(workflow_id), await tx.works.of_workflow(workflow_id)
        names = {work.id: work.name for work in works}
        known = ", ".join(f"{names.get(point.work_id, point.work_id)} ({point.id})" for point in points) or "none"
        raise NotFound(f"workflow {workflow.name} has no valid checkpoint {checkpoint_id}; it has {known}")
    return found


# ── rollback ──────────────────────────────────────────────────────────────────────────────────────────────────────
# A rollback has two steps: first everything outside the store, then what is recorded.


@dataclass(frozen=True, slots=True)
class _RollbackPlan:
    """What stays and what goes when a workflow is reset to a checkpoint."""

    hashes: dict[str, str]  # commits of the workflow's own trees, by git id
    undone: list[Work]
    trees: list[WorkTree]  # the workflow's own
    released: list[WorkTree]  # own trees of undone works
    spaces: list[WorkSpace]  # of undone works
    unfinished: list[tuple[Checkpoint, list[WorkTree]]]
    later: list[Checkpoint]


async def roll_back_files(context: WorkflowContext, workflow_id: str, checkpoint_id: str | None) -> None:
    """Reset the trees and remove later workspaces. No agent may run; call it outside any transaction."""
    async with context.store.transaction() as tx:
        plan = await _plan_rollback(tx, workflow_id, checkpoint_id)
    for point, trees in plan.unfinished:
        await context.git.undo(point, trees)
    if plan.trees:
        await context.git.reset(plan.trees, plan.hashes)
    for tree in plan.released:
        await context.git.release(tree)
    for space in plan.spaces:
        await context.files.remove(space)


async def record_rollback(unit: UnitOfWork, workflow: Workflow, checkpoint_id: str | None) -> None:
    """Record what :func:`roll_back_files` did: reset the works and reports after the checkpoint."""
    plan = await _plan_rollback(unit.tx, workflow.id, checkpoint_id)
    undone = {work.id for work in plan.undone}
    for work in plan.undone:
        if work.status is not WorkStatus.PENDING or work.attempt > 1:
            work.reset()
            await unit.tx.works.save(work)
        workflow.work_changed(work.id, work.status)
    for report in await unit.tx.reports.of_workflow(workflow.id):
        if report.work_id in undone:
            report.reset()
            await unit.tx.reports.save(report)
    for point in plan.later:
        point.invalidate()
        await unit.tx.checkpoints.save(point)
    for point, _ in plan.unfinished:
        await unit.tx.checkpoints.delete(point.id)
    for space in plan.spaces:
        await unit.tx.work_spaces.delete(space.id)
    await record_released(unit, plan.released)


async def _plan_rollback(tx: WorkflowTransaction, workflow_id: str, checkpoint_id: str | None) -> _RollbackPlan:
    points = await valid_checkpoints(tx, workflow_id)
    chosen = next((point for point in points if point.id == checkpoint_id), None)
    works = await tx.works.of_workflow(workflow_id)
    by_id = {work.id: work for work in works}
    up_to_chosen = [] if chosen is None else [point for point in points if point.number <= chosen.number]
    kept = {
        point.work_id: point
        for point in up_to_chosen
        if point.work_id in by_id and by_id[point.work_id].status is WorkStatus.COMPLETED
    }
    undone = [work for work in works if work.id not in kept]
    undone_ids = {work.id for work in undone}
    trees = await tx.work_trees.of_workflow(workflow_id)
    hashes: dict[str, str] = {}
    for work in sorted((work for work in works if work.id in kept and not work.apart), key=lambda w: kept[w.id].number):
        hashes.update(kept[work.id].hashes)
    unfinished = [point for point in await tx.checkpoints.of_workflow(workflow_id) if not point.complete]
    return _RollbackPlan(
        hashes,
        undone,
        [tree for tree in trees if tree.status is WorkTreeStatus.READY and tree.work_id is None],
        [tree for tree in trees if tree.work_id in undone_ids and tree.status is not WorkTreeStatus.RELEASED],
        [space for space in await tx.work_spaces.of_workflow(workflow_id) if space.work_id in undone_ids],
        [(point, trees_of(by_id[point.work_id], trees) if point.work_id in by_id else []) for point in unfinished],
        [point for point in points if chosen is None or point.number > chosen.number],
    )
