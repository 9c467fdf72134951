"""Merging other branches or commits into a worktree's branch. Conflicts are data; the files stay as they were.

While the files change, a note in the state folder says from which commit to which. Whoever is killed then leaves it;
the next merge finishes what it says before it looks whether anybody else has changed the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kingdom.gitops.commits import Clock, CommitAuthor, make_commit, system_clock
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
    """A file that both sides changed, and what git says about it."""

    path: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class MergeResult:
    """What came of a merge: a commit, or conflicts and no change at all."""

    commit: str
    """The tip of the branch afterwards."""
    conflicts: tuple[Conflict, ...] = ()
    source: str = ""
    """The one that the conflicts are with."""
    up_to_date: bool = False
    rescues: tuple[str, ...] = ()
    """Where ignored files are kept that were in the way."""

    @property
    def clean(self) -> bool:
        """Whether everything could be merged."""
        return not self.conflicts


async def merge(
    tree: Worktree,
    *sources: str,
    title: str = "",
    clock: Clock = system_clock,
    identity: CommitAuthor | None = None,
) -> MergeResult:
    """Merge commits (hashes) or branches (as in ``Worktree.branch``) into the worktree's branch and files.

    All of them or none, with a merge commit for each, also where a fast-forward were possible, so that the history
    shows what was merged. The worktree must have no uncommitted changes, unless all was merged before:
    :class:`WorktreeDirty`. May be repeated: one that was cut off is finished first.
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
        target = tip  # nothing moves before all commits are made
        for source, other in others.items():
            if target != tip and await clone.is_ancestor(other, target):
                continue  # it came with one before it
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
    """Finish a merge whose process was killed while it changed the files: they are nobody's work until then."""
    if not held.merging.exists():
        return
    tip = await held.tree.tip()
    older, _, newer = held.merging.read_text("utf-8", "replace").strip().partition(" ")
    if tip not in (older, newer):
        held.merging.unlink()  # the branch went elsewhere since; what is in the files then is looked at as ever
        return
    there = is_hash(newer) and await held.clone.commit_of(newer) is not None  # no ref held it: it may be pruned
    await _check_out_merge(held, newer if there else str(tip), clock, by)


async def _check_out_merge(held: HeldWorktree, target: str, clock: Clock, by: CommitAuthor) -> tuple[str, ...]:
    why = f"Kept when {target} was merged into {held.tree.branch}"
    return await check_out(held, target, await held.clone.tree_of(target), why, clock, by)


def _conflicts(fields: Sequence[str]) -> tuple[Conflict, ...]:
    """Files, an empty field, then messages: how many paths, the paths, the kind, the text."""
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
