"""Checkpoints of a workflow, and the differences between them."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pydantic import Field

from kingdom.web.envelope import ApiModel
from kingdom.web.views.workflow_state import find_checkpoint, find_workflow, workflow_state
from kingdom.workflow.checkpoints import RepositoryChange, compare_checkpoints, verify_checkpoints
from kingdom.workflow.overview import WorkflowOverview

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.gitops import FileDiff
    from kingdom.web.context import WebContext


# ── Patches ──


HUNK_PATTERN: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)")


class DiffLine(ApiModel):
    """A line of a hunk: unchanged, added or removed."""

    kind: Literal[" ", "+", "-"] = Field(examples=["+"])
    text: str = Field(examples=["timeout = 30"])
    old_number: int | None = Field(default=None, examples=[None])
    new_number: int | None = Field(default=None, examples=[12])


class DiffHunk(ApiModel):
    """Consecutive lines of a diff."""

    old_start: int = Field(examples=[10])
    old_lines: int = Field(examples=[6])
    new_start: int = Field(examples=[10])
    new_lines: int = Field(examples=[7])
    heading: str = Field(description="The enclosing function, if git knows it.", examples=["def connect():"])
    lines: list[DiffLine]


def parse_hunks(patch: str) -> list[DiffHunk]:
    """Parse the hunks of one file's patch. The last hunk of a truncated patch is incomplete."""
    hunks: list[DiffHunk] = []
    old = new = 0
    for text in patch.split("\n"):
        if head := HUNK_PATTERN.match(text):
            old, new = int(head[1]), int(head[3])
            hunks.append(
                DiffHunk(
                    old_start=old,
                    old_lines=int(head[2] or 1),
                    new_start=new,
                    new_lines=int(head[4] or 1),
                    heading=head[5],
                    lines=[],
                )
            )
        elif not hunks or not text:
            continue
        elif text[0] == "+":
            hunks[-1].lines.append(DiffLine(kind="+", text=text[1:], new_number=new))
            new += 1
        elif text[0] == "-":
            hunks[-1].lines.append(DiffLine(kind="-", text=text[1:], old_number=old))
            old += 1
        elif text[0] == " ":
            hunks[-1].lines.append(DiffLine(kind=" ", text=text[1:], old_number=old, new_number=new))
            old, new = old + 1, new + 1
    return hunks


def side_by_side(hunk: DiffHunk) -> list[tuple[DiffLine | None, DiffLine | None]]:
    """Pair old and new lines row by row; changed lines are next to each other."""
    rows: list[tuple[DiffLine | None, DiffLine | None]] = []
    gone: list[DiffLine] = []
    fresh: list[DiffLine] = []

    def flush() -> None:
        rows.extend(zip_longest(gone, fresh))
        gone.clear()
        fresh.clear()

    for line in hunk.lines:
        if line.kind == "-":
            if fresh:
                flush()
            gone.append(line)
        elif line.kind == "+":
            fresh.append(line)
        else:
            flush()
            rows.append((line, line))
    flush()
    return rows


# ── Checkpoints ──


DiffForm: TypeAlias = Literal["hunks", "patch", "stat"]
BASE_POINT: Final = "base"
_MAX_FILES: Final = 2000  # per repository
_MAX_PATCHES: Final = 200  # files with lines, per repository
_MAX_PATCH_CHARS: Final = 2_000_000  # of all patches together


class CheckpointInfo(ApiModel):
    """A checkpoint: one commit per repository, created when a work was completed."""

    id: str = Field(examples=["cp-0198c2d7"])
    work_id: str = Field(examples=["work-0198c2d4"])
    work_name: str | None = Field(examples=["fix"])
    attempt: int = Field(description="Attempt of the work.", examples=[1])
    created_at: datetime
    valid: bool = Field(description="False after the workflow went back past it; it can still be forked.")
    hashes: dict[str, str] = Field(
        description="Commits by repository name.",
        examples=[{"web": "3f1c9a0d5b0c4e5f8a7b6c5d4e3f2a1b0c9d8e7f"}],
    )


class ChangedFile(ApiModel):
    """A changed file."""

    path: str = Field(examples=["src/net.py"])
    old_path: str | None = Field(description="Previous path of a renamed or copied file.")
    status: str = Field(examples=["modified"])
    added: int | None = Field(description="Number of lines; null for a binary file.", examples=[2])
    removed: int | None = Field(description="Number of lines; null for a binary file.", examples=[1])
    binary: bool
    truncated: bool = Field(description="Whether lines are omitted because the diff is too large.")
    patch: str | None = Field(default=None, description="Unified diff, with `form=patch`.")
    hunks: list[DiffHunk] = Field(default_factory=list, description="Hunks, with `form=hunks`.")


