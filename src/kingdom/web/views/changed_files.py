"""The changed files of a checkpoint in parts, however many they are, and one file in parts, however long it is."""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kingdom.web.envelope import not_found
from kingdom.web.views.checkpoints import HUNK_PATTERN, RepositoryDiff, compare, repository_diffs
from kingdom.web.views.workflow_state import workflow_state

if TYPE_CHECKING:
    from kingdom.web.context import WebContext
    from kingdom.web.views.checkpoints import ChangedFile
    from kingdom.workflow.checkpoints import RepositoryChange

PART_FILES: Final = 50
"""Files in a part of the list."""
PART_LINES: Final = 1000
"""Lines in a part of a file; a browser draws as many at once."""
_MAX_LISTED_BYTES: Final = 256 * 1024
_MAX_PATCH_BYTES: Final = 64 * 1024 * 1024
_MAX_LINE_CHARS: Final = 10_000  # lines of minified code are longer


@dataclass(frozen=True, slots=True)
class FilesPart:
    """Some of the changed files, with their lines."""

    repositories: list[RepositoryDiff]
    """Those that have files in this part, with only these files."""
    first: int
    """The number of the first file, over all repositories."""
    total: int

    @property
    def count(self) -> int:
        """The number of files in this part."""
        return sum(len(one.files) for one in self.repositories)


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some lines of the diff of one file."""

    repository: RepositoryDiff
    file: ChangedFile
    first: int
    """The number of the first line in the diff."""
    count: int
    total: int


async def read_files_part(
    context: WebContext, workflow_id: str, checkpoint_id: str, *, against: str | None = None, first: int = 0
) -> FilesPart:
    """Return the changed files of a checkpoint from a number on."""
    changes = await compare(context, workflow_id, checkpoint_id, against)
    total = sum(len(change.files) for change in changes)
    first = min(first, max(total - 1, 0) // PART_FILES * PART_FILES)
    shown, at = [], 0
    for change in changes:
        chosen = slice(max(first - at, 0), max(first + PART_FILES - at, 0))
        at += len(change.files)
        if part := change.files[chosen]:
            shown.append(await _with_patches(context, replace(change, files=part), _MAX_LISTED_BYTES))
    return FilesPart(await asyncio.to_thread(repository_diffs, shown, "hunks"), first, total)


async def read_file_part(
    context: WebContext,
    workflow_id: str,
    checkpoint_id: str,
    number: int,
    *,
    against: str | None = None,
    first: int = 0,
) -> FilePart:
    """Return lines of the diff of one file. Files are numbered as by :func:`read_files_part`."""
    at = 0
    for change in await compare(context, workflow_id, checkpoint_id, against):
        if at <= number < at + len(change.files):
            one = replace(change, files=[change.files[number - at]])
            return await asyncio.to_thread(_file_part, await _with_patches(context, one, _MAX_PATCH_BYTES), first)
        at += len(change.files)
    raise not_found("WFL", "changed file", str(number))


async def _with_patches(context: WebContext, change: RepositoryChange, max_patch: int) -> RepositoryChange:
    git = workflow_state(context).git
    files = await git.patches(change.git, change.older, change.newer, change.files, max_patch=max_patch)
    return replace(change, files=files)


def _file_part(change: RepositoryChange, first: int) -> FilePart:
    (file,) = change.files
    total = _count_lines(file.patch or "")
    first = min(first, max(total - 1, 0) // PART_LINES * PART_LINES)
    part = replace(file, patch=None if file.patch is None else patch_part(file.patch, first, PART_LINES))
    (found,) = repository_diffs([replace(change, files=[part])], "hunks", PART_LINES * (_MAX_LINE_CHARS + 2))
    return FilePart(found, found.files[0], first, min(PART_LINES, total - first), total)


def _count_lines(patch: str) -> int:
    """Count the lines of all hunks, with their headings."""
    begin = 0 if patch.startswith("@@ ") else patch.find("\n@@ ") + 1
    return 0 if begin == 0 and not patch.startswith("@@ ") else patch.count("\n", begin)


def patch_part(patch: str, first: int, count: int) -> str:
    """Return ``count`` lines of the hunks of a patch, from a number on. A hunk that is cut gets its own heading."""
    shown: list[str] = []
    old = new = 0
    heading, at = "", -1
    for line in io.StringIO(patch):  # not split: there may be a million
        text = line.rstrip("\n")
        head = HUNK_PATTERN.match(text) if text.startswith("@@ ") else None
        if head is not None:
            old, new, heading = int(head[1]), int(head[3]), head[5]
        elif at < 0:
            continue  # before the first hunk
        at += 1
        if at >= first + count:
            break
        if at >= first:
            if not shown and head is None:
                shown.append(f"@@ -{old},0 +{new},0 @@ {heading}")
            shown.append(text if len(text) <= _MAX_LINE_CHARS else f"{text[:_MAX_LINE_CHARS]}…")
        if head is None:
            old += text[:1] in ("-", " ")
            new += text[:1] in ("+", " ")
    return "\n".join(shown)
