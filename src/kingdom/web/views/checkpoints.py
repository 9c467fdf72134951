"""Checkpoints of a workflow, and what changed from one to another."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pydantic import Field

from kingdom.web.envelope import ApiModel
from kingdom.web.views.finding import find_checkpoint, find_workflow
from kingdom.web.views.patches import Hunk, hunks_of
from kingdom.web.views.work_desk import work_desk
from kingdom.workflow.comparing import Change, compare
from kingdom.workflow.overview import Overview
from kingdom.workflow.proving import prove

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.gitops import FileDiff
    from kingdom.web.context import WebContext

Form: TypeAlias = Literal["hunks", "patch", "stat"]
BASE: Final = "base"
_MOST_FILES: Final = 2000  # that are named, in each repository
_MOST_PATCHES: Final = 200  # files with their lines, in each repository
_MOST_CHARACTERS: Final = 2_000_000  # of all patches together


class Checkpoint(ApiModel):
    """A commit of each repository, made when a work was done."""

    id: str = Field(examples=["cp-0198c2d7"])
    work_id: str = Field(examples=["work-0198c2d4"])
    work_name: str | None = Field(examples=["fix"])
    attempt: int = Field(description="Of the work.", examples=[1])
    created_at: datetime
    valid: bool = Field(description="False once the workflow went back behind it; it can still be forked from.")
    hashes: dict[str, str] = Field(
        description="The commit, by the name of the repository.",
        examples=[{"web": "3f1c9a0d5b0c4e5f8a7b6c5d4e3f2a1b0c9d8e7f"}],
    )


class ChangedFile(ApiModel):
    """A file that changed."""

    path: str = Field(examples=["src/net.py"])
    old_path: str | None = Field(description="Where a renamed or copied file was.")
    status: str = Field(examples=["modified"])
    added: int | None = Field(description="Lines; null for a binary file.", examples=[2])
    removed: int | None = Field(description="Lines; null for a binary file.", examples=[1])
    binary: bool
    truncated: bool = Field(description="Whether some of its lines, or all, are left out here because it is too much.")
    patch: str | None = Field(default=None, description="In unified form, when `form=patch` was asked for.")
    hunks: list[Hunk] = Field(default_factory=list, description="When `form=hunks` was asked for.")


class RepositoryDiff(ApiModel):
    """What changed in one repository."""

    git_id: str = Field(examples=["git-0198c2d0"])
    name: str = Field(examples=["web"])
    older: str = Field(examples=["8d2f1e0c9b8a7f6e5d4c3b2a190807f6e5d4c3b2"])
    newer: str = Field(examples=["3f1c9a0d5b0c4e5f8a7b6c5d4e3f2a1b0c9d8e7f"])
    truncated: bool = Field(description="Whether there are more files than are named here.")
    files: list[ChangedFile]


class Diff(ApiModel):
    """What changed, by repository."""

    checkpoint_id: str = Field(examples=["cp-0198c2d7"])
    against: str | None = Field(description="The other checkpoint, `base`, or null: where its work began.")
    repositories: list[RepositoryDiff]


class Damage(ApiModel):
    """A checkpoint that cannot be gone back to."""

    checkpoint_id: str = Field(examples=["cp-0198c2d7"])
    what: str = Field(examples=["the commit 3f1c9a0d is not there"])


class Verified(ApiModel):
    """Whether every checkpoint of a workflow can be gone back to."""

    checked: int = Field(examples=[3])
    problems: list[Damage]


async def list_checkpoints(context: WebContext, workflow_id: str) -> list[Checkpoint]:
    """The finished checkpoints of a workflow, the oldest first."""
    async with context.parts.store.reading() as tx:
        overview = await Overview.read(tx, await find_workflow(tx, workflow_id))
    return [Checkpoint.model_validate(point) for point in overview.document()["checkpoints"]]


async def read_diff(
    context: WebContext, workflow_id: str, checkpoint_id: str, *, against: str | None = None, form: Form = "hunks"
) -> Diff:
    """What changed up to a checkpoint: since its work began, since the branch began, or since another checkpoint."""
    store = context.parts.store
    async with store.reading() as tx:
        await find_workflow(tx, workflow_id)
        newer = await find_checkpoint(tx, workflow_id, checkpoint_id)
        older = None if against in (None, BASE) else await find_checkpoint(tx, workflow_id, str(against))
    changes = await compare(
        store, work_desk(context).git, newer, older,
        base=against == BASE, patches=form != "stat", max_patches=_MOST_PATCHES,
    )  # fmt: skip
    repositories = await asyncio.to_thread(_repositories, changes, form)  # patches may have megabytes
    return Diff(checkpoint_id=checkpoint_id, against=against, repositories=repositories)


async def verify(context: WebContext, workflow_id: str, *, deep: bool = False) -> Verified:
    """Look whether every commit of every checkpoint of a workflow is there and held."""
    async with context.parts.store.reading() as tx:
        await find_workflow(tx, workflow_id)
    proof = await prove(context.parts.store, work_desk(context).git, workflow_id, deep=deep)
    problems = [Damage(checkpoint_id=one.recorded.checkpoint, what=one.what) for one in proof.problems]
    return Verified(checked=proof.checked, problems=problems)


class _Room:
    """How much more may be shown."""

    def __init__(self, characters: int) -> None:
        self._left = characters

    def take(self, text: str | None) -> bool:
        """Whether there is room for a text; then it is taken."""
        size = len(text or "")
        if size > self._left:
            return False
        self._left -= size
        return True


def _repositories(changes: Sequence[Change], form: Form) -> list[RepositoryDiff]:
    room = _Room(_MOST_CHARACTERS)
    return [_repository(change, form, room) for change in changes]


def _repository(change: Change, form: Form, room: _Room) -> RepositoryDiff:
    return RepositoryDiff(
        git_id=change.git.id,
        name=change.git.name,
        older=change.older,
        newer=change.newer,
        truncated=len(change.files) > _MOST_FILES,
        files=[_file(file, form, room) for file in change.files[:_MOST_FILES]],
    )


def _file(file: FileDiff, form: Form, room: _Room) -> ChangedFile:
    fits = room.take(file.patch)
    patch = file.patch if fits else None
    return ChangedFile(
        path=file.path,
        old_path=file.old_path,
        status=file.status,
        added=file.added,
        removed=file.removed,
        binary=file.binary,
        truncated=form != "stat" and (file.truncated or not fits),
        patch=patch if form == "patch" else None,
        hunks=hunks_of(patch or "") if form == "hunks" else [],
    )