class RepositoryDiff(ApiModel):
    """Changes in one repository."""

    git_id: str = Field(examples=["git-0198c2d0"])
    name: str = Field(examples=["web"])
    older: str = Field(examples=["8d2f1e0c9b8a7f6e5d4c3b2a190807f6e5d4c3b2"])
    newer: str = Field(examples=["3f1c9a0d5b0c4e5f8a7b6c5d4e3f2a1b0c9d8e7f"])
    truncated: bool = Field(description="Whether there are more files than listed.")
    files: list[ChangedFile]


class CheckpointDiff(ApiModel):
    """Changes by repository."""

    checkpoint_id: str = Field(examples=["cp-0198c2d7"])
    against: str | None = Field(description="The other checkpoint, `base`, or null for the start of its work.")
    repositories: list[RepositoryDiff]


class CheckpointDamage(ApiModel):
    """A checkpoint that cannot be restored."""

    checkpoint_id: str = Field(examples=["cp-0198c2d7"])
    what: str = Field(examples=["commit 3f1c9a0d is missing"])


class VerificationResult(ApiModel):
    """Result of verifying the checkpoints of a workflow."""

    checked: int = Field(examples=[3])
    problems: list[CheckpointDamage]


async def list_checkpoints(context: WebContext, workflow_id: str) -> list[CheckpointInfo]:
    """Return the completed checkpoints of a workflow, oldest first."""
    async with context.parts.store.reading() as tx:
        overview = await WorkflowOverview.read(tx, await find_workflow(tx, workflow_id))
    return [CheckpointInfo.model_validate(point) for point in overview.document()["checkpoints"]]


async def read_diff(
    context: WebContext, workflow_id: str, checkpoint_id: str, *, against: str | None = None, form: DiffForm = "hunks"
) -> CheckpointDiff:
    """Return the changes of a checkpoint since the start of its work, of the branch, or another checkpoint."""
    changes = await compare(
        context, workflow_id, checkpoint_id, against, patches=form != "stat", max_patches=_MAX_PATCHES
    )
    repositories = await asyncio.to_thread(repository_diffs, changes, form)  # patches may be megabytes
    return CheckpointDiff(checkpoint_id=checkpoint_id, against=against, repositories=repositories)


async def compare(
    context: WebContext,
    workflow_id: str,
    checkpoint_id: str,
    against: str | None,
    *,
    patches: bool = False,
    max_patches: int | None = None,
) -> list[RepositoryChange]:
    """Return the changes of a checkpoint as git has them, by repository."""
    store = context.parts.store
    async with store.reading() as tx:
        await find_workflow(tx, workflow_id)
        newer = await find_checkpoint(tx, workflow_id, checkpoint_id)
        older = None if against in (None, BASE_POINT) else await find_checkpoint(tx, workflow_id, str(against))
    return await compare_checkpoints(
        store, workflow_state(context).git, newer, older,
        base=against == BASE_POINT, patches=patches, max_patches=max_patches,
    )  # fmt: skip


async def verify(context: WebContext, workflow_id: str, *, deep: bool = False) -> VerificationResult:
    """Check that every commit of every checkpoint exists and is protected by a ref, and completed branches."""
    async with context.parts.store.reading() as tx:
        await find_workflow(tx, workflow_id)
    proof = await verify_checkpoints(context.parts.store, workflow_state(context).git, workflow_id, deep=deep)
    problems = [CheckpointDamage(checkpoint_id=one.recorded.checkpoint, what=one.what) for one in proof.problems]
    return VerificationResult(checked=proof.checked, problems=problems)


class _SizeBudget:
    """The number of characters that may still be shown."""

    def __init__(self, characters: int) -> None:
        self._left = characters

    def take(self, text: str | None) -> bool:
        """Reserve room for a text. Returns False if there is not enough."""
        size = len(text or "")
        if size > self._left:
            return False
        self._left -= size
        return True


def repository_diffs(
    changes: Sequence[RepositoryChange], form: DiffForm, max_chars: int = _MAX_PATCH_CHARS
) -> list[RepositoryDiff]:
    """Return changes as the API has them, with patches of so many characters together."""
    room = _SizeBudget(max_chars)
    return [_repository(change, form, room) for change in changes]


def _repository(change: RepositoryChange, form: DiffForm, room: _SizeBudget) -> RepositoryDiff:
    return RepositoryDiff(
        git_id=change.git.id,
        name=change.git.name,
        older=change.older,
        newer=change.newer,
        truncated=len(change.files) > _MAX_FILES,
        files=[_file(file, form, room) for file in change.files[:_MAX_FILES]],
    )


def _file(file: FileDiff, form: DiffForm, room: _SizeBudget) -> ChangedFile:
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
        hunks=parse_hunks(patch or "") if form == "hunks" else [],
    )
