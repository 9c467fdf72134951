"""CreateGit: a repository that workflows can use."""

from __future__ import annotations

from kingdom.workflow.domain.events import GitCreated
from kingdom.workflow.domain.sources import Git
from kingdom.workflow.parts import Parts
from kingdom.workflow.ports import Told
from kingdom.workflow.usecases._names import check_free


class CreateGit:
    """Register a repository. It is cloned when a workflow first needs it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def execute(self, name: str, url: str) -> str:
        """Register a repository; returns its id. Raises :class:`kingdom.workflow.domain.errors.NameTaken`."""
        git = Git(self._parts.ids.new("git"), name, url=url)
        async with self._parts.store.transaction() as tx:
            await check_free(tx.gits, name, "a repository")
            await tx.gits.save(git)
            tx.record(Told(GitCreated(git.id), "Git", git.id))
        return git.id
