"""Whether checkpoints can be gone back to: each commit is there, and held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kingdom.workflow.sources import MOST

if TYPE_CHECKING:
    from kingdom.gitops import Problem
    from kingdom.workflow.adapters.git_service import GitopsService
    from kingdom.workflow.ports import Store


@dataclass(frozen=True, slots=True)
class Proof:
    """How many checkpoints were looked at, and what is wrong with some."""

    checked: int
    problems: list[Problem]


async def prove(store: Store, service: GitopsService, workflow_id: str | None = None, *, deep: bool = False) -> Proof:
    """Look at the checkpoints of a workflow, or of all; ``deep`` looks for every file of every commit, too."""
    async with store.reading() as tx:
        if workflow_id is None:
            points = await tx.checkpoints.list(limit=10 * MOST)
        else:
            points = await tx.checkpoints.of_workflow(workflow_id)
        gits = {git.id: git for git in await tx.gits.list(limit=MOST)}
    # The clone of a repository that was deleted may be gone with it; that is no damage.
    known = [point for point in points if point.complete and all(git_id in gits for git_id in point.hashes)]
    return Proof(len(known), await service.verify(gits, known, deep=deep))
