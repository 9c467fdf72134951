"""DeleteGit: a repository that no workflow uses is forgotten."""

from __future__ import annotations

from kingdom.workflow.domain.events import GitDeleted
from kingdom.workflow.parts import Parts
from kingdom.workflow.ports import Told


class DeleteGit:
    """Forget a repository; templates that name it lose the reference."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def execute(self, git_id: str) -> None:
        """Delete a repository; raises :class:`kingdom.workflow.domain.errors.StillInUse` while a workflow uses it."""
        async with self._parts.store.transaction() as tx:
            git = await tx.gits.get(git_id)
            git.check_unused()
            await tx.gits.delete(git_id)
            tx.record(Told(GitDeleted(git_id), "Git", git_id))
