"""Keeping what a reset would drop.

Before files are replaced or a branch is moved back, everything that would be out of reach afterwards becomes a commit
of its own under ``refs/kingdom/rescue/<workflow>/<time>``: the files as they were, with the dropped commits as parents.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kingdom.gitops.clock import stamp
from kingdom.gitops.commits import Identity, independent, make_commit, read_commits
from kingdom.gitops.refs import rescue_ref, rescues_of

if TYPE_CHECKING:
    from datetime import datetime

    from kingdom.gitops.clock import Clock
    from kingdom.gitops.repository import Clone
    from kingdom.gitops.worktree import HeldWorktree


@dataclass(frozen=True)
class Rescue:
    """Something that was kept."""

    ref: str
    commit: str
    worktree: str
    at: datetime
    title: str

    @property
    def name(self) -> str:
        """The last part of its ref, by which it is removed."""
        return self.ref.rpartition("/")[2]


async def rescue(
    held: HeldWorktree, tree: str, why: str, clock: Clock, by: Identity, *, target: str | None
) -> str | None:
    """Keep the files (already stored as ``tree``) and the commits that going to ``target`` would drop.

    Returns the ref, or None when nothing would be dropped.
    """
    clone, workflow = held.clone, held.tree.workflow
    kept_by = await independent(clone, await held.head(), await held.tree.tip())
    # Files that are exactly the target's, or exactly those of a commit that stays or is kept, are no loss.
    trees = [await clone.tree_of(commit) for commit in ([target] if target else []) + kept_by[:1]]
    dropped = [commit for commit in kept_by if target is None or not await clone.is_ancestor(commit, target)]
    if tree in trees and not dropped:
        return None
    at = clock()
    trailers = {"Kingdom-Workflow": workflow, "Kingdom-Worktree": held.tree.name}
    commit = await make_commit(clone, tree, kept_by, why, trailers, by, at)
    there = await clone.refs(rescues_of(workflow))
    names = (stamp(at) + (f"-{number}" if number > 1 else "") for number in itertools.count(1))
    ref = next(ref for ref in (rescue_ref(workflow, name) for name in names) if ref not in there)
    await clone.update_refs([f"create {ref} {commit}"])
    return ref


async def list_rescues(clone: Clone, workflow: str) -> list[Rescue]:
    """What was rescued from a workflow's worktrees on this clone, oldest first."""
    refs = await clone.refs(rescues_of(workflow))
    commits = {commit.hash: commit for commit in await read_commits(clone, *refs.values(), history=False)}
    found = [(ref, commits[value]) for ref, value in sorted(refs.items())]
    return [Rescue(ref, c.hash, c.trailers.get("Kingdom-Worktree", ""), c.at, c.title) for ref, c in found]


async def remove_rescue(clone: Clone, workflow: str, name: str) -> None:
    """Let go of one rescue. git deletes what only it held when it next prunes."""
    ref = rescue_ref(workflow, name)
    if ref in await clone.refs(rescues_of(workflow)):
        await clone.update_refs([f"delete {ref}"])
