"""Proof that recorded checkpoints are there: each hash exists, is held by its ref, and has its recorded tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kingdom.gitops.names import check_hash
from kingdom.gitops.refs import checkpoint_ref

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kingdom.gitops.repository import Clone


@dataclass(frozen=True)
class Recorded:
    """A checkpoint as the caller's store knows it."""

    workflow: str
    checkpoint: str
    commit: str
    tree: str

    def __post_init__(self) -> None:
        checkpoint_ref(self.workflow, self.checkpoint)
        check_hash("commit", self.commit)
        check_hash("tree", self.tree)


@dataclass(frozen=True)
class Problem:
    """A recorded checkpoint that is not as it was recorded."""

    recorded: Recorded
    what: str


async def verify(clone: Clone, recorded: Iterable[Recorded], *, deep: bool = False) -> list[Problem]:
    """Every problem of the recorded checkpoints of one clone. ``deep`` also walks to every file of each."""
    records = list(recorded)
    if not records:
        return []
    refs = await clone.refs("refs/kingdom/checkpoints/")
    asked = "".join(f"{record.commit}^{{tree}}\n{record.commit}\n" for record in records).encode()
    answers = (await clone.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked)).text.splitlines()
    problems = []
    for record, tree, commit in zip(records, answers[::2], answers[1::2], strict=True):
        ref = checkpoint_ref(record.workflow, record.checkpoint)
        if commit != f"{record.commit} commit":
            problems.append(Problem(record, f"commit {record.commit} does not exist"))
        elif tree.endswith(" missing"):
            problems.append(Problem(record, f"the tree {record.tree} does not exist"))
        elif tree != f"{record.tree} tree":
            problems.append(Problem(record, f"its tree is {tree.split()[0]}, and {record.tree} was recorded"))
        elif refs.get(ref) != record.commit:
            holds = f"it is at {refs[ref]}" if ref in refs else "there is no such ref"
            problems.append(Problem(record, f"{ref} does not hold the commit: {holds}"))
        elif deep and (missing := await clone.lacks(record.commit)):
            problems.append(Problem(record, f"not all of it is there: {missing}"))
    return problems
