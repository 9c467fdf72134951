"""Reset a worktree to a commit, and keep what that would drop.

Before files are replaced or a branch is moved back, everything that would become unreachable is committed under
``refs/kingdom/rescue/<workflow>/<time>``: the files as they were, with the dropped commits as parents.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.gitops.commits import (
    SHORT_HASH_CHARS,
    Clock,
    CommitAuthor,
    independent,
    make_commit,
    read_commits,
    stamp,
    system_clock,
)
from kingdom.gitops.errors import BaseNotFound, TreeMismatch
from kingdom.gitops.files import in_the_way
from kingdom.gitops.names import check_hash, checkpoints_of, rescue_ref, rescues_of
from kingdom.gitops.worktree import snapshot

if TYPE_CHECKING:
    from datetime import datetime

    from kingdom.gitops.commits import Commit
    from kingdom.gitops.repository import Clone
    from kingdom.gitops.worktree import HeldWorktree, Worktree


# ── rescues ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Rescue:
    """A commit that holds what was dropped."""

    ref: str
    commit: str
    worktree: str
    at: datetime
    title: str
    since: str | None
    """The commit that the worktree went back to: what differs from it was dropped."""

    @property
    def name(self) -> str:
        """The last part of its ref."""
        return self.ref.rpartition("/")[2]


async def rescue(
    held: HeldWorktree, tree: str, why: str, clock: Clock, by: CommitAuthor, *, target: str | None
) -> str | None:
    """Keep the files (stored as ``tree``) and the commits that a reset to ``target`` would drop.

    Return the ref, or None if nothing would be dropped.
    """
    clone = held.clone
    kept_by = await independent(clone, await held.head(), await held.tree.tip())
    # Files that equal those of the target, or of a commit that is kept, are not lost.
    trees = [await clone.tree_of(commit) for commit in ([target] if target else []) + kept_by[:1]]
    dropped = [commit for commit in kept_by if target is None or not await clone.is_ancestor(commit, target)]
    if tree in trees and not dropped:
        return None
    return await _rescue_commit(held.tree, tree, kept_by, why, clock, by, since=target)


async def keep_commit(tree: Worktree, commit: str, why: str, clock: Clock, by: CommitAuthor) -> str | None:
    """Keep a commit under a rescue ref; return the ref, or None if a checkpoint or rescue holds the commit already."""
    held_by = (checkpoints_of(tree.workflow), rescues_of(tree.workflow))
    if (await tree.clone.run("for-each-ref", "--count=1", "--contains", commit, *held_by)).text:
        return None
    return await _rescue_commit(tree, await tree.clone.tree_of(commit), [commit], why, clock, by)


async def _rescue_commit(
    worktree: Worktree,
    tree: str,
    parents: list[str],
    why: str,
    clock: Clock,
    by: CommitAuthor,
    *,
    since: str | None = None,
) -> str:
    clone, workflow, at = worktree.clone, worktree.workflow, clock()
    trailers = {"Kingdom-Workflow": workflow, "Kingdom-Worktree": worktree.name}
    if since is not None:
        trailers["Kingdom-Since"] = since
    commit = await make_commit(clone, tree, parents, why, trailers, by, at)
    there = await clone.refs(rescues_of(workflow))
    names = (stamp(at) + (f"-{number}" if number > 1 else "") for number in itertools.count(1))
    ref = next(ref for ref in (rescue_ref(workflow, name) for name in names) if ref not in there)
    await clone.update_refs([f"create {ref} {commit}"])
    return ref


async def list_rescues(clone: Clone, workflow: str) -> list[Rescue]:
    """Return the rescues of a workflow on this clone, oldest first."""
    refs = await clone.refs(rescues_of(workflow))
    commits = {commit.hash: commit for commit in await read_commits(clone, *refs.values(), history=False)}
    return [_rescue(ref, commits[value]) for ref, value in sorted(refs.items())]


def _rescue(ref: str, commit: Commit) -> Rescue:
    trailers = commit.trailers
    # An earlier version did not record it: there it is at least known what was not committed.
    since = trailers.get("Kingdom-Since") or next(iter(commit.parents), None)
    return Rescue(ref, commit.hash, trailers.get("Kingdom-Worktree", ""), commit.at, commit.title, since)


async def remove_rescue(clone: Clone, workflow: str, name: str) -> None:
    """Delete one rescue ref. git deletes unreachable objects when it next prunes."""
    ref = rescue_ref(workflow, name)
    if ref in await clone.refs(rescues_of(workflow)):
        await clone.update_refs([f"delete {ref}"])


# ── reset ────────────────────────────────────────────────────────────────────────────────────────────────────────────


_MAX_PASSES: Final = 3


@dataclass(frozen=True)
class ResetResult:
    """The commit of a worktree after a reset, and the refs that hold what was dropped."""

    commit: str
    tree: str
    rescues: tuple[str, ...] = ()


async def reset(
    tree: Worktree,
    commit: str | None = None,
    *,
    expected_tree: str | None = None,
    remove_ignored: bool = False,
    clock: Clock = system_clock,
    identity: CommitAuthor | None = None,
) -> ResetResult:
    """Reset a worktree to a commit, or (None) to the base of its branch.

    Nothing may write to the worktree any more. Uncommitted files and commits that would be dropped are kept under a
    rescue ref first. Ignored files stay, unless ``remove_ignored``; then they are rescued as well. Raise
    :class:`TreeMismatch` if the files differ from the commit's tree afterwards, or, before anything is touched, if that
    is not ``expected_tree``.
    """
    target = check_hash("commit", commit or tree.base)
    async with tree.hold() as held:
        if await tree.clone.commit_of(target) is None:
            raise BaseNotFound(f"commit {target} is not in {tree.clone.folder}: verify() says what else is missing")
        wanted = await tree.clone.tree_of(target)
        if expected_tree is not None and wanted != expected_tree:
            raise TreeMismatch(f"commit {target} has the tree {wanted}, and {expected_tree} was recorded")
        why = f"Kept when {tree.branch} was reset to {target[:SHORT_HASH_CHARS]}"
        by = identity or CommitAuthor()
        rescues = await check_out(held, target, wanted, why, clock, by, remove_ignored=remove_ignored)
    return ResetResult(target, wanted, rescues)


async def restore(
    tree: Worktree, commit: str, *, clock: Clock = system_clock, identity: CommitAuthor | None = None
) -> str | None:
    """Set the files of a worktree to those of a commit, such as a rescue. Its branch does not move.

    Nothing may write to the worktree. Uncommitted files are kept under a rescue ref first; return that, if any.
    """
    async with tree.hold() as held:
        wanted = await tree.clone.tree_of(check_hash("commit", commit))
        found = await _snapshot(held, wanted, ignored=False)
        why, by = f"Kept when {commit[:SHORT_HASH_CHARS]} was restored", identity or CommitAuthor()
        kept = await rescue(held, found, why, clock, by, target=await tree.tip())
        await held.run("read-tree", "--reset", "-u", commit, index=held.next_index)
        held.adopt_next_index()
        held.publish()
    return kept


async def check_out(
    held: HeldWorktree,
    target: str,
    wanted: str,
    why: str,
    clock: Clock,
    by: CommitAuthor,
    *,
    remove_ignored: bool = False,
) -> tuple[str, ...]:
    """Set the files and the branch to a commit, whose tree is ``wanted``. May be repeated.

    Return the rescue refs of what was dropped. Raise :class:`TreeMismatch` if the files differ from the commit
    afterwards.
    """
    tree = held.tree
    rescues: list[str] = []
    # Several passes: the target may have other ignore rules, so that files appear that are neither in the target nor
    # rescued yet.
    for number in range(_MAX_PASSES):
        found = await _snapshot(held, wanted, ignored=remove_ignored)
        if number and found == wanted:
            break
        kept = await rescue(held, found, why, clock, by, target=target)
        rescues += [kept] if kept else []
        await held.run("read-tree", "--reset", "-u", target, index=held.next_index)
        held.adopt_next_index()
        await tree.clone.update_refs([f"update {tree.ref} {target}"])
        held.restore_links()
    else:
        await _compare_bytes(held, target, await snapshot(held), wanted)
    held.publish()
    return tuple(rescues)


async def _snapshot(held: HeldWorktree, wanted: str, *, ignored: bool) -> str:
    """Store the files as a tree, including ignored files that the target would overwrite."""
    found = await snapshot(held, ignored=ignored)
    words = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=A", found, wanted)
    coming = (await held.clone.run(*words)).fields
    covered = [in_the_way(held.tree.path, path) for path in coming]
    if also := sorted({path for path in covered if path is not None}):
        return await snapshot(held, ignored=ignored, also=also)
    return found


async def _compare_bytes(held: HeldWorktree, target: str, found: str, wanted: str) -> None:
    """Accept files with the recorded bytes, even if git would store them differently now.

    This happens if ``.gitattributes`` asks for line ends that the commit does not have.
    """
    words = ("diff-tree", "-r", "-z", "--no-renames", wanted, found)
    fields = (await held.clone.run(*words)).fields
    different = []
    for about, path in zip(fields[::2], fields[1::2], strict=True):
        blob = about.split()[2]
        file = held.tree.path / path
        is_file = file.is_file() and not file.is_symlink() and await asyncio.to_thread(_hashable, held, path)
        if not is_file or await _blob_of(held, path) != blob:
            different.append(path)
    if different:
        raise TreeMismatch(
            f"after the reset to {target}, {len(different)} files of {held.tree.path} differ from it, among them "
            f"{different[0]!r}: is something still at work there?",
            different,
        )


def _hashable(held: HeldWorktree, path: str) -> bool:
    return (held.tree.path / path).resolve().is_relative_to(held.tree.path)


async def _blob_of(held: HeldWorktree, path: str) -> str:
    words = ("hash-object", "--no-filters", "--end-of-options", path)
    return (await held.run(*words, index=held.index)).text
