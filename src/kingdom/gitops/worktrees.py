"""Create, find and release worktrees. Every step may be repeated, so that what a killed process left is finished later.

The files that make a folder a worktree are written here, not by ``git worktree add``: that would read the clone's
configuration, which agents can write, and choose a name that we would only learn afterwards.
"""

from __future__ import annotations

import asyncio
import builtins
import shutil
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from kingdom.gitops.commits import Clock, CommitAuthor, stamp, system_clock
from kingdom.gitops.errors import BranchExists, CommandFailed, FolderExists, WorktreeBroken
from kingdom.gitops.files import real_folder
from kingdom.gitops.locks import remove_stale_locks
from kingdom.gitops.names import check_id, is_hash
from kingdom.gitops.reset import keep_commit, rescue
from kingdom.gitops.worktree import HeldWorktree, Worktree, read_record, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kingdom.gitops.clones import Clones
    from kingdom.gitops.repository import Clone

_TRASH: Final = "trash"
ExistingBranch: TypeAlias = Literal["refuse", "continue", "restart"]
"""What a new worktree does with a branch that an earlier one of its name left."""


@dataclass(frozen=True)
class PruneResult:
    """What a prune found."""

    finished: tuple[str, ...] = ()
    """Branches of half created or half released worktrees; they are released now."""
    locks: tuple[Path, ...] = ()
    """Lock files of dead processes that were removed."""
    unknown: tuple[Path, ...] = ()
    """Folders among the worktrees without a record. They are left alone."""


