"""Worktrees, checkpoints, merges and resets of workflows, over :mod:`kingdom.gitops`.

Each repository of a workflow has one worktree, ``<folder>/worktrees/<workflow id>/<name of the repository>-<tag>``, on
the branch ``kingdom/<workflow id>/<name of the repository>-<tag>``; a Work that runs beside others has its own. The tag
follows from the ids, so that a worktree is always found again. Repositories are processed concurrently; if one fails,
the others are finished first, then the first error is raised.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kingdom.gitops import (
    CheckpointMark,
    CheckpointProblem,
    Checkpoints,
    Clones,
    CommitAuthor,
    GitError,
    RecordedCheckpoint,
    RemoteFailed,
    WorktreeBroken,
    Worktrees,
    add_patches,
    diff,
    is_outage,
    log,
    merge,
    reset,
    verify,
)
from kingdom.gitops.access import check_repository
from kingdom.gitops.landing import LandedHistory, landed_history, landed_ref
from kingdom.gitops.names import is_hash
from kingdom.gitops.repository import ORIGIN_REFS
from kingdom.gitops.reset import list_rescues, restore
from kingdom.gitops.worktree import snapshot
from kingdom.workflow.adapters.workspaces import slug, tag
from kingdom.workflow.domain.resources import Committed
from kingdom.workflow.ports import PreparedTree

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from pathlib import Path

    from kingdom.gitops import Clock, Clone, Commit, Conflict, FileDiff, Worktree
    from kingdom.gitops import GitRunner as GitProgram
    from kingdom.gitops.checkpoint_remote import CheckpointRemote
    from kingdom.gitops.landing import Describe, Squash
    from kingdom.gitops.reset import Rescue
    from kingdom.gitops.worktrees import ExistingBranch
    from kingdom.workflow.domain.resources import Checkpoint, Git, WorkTree

R = TypeVar("R")
_log = logging.getLogger("kingdom.workflow.git")
_MAX_FILES_NAMED: Final = 10  # in an error message
_WORKFLOW_REFS: Final = ("refs/heads/kingdom/", "refs/kingdom/")


class MergeConflict(GitError):
    """Both sides changed the same lines. ``branch``, at ``commit``, could not be merged because of ``conflicts``."""

    def __init__(
        self,
        branch: str,
        conflicts: Sequence[Conflict],
        folder: str | None,
        commit: str = "",
        advice: str = "then kingdom workflow resume --retry",
    ) -> None:
        files = ", ".join(conflict.path for conflict in conflicts[:_MAX_FILES_NAMED])
        more = f" and {len(conflicts) - _MAX_FILES_NAMED} more" if len(conflicts) > _MAX_FILES_NAMED else ""
        self.files = f"{files}{more}"
        super().__init__(
            f"{branch} cannot be merged, both sides changed {self.files}: merge {commit or 'it'} by hand in {folder} "
            f"and commit, {advice}"
        )
        self.branch = branch
        self.commit = commit
        self.conflicts = tuple(conflicts)


@dataclass(frozen=True)
class PinnedHistory:
    """The commits to land, and the ref that holds them."""

    history: LandedHistory
    ref: str


class StrayFiles(GitError):
    """A Work with several repositories left files beside them: no checkpoint would have them."""

    def __init__(self, paths: Sequence[Path], left: Path) -> None:
        files = ", ".join(path.name for path in paths[:_MAX_FILES_NAMED])
        more = f" and {len(paths) - _MAX_FILES_NAMED} more" if len(paths) > _MAX_FILES_NAMED else ""
        super().__init__(
            f"the agent left {files}{more} beside the repositories, in {paths[0].parent}, where no checkpoint has it: "
            "move it into a repository or delete it, then kingdom workflow resume --retry; "
            f"going back moves it to {left}"
        )


class GitopsService:
    """See :class:`kingdom.workflow.ports.GitService`."""

    def __init__(
        self,
        git: GitProgram,
        folder: Path,
        *,
        clock: Clock,
        identity: CommitAuthor | None = None,
        allow_local: bool = True,
        max_file_bytes: int | None = None,
        checkpoint_remote: CheckpointRemote | None = None,  # where checkpoints are pushed to, for other machines
        before_checkout: Callable[[], None] | None = None,  # called before the files of a worktree are written
    ) -> None:
        self._clock = clock
        self._remote = checkpoint_remote
        self.identity = identity or CommitAuthor()
        self._clones = Clones(git, folder / "clones", allow_local=allow_local)
        self._worktrees = Worktrees(
            self._clones, folder, clock=clock, identity=self.identity, before_checkout=before_checkout
        )
        self._checkpoints = Checkpoints(clock=clock, identity=self.identity, max_file_bytes=max_file_bytes)

    async def check(self, url: str) -> None:
        """Try a repository; raise :class:`kingdom.gitops.GitError` if it cannot be read or is not supported."""
        await check_repository(self._clones.git, url, allow_local=self._clones.allow_local)

    # ── worktrees ─────────────────────────────────────────────────────────────────────────────────────────────

    async def prune(self, trees: Sequence[WorkTree]) -> None:
        """Clean up after killed processes and pack objects, once, at start. ``trees`` are all known trees.

        Release worktrees that are half made, half released or unknown; branches and uncommitted work are kept. A store
        without any tree is a new one: it must not clean up another store's worktrees.
        """
        pruned = await self._worktrees.prune()
        for branch in pruned.finished:
            _log.info("released %s, which a killed process left half made or half released", branch)
        worktrees = self._worktrees.list()
        for clone in {found.clone.folder: found.clone for found in worktrees}.values():
            if await clone.pack():
                _log.info("packed the objects of %s", clone.folder)
        known = {(tree.workflow_id, _tag(tree)) for tree in trees}
        for found in worktrees:
            if known and (found.workflow, found.name.rpartition("-")[2]) not in known:
                kept = await self._worktrees.release(found.workflow, found.name)
                _log.warning("released %s, which belongs to no workflow; its content is kept as %s", found.path, kept)

    async def prepare(self, git: Git, tree: WorkTree) -> PreparedTree:
        """Create the worktree of a repository, or find it again and repair it."""
        there = self._find_or_none(tree)
        if there is not None and there.clone.url.text == git.url:
            made = await self._mended(there)
        else:
            ensured = await self._clones.ensure(git.url)
            made = await self._create(ensured.clone, tree, f"{slug(git.name)}-{_tag(tree)}")
        return PreparedTree(str(made.path), made.branch, made.base)

    async def release(self, tree: WorkTree, *, delete_branch: bool = False) -> None:
        """Remove a worktree if it exists; its branch stays unless it is to go, too.

        Uncommitted work is kept under a rescue ref.
        """
        if (found := self._find_or_none(tree)) is not None:
            await self._worktrees.release(found.workflow, found.name, delete_branch=delete_branch)

    async def forget(self, git: Git, workflow_id: str) -> None:
        """Delete all refs of a workflow in a repository, and the files beside its worktrees. May be repeated."""
        clone = self._clones.find(git.url)
        if clone.repo.exists():
            await clone.forget(workflow_id)
        if self._remote is not None:
            await self._forget_pushed(self._remote, git, workflow_id)
        await asyncio.to_thread(self._worktrees.forget, workflow_id)

    async def rescues(self, git: Git, workflow_id: str) -> list[Rescue]:
        """Return what was dropped of a workflow in a repository and kept, oldest first."""
        clone = self._clones.find(git.url)
        return await list_rescues(clone, workflow_id) if clone.repo.exists() else []

    async def restore(self, tree: WorkTree, rescue: Rescue) -> str | None:
        """Set the files of a worktree to those of a rescue; return the rescue ref of what that replaced, if any."""
        return await restore(self._find(tree), rescue.commit, clock=self._clock, identity=self.identity)

    def is_here(self, tree: WorkTree) -> bool:
        """Whether this machine has the files of a worktree, or it has none."""
        return tree.path is None or self._find_or_none(tree) is not None

    def name_of(self, tree: WorkTree) -> str | None:
        """Return the name under which git knows a worktree, None if it is gone."""
        found = self._find_or_none(tree)
        return None if found is None else found.name

    def base(self, tree: WorkTree) -> str:
        """Return the commit a worktree's branch started from; raise :class:`WorktreeBroken` without a worktree."""
        return self._find(tree).base

    async def discard(self, git: Git) -> None:
        """Delete the clone of a deleted repository, unless it has branches, checkpoints or rescues of workflows."""
        clone = self._clones.find(git.url)
        if not clone.repo.exists():
            return
        if held := [name for prefix in _WORKFLOW_REFS for name in await clone.refs(prefix)]:
            _log.info("the clone %s stays: it holds work of workflows (%s, …)", clone.folder, held[0])
        else:
            await self._clones.remove(git.url)

    # ── checkpoints ───────────────────────────────────────────────────────────────────────────────────────────

    async def commit_all(self, checkpoint: Checkpoint, trees: Sequence[WorkTree], message: str) -> dict[str, Committed]:
        """Commit the content of each tree under the checkpoint's refs, all or none; return commits and trees by git id.

        May be repeated: existing commits of the checkpoint are returned. The trailers of each commit name workflow,
        work, attempt and checkpoint.
        """
        if not trees:
            return {}
        found = {tree.git_id: self._find(tree) for tree in trees}
        workflow = checkpoint.workflow_id
        if len(trees) > 1 and (strays := self._worktrees.strays(workflow)):
            raise StrayFiles(strays, self._worktrees.left_folder(workflow))
        mark = _mark(checkpoint, message)
        prepared = await self._checkpoints.prepare(list(found.values()), mark)
        try:
            await self._checkpoints.complete(list(found.values()), mark, prepared)
        except GitError:
            await self._checkpoints.undo(list(found.values()), mark)
            raise
        by_name = {made.worktree: Committed(made.commit, made.tree) for made in prepared}
        await _gather_all(self._push(one.clone, checkpoint, by_name[one.name].commit) for one in found.values())
        return {git_id: by_name[worktree.name] for git_id, worktree in found.items()}

    async def undo(self, checkpoint: Checkpoint, trees: Sequence[WorkTree]) -> None:
        """Undo a checkpoint that was never finished. No file is touched."""
        found = [worktree for tree in trees if (worktree := self._find_or_none(tree)) is not None]
        if found:
            await self._checkpoints.undo(found, _mark(checkpoint, ""))

    async def keep(self, git: Git, checkpoint: Checkpoint) -> None:
        """Hold the commit of a repository under the ref of a copied checkpoint."""
        commit, clone = checkpoint.hashes[git.id], self._clones.find(git.url)
        await self._checkpoints.keep(clone, checkpoint.workflow_id, checkpoint.id, commit)
        await self._push(clone, checkpoint, commit)

    async def verify(
        self,
        gits: Mapping[str, Git],
        checkpoints: Sequence[Checkpoint],
        branches: Mapping[tuple[str, str], str] | None = None,
        *,
        deep: bool = False,
    ) -> list[CheckpointProblem]:
        """Return every recorded commit that is missing, not held by its ref, or has another tree than recorded.

        ``branches`` are those that must contain a checkpoint, by its id and the git id. ``deep`` also checks every
        file.
        """
        by_git: dict[str, list[Checkpoint]] = {}
        for checkpoint in checkpoints:
            for git_id in checkpoint.hashes:
                by_git.setdefault(git_id, []).append(checkpoint)
        found = await _gather_all(
            self._verify(gits[git_id], points, branches or {}, deep) for git_id, points in by_git.items()
        )
        return [problem for problems in found for problem in problems]

    async def diff(
        self, git: Git, older: str, newer: str, *, patches: bool = False, max_patches: int | None = None
    ) -> list[FileDiff]:
        """Return the changed files between two commits; with ``patches``, the patches of ``max_patches`` files."""
        return await diff(self._clones.find(git.url), older, newer, patches=patches, max_patches=max_patches)

    async def patches(
        self, git: Git, older: str, newer: str, files: Sequence[FileDiff], *, max_patch: int
    ) -> list[FileDiff]:
        """Return files of a diff between two commits with their patches, of up to ``max_patch`` bytes each."""
        return await add_patches(self._clones.find(git.url), older, newer, files, max_patch=max_patch)

    async def uncommitted(
        self, tree: WorkTree, since: str | None, *, patches: bool = False
    ) -> tuple[str, str, list[FileDiff]]:
        """Compare a worktree with a commit, or its base; return the commit, the tree found, and the files."""
        worktree = self._find(tree)
        async with worktree.hold() as held:
            found = await snapshot(held)
        older = since or worktree.base
        return older, found, await diff(worktree.clone, older, found, patches=patches)

    async def log(self, git: Git, older: str | None, newer: str) -> list[Commit]:
        """The commits of ``newer`` that ``older`` does not have, newest first."""
        return await log(self._clones.find(git.url), older, newer)

    # ── landing ───────────────────────────────────────────────────────────────────────────────────────────────

    def clone_of(self, git: Git) -> Clone:
        """Return the clone of a repository, without checking it."""
        return self._clones.find(git.url)

    async def history_to_land(self, tree: WorkTree, describe: Describe, squash: Squash) -> PinnedHistory:
        """Return the commits to land of a worktree, held by a ref so that they stay."""
        worktree = self._find(tree)
        tip = await worktree.tip()
        if tip is None:
            raise WorktreeBroken(f"the branch {worktree.branch} is gone from {worktree.clone.folder}")
        made = await landed_history(worktree.clone, worktree.base, tip, describe, self.identity, squash)
        ref = landed_ref(worktree.workflow, worktree.name)
        await worktree.clone.update_refs([f"update {ref} {made.tip}"])
        return PinnedHistory(made, ref)

    async def base_branch(self, git: Git, tree: WorkTree) -> str | None:
        """Return the branch that a worktree started from; the default branch if it did not start from a branch."""
        clone = self._clones.find(git.url)
        if tree.base is not None and await clone.commit_of(f"{ORIGIN_REFS}{tree.base}") is not None:
            return tree.base
        return await clone.default_branch()

    async def merge_upstream(self, git: Git, tree: WorkTree, branch: str) -> bool:
        """Fetch, and merge a branch of the remote into a worktree; return whether there was anything to merge.

        Raises :class:`MergeConflict` with the files; nothing changes then.
        """
        ensured = await self._clones.ensure(git.url)
        commit = await ensured.clone.resolve_base(branch)
        worktree = self._find(tree)
        title = f"Merge {branch}"
        done = await merge(worktree, commit, title=title, clock=self._clock, identity=self.identity)
        if not done.clean:
            advice = "then land again; or have the agent do it with update-base --agent"
            raise MergeConflict(branch, done.conflicts, tree.path, commit, advice)
        return not done.up_to_date

    # ── reset and merge ───────────────────────────────────────────────────────────────────────────────────────

    async def reset(self, trees: Sequence[WorkTree], hashes: Mapping[str, str]) -> dict[str, str]:
        """Reset trees to these commits, a tree without one to its base, and repair what is damaged.

        Call it when nothing writes there any more. Return the rescue refs (separated by spaces) of what was dropped, by
        git id.
        """
        if len(trees) > 1 and (left := self._worktrees.set_aside(trees[0].workflow_id)) is not None:
            _log.warning("files beside the repositories of %s were moved to %s", trees[0].workflow_id, left)
        kept = await _gather_all(self._reset(tree, hashes.get(tree.git_id)) for tree in trees)
        return {tree.git_id: " ".join(refs) for tree, refs in zip(trees, kept, strict=True) if refs}

    async def merge(self, tree: WorkTree, sources: Sequence[WorkTree], message: str) -> None:
        """Merge the branches of other works' trees of the same repository into a tree. May be repeated.

        Raises :class:`MergeConflict` with the conflicting files; the branch does not change then. Uncommitted work in
        the tree is :class:`kingdom.gitops.WorktreeDirty`, unless everything is merged already.
        """
        branches = [self._find(source).branch for source in sources]
        done = await merge(self._find(tree), *branches, title=message, clock=self._clock, identity=self.identity)
        if not done.clean:
            raise MergeConflict(done.source, done.conflicts, tree.path)
        if done.rescues:
            _log.warning("ignored files were in the way of a merge into %s: kept as %s", tree.path, done.rescues[0])

    async def _forget_pushed(self, remote: CheckpointRemote, git: Git, workflow_id: str) -> None:
        """Delete the pushed checkpoints of a workflow; a remote that is gone, or refuses, keeps them."""
        try:
            clone = (await self._clones.ensure(git.url, fetch=False)).clone  # another machine may have made them
            await remote.forget(clone, workflow_id)
        except RemoteFailed as error:
            if is_outage(error):
                raise
            _log.warning("checkpoints of %s stay on the remote of %s: %s", workflow_id, git.name, error)

    async def _push(self, clone: Clone, checkpoint: Checkpoint, commit: str) -> None:
        if self._remote is not None:
            await self._remote.push(clone, checkpoint.workflow_id, checkpoint.id, commit)

    async def _bring(self, clone: Clone, workflow_id: str, commit: str | None) -> None:
        """Fetch the checkpoints of a workflow if a commit is not here: another machine made it."""
        if self._remote is not None and is_hash(commit or "") and await clone.commit_of(commit or "") is None:
            await self._remote.fetch(clone, workflow_id)

    async def _reset(self, tree: WorkTree, commit: str | None) -> tuple[str, ...]:
        worktree = await self._mended(self._find(tree))
        await self._bring(worktree.clone, tree.workflow_id, commit)
        return (await reset(worktree, commit, clock=self._clock, identity=self.identity)).rescues

    async def _verify(
        self, git: Git, points: Sequence[Checkpoint], branches: Mapping[tuple[str, str], str], deep: bool
    ) -> list[CheckpointProblem]:
        clone = self._clones.find(git.url)
        records = []
        for point in points:
            commit, tree = point.hashes[git.id], point.trees.get(git.id)
            if tree is None:  # not recorded by older versions: use the commit's tree
                try:
                    tree = await clone.tree_of(commit)
                except GitError:
                    tree = commit  # verify() reports that the commit is missing
            branch = branches.get((point.id, git.id))
            records.append(RecordedCheckpoint(point.workflow_id, point.id, commit, tree, branch))
        try:
            return await verify(clone, records, deep=deep)
        except GitError as error:
            return [
                CheckpointProblem(record, f"the clone {clone.folder} cannot be read: {error}") for record in records
            ]

    async def _create(self, clone: Clone, tree: WorkTree, name: str) -> Worktree:
        """Create a worktree. A branch of this name is the workflow's own: its id is part of the name.

        A worktree of the workflow continues where its branch stands. One of a single Work starts at its base: the Work
        is done again.
        """
        base = tree.base if tree.work_id is not None else tree.started_at or tree.base
        await self._bring(clone, tree.workflow_id, base)
        branch: ExistingBranch = "continue" if tree.work_id is None else "restart"
        return await self._worktrees.create(clone, tree.workflow_id, name, base, existing_branch=branch)

    async def _mended(self, tree: Worktree) -> Worktree:
        """Return the worktree after restoring a lost clone or folder."""
        ensured = await self._clones.ensure(tree.clone.url.text, fetch=False)
        return await self._worktrees.create(ensured.clone, tree.workflow, tree.name)

    def _find(self, tree: WorkTree) -> Worktree:
        if (found := self._find_or_none(tree)) is None:
            elsewhere = f"it is {tree.path} on the machine that holds it (kingdom workflow show): do this there"
            advice = elsewhere if self._remote is not None and tree.path else "prepare it first"
            raise WorktreeBroken(f"workflow {tree.workflow_id} has no worktree of {tree.git_id} here: {advice}")
        return found

    def _find_or_none(self, tree: WorkTree) -> Worktree | None:
        end = f"-{_tag(tree)}"
        return next((found for found in self._worktrees.list(tree.workflow_id) if found.name.endswith(end)), None)


def _tag(tree: WorkTree) -> str:
    return tag(tree.git_id, tree.work_id or "")


def _mark(checkpoint: Checkpoint, title: str) -> CheckpointMark:
    return CheckpointMark(checkpoint.workflow_id, checkpoint.id, checkpoint.work_id, checkpoint.work_attempt, title)


async def _gather_all(calls: Iterable[Coroutine[None, None, R]]) -> list[R]:
    """Return the results of all calls; if one fails, raise the first error after all have ended."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.gather(*tasks, return_exceptions=True)
    return [task.result() for task in tasks]
