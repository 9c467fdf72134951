"""What was dropped of a workflow when it went back, and kept: list it and bring it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.gitops.errors import GitError
from kingdom.workflow.domain.refusals import refusal
from kingdom.workflow.errors import NotModifiable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.gitops.commits import FileDiff
    from kingdom.gitops.reset import Rescue
    from kingdom.workflow.adapters.git_service import GitopsService
    from kingdom.workflow.domain.resources import Git, WorkTree
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.ports import WorkflowStore


_MAX_FILES: Final = 100  # named in a document


class KeptWork(NamedTuple):
    """A rescue, with its repository."""

    id: str  # the last part of its ref
    git: Git
    rescue: Rescue
    files: tuple[FileDiff, ...]  # that were dropped

    def document(self) -> dict[str, Any]:
        """Return it as a JSON document."""
        return {
            "id": self.id,
            "repository": self.git.name,
            "ref": self.rescue.ref,
            "commit": self.rescue.commit,
            "madeAt": self.rescue.at.isoformat(),
            "why": self.rescue.title,
            "files": [one.path for one in self.files[:_MAX_FILES]],
            "fileCount": len(self.files),
        }


class RestoredWork(NamedTuple):
    """Where the files of a rescue are now, and the rescue ref of what they replaced, if anything was lost."""

    path: str
    replaced: str | None


async def read_rescues(store: WorkflowStore, service: GitopsService, workflow: Workflow) -> list[KeptWork]:
    """Return the rescues of a workflow in all its repositories, oldest first."""
    async with store.reading() as tx:
        ids = {ref.git_id for ref in workflow.git_refs}
        ids |= {tree.git_id for tree in await tx.work_trees.of_workflow(workflow.id)}
        gits = [git for git_id in sorted(ids) if (git := await tx.gits.find(git_id)) is not None]
    kept = [
        KeptWork(one.name, git, one, tuple(await _dropped_files(service, git, one)))
        for git in gits
        for one in await service.rescues(git, workflow.id)
    ]
    return sorted(kept, key=lambda one: one.rescue.at)


async def _dropped_files(service: GitopsService, git: Git, rescue: Rescue) -> Sequence[FileDiff]:
    if rescue.since is None:
        return ()
    try:
        return await service.diff(git, rescue.since, rescue.commit, patches=False)
    except GitError:  # the commit before it is gone; the rescue is there all the same
        return ()


async def restore_rescue(
    store: WorkflowStore, service: GitopsService, workflow: Workflow, kept: KeptWork
) -> RestoredWork:
    """Set the files of the worktree to those of a rescue. The branch does not move: the next checkpoint has them.

    Raises :class:`NotModifiable` while the workflow runs, and when the worktree is gone.
    """
    if workflow.landing:
        raise NotModifiable(f"workflow {workflow.name} is being landed: wait for that")
    if workflow.is_active:
        raise NotModifiable(refusal(workflow.name, workflow.status, "cannot get files back before it rests"))
    async with store.reading() as tx:
        trees = await tx.work_trees.of_workflow(workflow.id)
    tree = _tree_of(service, trees, kept)
    return RestoredWork(str(tree.path), await service.restore(tree, kept.rescue))


def _tree_of(service: GitopsService, trees: list[WorkTree], kept: KeptWork) -> WorkTree:
    """Return the worktree that the files were dropped from; if it is gone, that of the workflow."""
    ready = [tree for tree in trees if tree.git_id == kept.git.id and tree.status == "READY"]
    same = [tree for tree in ready if service.name_of(tree) == kept.rescue.worktree]
    own = [tree for tree in ready if tree.work_id is None]
    if not (same or own):
        raise NotModifiable(
            f"the worktree of {kept.git.name} is gone: the files are in the commit {kept.rescue.commit} of its clone"
        )
    return (same or own)[0]
