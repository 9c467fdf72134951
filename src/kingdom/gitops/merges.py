"""Merge other branches or commits into a worktree's branch. Conflicts are returned; the files do not change then.

While a merge changes the files, a note in the state folder has the old and the new commit. If the process is killed,
the next merge finishes this one before it checks for uncommitted changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kingdom.gitops.commits import SHORT_HASH_CHARS, Clock, CommitAuthor, make_commit, system_clock
from kingdom.gitops.errors import BaseNotFound, WorktreeBroken, WorktreeDirty
from kingdom.gitops.files import write_file
from kingdom.gitops.names import check_ref, is_hash
from kingdom.gitops.reset import check_out
from kingdom.gitops.worktree import snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.gitops.repository import Clone
    from kingdom.gitops.worktree import HeldWorktree, Worktree


@dataclass(frozen=True)
class Conflict:
    """A file that both sides changed, with git's messages."""

    path: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class MergeResult:
    """The result of a merge: a commit, or conflicts and no change."""

    commit: str
    """The tip of the branch afterwards."""
    conflicts: tuple[Conflict, ...] = ()
    source: str = ""
    """The source with the conflicts."""
    up_to_date: bool = False
    rescues: tuple[str, ...] = ()
    """Rescue refs of ignored files that were overwritten."""

    @property
    def clean(self) -> bool:
        """Whether there were no conflicts."""
        return not self.conflicts


async def merge(
    tree: Worktree,
    *sources: str,
    title: str = "",
    clock: Clock = system_clock,
    identity: CommitAuthor | None = None,
) -> MergeResult:
    """Merge commits (hashes) or branches (as in ``Worktree.branch``) into the worktree's branch and files.

    All or none, with a merge commit for each, even if a fast-forward is possible, so that the history shows the merges.
    Raise :class:`WorktreeDirty` for uncommitted changes, unless everything is merged already. May be repeated: an
    interrupted merge is finished first.
    """
    clone, by = tree.clone, identity or CommitAuthor()
    async with tree.hold() as held:
        await _finish_interrupted(held, clock, by)
        tip = await tree.tip()
        if tip is None:
            raise WorktreeBroken(f"the branch {tree.branch} is gone from {clone.folder}")
        found = {source: await _commit_of(clone, source) for source in sources}
        others = {source: other for source, other in found.items() if not await clone.is_ancestor(other, tip)}
        if not others:
            return MergeResult(tip, up_to_date=True)
        if await held.head() != tip or await snapshot(held) != await clone.tree_of(tip):
            raise WorktreeDirty(f"{tree.path} has changes that are not on {tree.branch}: make a checkpoint first")
        held.adopt_next_index()
        target = tip  # nothing changes before all commits are made
        for source, other in others.items():
            if target != tip and await clone.is_ancestor(other, target):
                continue  # it came with an earlier one
            words = ("merge-tree", "--write-tree", "-z", "--name-only", "--messages", target, other)
            result = await clone.run(*words, ok=(0, 1))
            if result.code == 1:
                return MergeResult(tip, _conflicts(result.fields), source)
            message = f"{title}\n\nMerges {source}." if title else f"Merge {source} into {tree.branch}"
            trailers = {"Kingdom-Workflow": tree.workflow, "Kingdom-Worktree": tree.name, "Kingdom-Merged": other}
            target = await make_commit(clone, result.fields[0], [target, other], message, trailers, by, clock())
        write_file(held.merging, f"{tip} {target}\n".encode())
        return MergeResult(target, rescues=await _check_out_merge(held, target, clock, by))


async def _commit_of(clone: Clone, source: str) -> str:
    name = source if is_hash(source) else f"refs/heads/{check_ref('branch', source)}"
    if (found := await clone.commit_of(name)) is None:
        raise BaseNotFound(f"there is no branch or commit {source!r} in {clone.folder} to merge")
    return found


async def _finish_interrupted(held: HeldWorktree, clock: Clock, by: CommitAuthor) -> None:
    """Finish a merge whose process was killed while it changed the files."""
    if not held.merging.exists():
        return
    tip = await held.tree.tip()
    older, _, newer = held.merging.read_text("utf-8", "replace").strip().partition(" ")
    if tip not in (older, newer):
        held.merging.unlink()  # the branch was moved since: check the files as usual
        return
    there = is_hash(newer) and await held.clone.commit_of(newer) is not None  # no ref holds it, so it may be pruned
    await _check_out_merge(held, newer if there else str(tip), clock, by)


async def _check_out_merge(held: HeldWorktree, target: str, clock: Clock, by: CommitAuthor) -> tuple[str, ...]:
    why = f"Kept when {target[:SHORT_HASH_CHARS]} was merged into {held.tree.branch}"
    return await check_out(held, target, await held.clone.tree_of(target), why, clock, by)


def _conflicts(fields: Sequence[str]) -> tuple[Conflict, ...]:
    """Parse the files, an empty field, then messages: number of paths, the paths, the kind, the text."""
    end = fields.index("", 1) if "" in fields[1:] else len(fields)
    reasons: dict[str, list[str]] = {path: [] for path in fields[1:end]}
    at = end + 1
    while at < len(fields):
        count = int(fields[at])
        paths, kind = fields[at + 1 : at + 1 + count], fields[at + 1 + count]
        if kind.startswith("CONFLICT"):
            for path in paths:
                reasons.setdefault(path, []).append(kind)
        at += count + 3
    return tuple(Conflict(path, tuple(dict.fromkeys(kinds))) for path, kinds in reasons.items())
