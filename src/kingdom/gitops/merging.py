"""Merging another branch or commit into a worktree's branch. Conflicts are data; the files stay as they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kingdom.gitops.clock import Clock, system_clock
from kingdom.gitops.commits import Identity, make_commit
from kingdom.gitops.errors import BaseNotFound, WorktreeBroken, WorktreeDirty
from kingdom.gitops.names import check_ref, is_hash
from kingdom.gitops.snapshot import snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.gitops.worktree import Worktree


@dataclass(frozen=True)
class Conflict:
    """A file that both sides changed, and what git says about it."""

    path: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Merge:
    """What came of a merge: a commit, or conflicts and no change at all."""

    commit: str
    """The tip of the branch afterwards."""
    conflicts: tuple[Conflict, ...] = ()
    up_to_date: bool = False

    @property
    def clean(self) -> bool:
        """Whether everything could be merged."""
        return not self.conflicts


async def merge(
    tree: Worktree,
    source: str,
    *,
    title: str = "",
    clock: Clock = system_clock,
    identity: Identity | None = None,
) -> Merge:
    """Merge a commit (a hash) or a branch (as in ``Worktree.branch``) into the worktree's branch and files.

    The worktree must have no uncommitted changes: :class:`WorktreeDirty`. There is always a merge commit, also where a
    fast-forward were possible, so that the history shows what was merged.
    """
    clone = tree.clone
    async with tree.hold() as held:
        tip = await tree.tip()
        if tip is None:
            raise WorktreeBroken(f"the branch {tree.branch} is gone from {clone.folder}")
        name = source if is_hash(source) else f"refs/heads/{check_ref('branch', source)}"
        other = await clone.commit_of(name)
        if other is None:
            raise BaseNotFound(f"there is no branch or commit {source!r} in {clone.folder} to merge")
        if await held.head() != tip or await snapshot(held) != await clone.tree_of(tip):
            raise WorktreeDirty(f"{tree.path} has changes that are not on {tree.branch}: make a checkpoint first")
        held.take_next_index()
        if await clone.is_ancestor(other, tip):
            return Merge(tip, up_to_date=True)
        words = ("merge-tree", "--write-tree", "-z", "--name-only", "--messages", tip, other)
        result = await clone.run(*words, ok=(0, 1))
        fields = result.fields
        if result.code == 1:
            return Merge(tip, _conflicts(fields))
        trailers = {"Kingdom-Workflow": tree.workflow, "Kingdom-Worktree": tree.name, "Kingdom-Merged": other}
        message = title or f"Merge {source} into {tree.branch}"
        commit = await make_commit(clone, fields[0], [tip, other], message, trailers, identity or Identity(), clock())
        await clone.update_refs([f"update {tree.ref} {commit} {tip}"])
        await held.run("read-tree", "-m", "-u", tip, commit, index=held.index)
        held.publish()
    return Merge(commit)


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
