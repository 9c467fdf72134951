"""What changed between two commits: files, counts, patches, and the commits in between."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kingdom.gitops.commits import Commit, read_commits
from kingdom.gitops.errors import InvalidInput
from kingdom.gitops.names import check_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.gitops.repository import Clone

STATUS: Final = {"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "C": "copied", "T": "type changed"}
_AT_ONCE: Final = 4


@dataclass(frozen=True)
class FileDiff:
    """One changed file. ``added`` and ``removed`` count lines; both are None for a binary file."""

    path: str
    status: str
    """``added``, ``modified``, ``deleted``, ``renamed``, ``copied`` or ``type changed``."""
    old_path: str | None
    """Where a renamed or copied file was."""
    old_mode: str
    new_mode: str
    added: int | None
    removed: int | None
    patch: str | None = None
    """The change in unified form, when it was asked for and the file is not binary."""
    truncated: bool = False
    """Whether the patch was cut off at the size limit."""

    @property
    def binary(self) -> bool:
        """Whether git takes it for binary, so that there is no patch."""
        return self.added is None


async def diff(
    clone: Clone,
    older: str,
    newer: str,
    *,
    patches: bool = False,
    max_patch: int = 256 * 1024,
    max_patches: int | None = None,
) -> list[FileDiff]:
    """What changed from one commit to another, file by file; with ``patches`` each up to ``max_patch`` bytes.

    Files behind the first ``max_patches`` get none, and count as truncated.
    """
    check_hash("commit", older)
    check_hash("commit", newer)
    words = ("diff-tree", "-r", "-z", "-M", "--raw", "--numstat", "--no-ext-diff", "--no-textconv", "--no-color")
    fields = (await clone.run(*words, "--ignore-submodules=none", older, newer)).fields
    files = list(_parse(fields))
    if not patches:
        return files
    limit = asyncio.Semaphore(_AT_ONCE)

    async def with_patch(file: FileDiff) -> FileDiff:
        async with limit:
            return await _with_patch(clone, older, newer, file, max_patch)

    shown = await asyncio.gather(*map(with_patch, files[:max_patches]))
    left = [] if max_patches is None else [replace(file, truncated=not file.binary) for file in files[max_patches:]]
    return [*shown, *left]


async def log(clone: Clone, older: str | None, newer: str, *, limit: int = 1000) -> list[Commit]:
    """The commits of ``newer`` that ``older`` does not have, newest first."""
    if limit < 1:
        raise InvalidInput(f"limit {limit}: at least one commit is needed")
    shown = [check_hash("commit", newer), *([f"^{check_hash('commit', older)}"] if older else [])]
    return await read_commits(clone, *shown, limit=limit)


def _parse(fields: list[str]) -> Iterator[FileDiff]:
    """Raw records begin with a colon; the numstat records follow them, in the same order."""
    raw: list[tuple[list[str], str | None, str]] = []
    at = 0
    while at < len(fields) and fields[at].startswith(":"):
        about = fields[at][1:].split()
        two = about[4][0] in "RC"
        raw.append((about, fields[at + 1] if two else None, fields[at + 2 if two else at + 1]))
        at += 3 if two else 2
    for about, old_path, path in raw:
        added, removed, name = fields[at].split("\t", 2)
        at += 1 if name else 3
        yield FileDiff(
            path,
            STATUS.get(about[4][0], about[4]),
            old_path,
            about[0],
            about[1],
            None if added == "-" else int(added),
            None if removed == "-" else int(removed),
        )


async def _with_patch(clone: Clone, older: str, newer: str, file: FileDiff, room: int) -> FileDiff:
    if file.binary:
        return file
    words = ("diff-tree", "-r", "-p", "-M", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index")
    paths = [path for path in (file.old_path, file.path) if path is not None]
    shown = await clone.run(*words, older, newer, "--", *paths, truncate_at=room)
    text = shown.out.decode("utf-8", "replace")
    return FileDiff(
        file.path, file.status, file.old_path, file.old_mode, file.new_mode, file.added, file.removed, text,
        shown.truncated,
    )  # fmt: skip