class Worktrees:
    """The worktrees below one folder: files in ``worktrees/``, our records in ``state/``."""

    def __init__(
        self,
        clones: Clones,
        folder: Path,
        *,
        clock: Clock = system_clock,
        identity: CommitAuthor | None = None,
        lock_timeout: float = 60.0,
        before_checkout: Callable[[], None] | None = None,
    ) -> None:
        """``before_checkout`` is called right before git writes the files of a worktree, which may take seconds."""
        self._before_checkout = before_checkout
        self._clones = clones
        self._files = folder.resolve() / "worktrees"
        self._states = folder.resolve() / "state"
        self._clock = clock
        self._identity = identity or CommitAuthor()
        self._lock_timeout = lock_timeout

    async def create(
        self,
        clone: Clone,
        workflow: str,
        name: str,
        base: str | None = None,
        *,
        existing_branch: ExistingBranch = "refuse",
    ) -> Worktree:
        """Return the worktree of a workflow on a clone; create it from ``base``, or repair an existing one.

        ``base`` is a remote branch, a tag, a commit (such as a checkpoint, to fork from it) or None for the default
        branch. ``existing_branch`` says what to do with a branch that an earlier worktree of this name left:
        ``continue`` starts at its tip, ``restart`` at the base and keeps the dropped commits under a rescue ref.

        Raise :class:`BranchExists`, :class:`FolderExists` or :class:`BaseNotFound`; nothing was created then.
        """
        tree = self._describe(clone, workflow, name, "")
        async with tree.hold(check=False) as held:
            record = read_record(tree.state_folder)
            if record is not None and record["url"] != clone.url.text:
                raise FolderExists(f"{tree.path} is a worktree of {record['url']}: choose another name")
            if record is not None and record["state"] == "releasing":
                await self._finish_release(held, delete_branch=False)
                record, existing_branch = None, "restart" if existing_branch == "restart" else "continue"
            if record is None:
                planned, tip = await self._plan(tree, base, existing_branch)
                held = HeldWorktree(planned, held.lock)
                held.write_record("creating")
                await self._materialise(held, tip)
                return planned
            held = HeldWorktree(replace(tree, base=record["base"]), held.lock)
            if record["state"] == "creating" or not real_folder(tree.path):
                await self._materialise(held, await self._remaining_tip(held.tree))
            else:
                held.restore_links()
            return held.tree

    def find(self, workflow: str, name: str) -> Worktree:
        """Return an existing worktree; raise :class:`WorktreeBroken` if there is none."""
        state = self._states / check_id("workflow", workflow) / check_id("worktree", name)
        record = read_record(state)
        if record is None:
            raise WorktreeBroken(f"workflow {workflow} has no worktree {name}: create it first")
        return self._recorded(record)

    def list(self, workflow: str | None = None) -> list[Worktree]:
        """Return all recorded worktrees, or those of one workflow."""
        return self._described(self._records(workflow))

    async def release(self, workflow: str, name: str, *, delete_branch: bool = False) -> str | None:
        """Remove a worktree if it exists, and its branch with ``delete_branch``.

        Uncommitted work is rescued first; return that ref.
        """
        state = self._states / check_id("workflow", workflow) / check_id("worktree", name)
        if (record := read_record(state)) is None:
            return None
        tree = self._recorded(record)
        async with tree.hold(check=False) as held:
            if (record := read_record(state)) is None:
                return None  # another process released it
            kept = await self._keep(held, delete_branch=delete_branch) if record["state"] != "creating" else None
            held.write_record("releasing")
            await self._finish_release(held, delete_branch=delete_branch)
        return kept

    async def prune(self) -> PruneResult:
        """Clean up after killed processes. Call it once at start, before work begins.

        Half created and half released worktrees are released: nobody has used them yet, or any more.
        """
        finished: list[str] = []
        locks: list[Path] = []
        records = self._records()
        for tree in self._described(record for record in records if record["state"] != "ready"):
            async with tree.hold(check=False) as held:
                record = read_record(tree.state_folder)
                if record is None or record["state"] == "ready":
                    continue
                half_made = record["state"] == "creating"
                await self._finish_release(held, delete_branch=half_made and await tree.tip() == tree.base)
                finished.append(tree.branch)
        recorded = self._described(self._records() if finished else records)
        for clone in {tree.clone.folder: tree.clone for tree in recorded}.values():
            trees = [tree for tree in recorded if tree.clone.folder == clone.folder]
            left = [*clone.repo.glob("*.lock"), *(clone.repo / "refs").rglob("*.lock"), clone.repo / "packed-refs.new"]
            left += [lock for tree in trees for lock in tree.admin.glob("*.lock")]
            locks += remove_stale_locks(left, [clone.folder, *(tree.path for tree in trees)])
        known = {tree.path for tree in recorded}
        unknown = tuple(path for path in sorted(self._files.glob("*/*")) if path not in known)
        return PruneResult(tuple(finished), tuple(locks), unknown)

    def strays(self, workflow: str) -> builtins.list[Path]:
        """Return what lies beside the worktrees of a workflow: it is in no repository."""
        folder = self._files / check_id("workflow", workflow)
        known = {tree.path for tree in self.list(workflow)}
        return [path for path in sorted(folder.glob("*")) if path not in known] if folder.is_dir() else []

    def left_folder(self, workflow: str) -> Path:
        """Return where :meth:`set_aside` moves things."""
        return self._states.parent / "left" / check_id("workflow", workflow)

    def set_aside(self, workflow: str) -> Path | None:
        """Move what lies beside the worktrees of a workflow to a folder of its own; return that, if there was any."""
        strays = self.strays(workflow)
        if not strays:
            return None
        folder = self.left_folder(workflow) / stamp(self._clock())
        folder.mkdir(parents=True)
        for path in strays:
            path.rename(folder / path.name)
        return folder

    def forget(self, workflow: str) -> None:
        """Delete what is left of a workflow whose worktrees are released. May be repeated."""
        shutil.rmtree(self.left_folder(workflow), ignore_errors=True)
        if not self.list(workflow):
            shutil.rmtree(self._files / check_id("workflow", workflow), ignore_errors=True)

    def _describe(self, clone: Clone, workflow: str, name: str, base: str) -> Worktree:
        check_id("workflow", workflow)
        check_id("worktree", name)
        path, state = self._files / workflow / name, self._states / workflow / name
        return Worktree(clone, workflow, name, path, base, state, self._lock_timeout)

    def _records(self, workflow: str | None = None) -> builtins.list[dict[str, Any]]:
        pattern = "*/*" if workflow is None else f"{check_id('workflow', workflow)}/*"
        records = [read_record(folder) for folder in sorted(self._states.glob(pattern))]
        return [record for record in records if record is not None]

    def _described(self, records: Iterable[dict[str, Any]]) -> builtins.list[Worktree]:
        find = cache(self._clones.find)  # many worktrees share a clone
        return [self._describe(find(one["url"]), one["workflow"], one["name"], one["base"]) for one in records]

    def _recorded(self, record: dict[str, Any]) -> Worktree:
        (tree,) = self._described([record])
        return tree

    async def _plan(
        self, tree: Worktree, base: str | None, existing_branch: ExistingBranch
    ) -> tuple[Worktree, str | None]:
        """Check that a new worktree can be created, and resolve the base of its branch.

        Return it with the tip of its branch, None if there is no branch yet.
        """
        tip = await tree.tip()
        if tip is not None and existing_branch == "refuse":
            raise BranchExists(
                f"the branch {tree.branch} exists in {tree.clone.folder}: "
                f'use another name, delete it, or go on with it (existing_branch="continue")'
            )
        if tree.path.is_symlink() or (tree.path.exists() and (not tree.path.is_dir() or any(tree.path.iterdir()))):
            raise FolderExists(f"{tree.path} exists and no record says that it is ours: move it away first")
        planned = replace(tree, base=await tree.clone.resolve_base(base))
        if tip is not None and tip != planned.base and existing_branch == "restart":
            await keep_commit(planned, tip, f"Kept when {tree.branch} was restarted", self._clock, self._identity)
            await tree.clone.update_refs([f"update {tree.ref} {planned.base} {tip}"])
            tip = planned.base
        return planned, tip

    async def _remaining_tip(self, tree: Worktree) -> str | None:
        """Return the tip of the branch of a recorded worktree, None if only its base is left."""
        tip = await tree.tip()
        if tip is None and (not is_hash(tree.base) or await tree.clone.commit_of(tree.base) is None):
            raise WorktreeBroken(
                f"the branch {tree.branch} and the commit {tree.base} it began at are gone from {tree.clone.folder}"
            )
        return tip

    async def _materialise(self, held: HeldWorktree, tip: str | None) -> None:
        """Create branch, folder and files, as far as they are missing."""
        tree = held.tree
        if tip is None:
            await tree.clone.update_refs([f"create {tree.ref} {tree.base}"])
            tip = tree.base
        if tree.path.is_symlink():
            tree.path.unlink()
        tree.path.mkdir(parents=True, exist_ok=True)
        held.next_index.unlink(missing_ok=True)
        if self._before_checkout is not None:
            self._before_checkout()
        await held.run("read-tree", "--reset", "-u", tip, index=held.next_index)
        held.adopt_next_index()
        held.publish()
        held.write_record("ready")

    async def _keep(self, held: HeldWorktree, *, delete_branch: bool) -> str | None:
        if not real_folder(held.tree.path):
            return None
        stays = None if delete_branch else await held.tree.tip()
        tree = await snapshot(held)
        return await rescue(
            held, tree, f"Kept when {held.tree.branch} was released", self._clock, self._identity, target=stays
        )

    async def _finish_release(self, held: HeldWorktree, *, delete_branch: bool) -> None:
        tree = held.tree
        trash = tree.state_folder / _TRASH
        await asyncio.to_thread(shutil.rmtree, trash, ignore_errors=True)
        if tree.path.is_symlink():
            tree.path.unlink()
        elif tree.path.exists():
            tree.path.rename(trash)  # atomic, so that no half deleted folder looks like a worktree
        if tree.admin.is_symlink():
            tree.admin.unlink()
        elif tree.admin.exists():
            await asyncio.to_thread(shutil.rmtree, tree.admin)
        if delete_branch and (tip := await _tip_or_none(tree)) is not None:
            await tree.clone.update_refs([f"delete {tree.ref} {tip}"])
        await asyncio.to_thread(shutil.rmtree, trash, ignore_errors=True)
        await asyncio.to_thread(shutil.rmtree, tree.state_folder)
        for folder in (tree.path.parent, tree.state_folder.parent):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


async def _tip_or_none(tree: Worktree) -> str | None:
    try:
        return await tree.tip()
    except CommandFailed as error:
        if not error.answered:
            raise
        return None  # the clone is gone, and the branch with it
