"""WorkflowResourceService: who uses which repository and MCP server, worktrees and workspaces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kingdom.workflow.domain.errors import NotFound
from kingdom.workflow.domain.events import WorkSpaceCreated, WorkTreeCreated, WorkTreeFailed, WorkTreeReleased
from kingdom.workflow.domain.resources import WorkSpace, WorkTree
from kingdom.workflow.domain.sources import Git, GitRef, McpServer
from kingdom.workflow.domain.statuses import WorkTreeStatus
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.ports import PreparedTree, Repository, Transaction


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the making of a worktree."""

    tree: WorkTree  # as it was when its making began
    made: PreparedTree | None
    error: str = ""


class WorkflowResourceService:
    """What workflows have and use. Everything here may be repeated."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    # ── uses ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def register_uses(self, tx: Transaction, workflow: Workflow, works: Iterable[Work]) -> None:
        """Register what a workflow uses; raises :class:`NotFound` that says what was deleted."""
        for git_id in sorted({ref.git_id for ref in workflow.git_refs}):  # in one order, so that nobody waits crosswise
            git = await tx.gits.find_locked(git_id)
            if git is None:
                raise NotFound(_gone("repository", git_id, workflow))
            if git.add_workflow(workflow.id):
                await tx.gits.save(git)
        for server_id in sorted(set(server_ids(workflow, works))):
            server = await tx.mcp_servers.find_locked(server_id)
            if server is None:
                raise NotFound(_gone("MCP server", server_id, workflow))
            if server.add_workflow(workflow.id):
                await tx.mcp_servers.save(server)

    async def release_uses(self, tx: Transaction, workflow: Workflow, works: Iterable[Work]) -> None:
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

    async def plan_trees(self, tx: Transaction, workflow: Workflow, work: Work | None = None) -> list[WorkTree]:
        """The worktrees that have to be made, as rows in CREATING: of the workflow, or of a Work that has its own."""
        work_id = None if work is None else work.id
        there = {
            tree.git_id: tree
            for tree in await tx.work_trees.of_workflow(workflow.id)
            if tree.work_id == work_id and tree.status is not WorkTreeStatus.RELEASED
        }
        return [tree for ref in workflow.git_refs if (tree := await self._plan_tree(tx, workflow, ref, there, work_id))]

    async def _plan_tree(
        self, tx: Transaction, workflow: Workflow, ref: GitRef, there: dict[str, WorkTree], work_id: str | None
    ) -> WorkTree | None:
        tree = there.get(ref.git_id)
        if tree is None:
            tree = WorkTree(self._parts.ids.new("wt"), workflow.id, ref.git_id, ref.base, work_id=work_id)
        elif tree.status is WorkTreeStatus.FAILED:
            tree.base = ref.base
            tree.try_again()
        elif tree.status is WorkTreeStatus.PENDING_RELEASE:
            tree.take_back()
        elif tree.status is WorkTreeStatus.READY:
            return None
        await tx.work_trees.save(tree)
        return tree

    async def make_trees(self, workflow_id: str, work_id: str | None = None) -> list[Outcome]:
        """Make the worktrees that are CREATING, all at the same time; outside of any transaction."""
        async with self._parts.store.transaction() as tx:
            trees = [
                (await tx.gits.find(tree.git_id), tree)
                for tree in await tx.work_trees.of_workflow(workflow_id)
                if tree.status is WorkTreeStatus.CREATING and tree.work_id == work_id
            ]
        return await asyncio.gather(*(self._make_tree(git, tree) for git, tree in trees))

    async def _make_tree(self, git: Git | None, tree: WorkTree) -> Outcome:
        if git is None:
            return Outcome(tree, None, f"the repository {tree.git_id} was deleted")
        try:
            return Outcome(tree, await self._parts.git.prepare(git, tree))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is why there is no worktree
            return Outcome(tree, None, str(error) or type(error).__name__)

    async def record_trees(self, step: Step, outcomes: Sequence[Outcome]) -> list[str]:
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

    async def record_released(self, step: Step, trees: Iterable[WorkTree]) -> None:
        """Note that worktrees are gone."""
        for gone in trees:
            tree = await step.tx.work_trees.find(gone.id)
            if tree is not None and tree.status is not WorkTreeStatus.RELEASED:
                tree.released()
                await step.tx.work_trees.save(tree)
                step.tell(tree.workflow_id, WorkTreeReleased(tree.id, tree.workflow_id))

    # ── workspaces ────────────────────────────────────────────────────────────────────────────────────────────

    async def space_of(self, tx: Transaction, work: Work) -> WorkSpace | None:
        """The workspace of a Work, if it has one."""
        return await tx.work_spaces.find(space_id(work))

    async def plan_space(self, step: Step, work: Work) -> WorkSpace:
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


def _gone(what: str, item_id: str, workflow: Workflow) -> str:
    return (
        f"there is no {what} {item_id} (any more), which workflow {workflow.id} uses: register it again, or take it "
        "out of the workflow"
    )
