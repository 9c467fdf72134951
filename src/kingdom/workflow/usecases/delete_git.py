"""DeleteGit: a repository that no workflow uses is forgotten."""

from __future__ import annotations

from typing import Final

from kingdom.workflow.domain.events import GitDeleted
from kingdom.workflow.parts import Parts
from kingdom.workflow.ports import Told

_MOST: Final = 100_000  # repositories that are compared


class DeleteGit:
    """Forget a repository; templates that name it lose the reference."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def execute(self, git_id: str) -> None:
        """Delete a repository; raises :class:`kingdom.workflow.domain.errors.StillInUse` while a workflow uses it.

        Its clone goes as well, unless work of workflows is in it, or it is another repository's, too.
        """
        parts = self._parts
        async with parts.step() as step:
            git = await step.tx.gits.get(git_id)
            git.check_unused()
            await step.tx.gits.delete(git_id)
            step.tx.record(Told(GitDeleted(git_id), "Git", git_id))
            if not any(other.url == git.url for other in await step.tx.gits.list(limit=_MOST)):
                step.then(lambda: parts.outside(f"the clone of {git.name} stays", lambda: parts.git.discard(git)))
