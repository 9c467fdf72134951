"""Try a repository before it is used: can it be reached, and can agents work in it?

Over a network only the newest commit of the default branch is fetched, without the contents of its files.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.base.text import one_line
from kingdom.gitops.errors import CommandFailed, CommandTimedOut, RemoteFailed, RepositoryRefused
from kingdom.gitops.names import check_url
from kingdom.gitops.repository import Clone, make_git_dirs
from kingdom.gitops.runner import GitLocation, GitRunner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.gitops.names import RepositoryUrl

_TRY_SECONDS: Final = 120.0
_PROBE: Final = "refs/kingdom/probe"
_SUBMODULE_MODE: Final = "160000"
_MAX_ATTRIBUTE_FILES: Final = 20  # of a remote, each is fetched alone
_MAX_NAMED: Final = 3
_MAX_NAME_CHARS: Final = 80
_lfs_patterns = re.compile(rb"^[ \t]*([^#\s]\S*)[ \t].*\bfilter=lfs\b", re.MULTILINE).findall


@dataclass(frozen=True)
class Omitted:
    """What a worktree of a commit lacks."""

    submodules: tuple[str, ...] = ()
    """Paths of submodules: their folders are empty."""
    lfs: tuple[str, ...] = ()
    """Patterns of files in Git LFS: there are pointers in their place."""


async def check_repository(git: GitRunner, url: str, *, allow_local: bool = False) -> None:
    """Raise :class:`RepositoryRefused` if a repository cannot be read, or uses what is not supported.

    Not supported are submodules (their folders would be empty) and files in Git LFS (agents would see pointers, and
    checkpoints would hold what should be in LFS). An empty repository is fine.
    """
    remote = check_url(url, allow_local=allow_local)
    try:
        if remote.protocol == "file":
            omitted = await _look(git, _local_place(remote), "HEAD")
        else:
            omitted = await _look_at_remote(git, remote)
    except RemoteFailed as error:
        raise RepositoryRefused(f"{remote.text} cannot be read: {error.advice} (git: {_said(error)})") from error
    except CommandTimedOut as error:
        raise RepositoryRefused(f"{remote.text} cannot be read: no answer within {_TRY_SECONDS:g} s") from error
    except CommandFailed as error:
        raise RepositoryRefused(f"{remote.text} cannot be read (git: {_said(error)})") from error
    if omitted.submodules:
        raise RepositoryRefused(
            f"{remote.text} has submodules ({some_names(omitted.submodules)}), which are not supported: "
            "their folders would be empty"
        )
    if omitted.lfs:
        raise RepositoryRefused(
            f"{remote.text} has files in Git LFS ({some_names(omitted.lfs)}), which are not supported: agents would "
            "see pointers instead of the files, and commits would not go to LFS"
        )


async def find_omitted(clone: Clone, commit: str) -> Omitted:
    """Return what a worktree of a commit lacks."""
    return await _look(clone.git, clone.place(), commit)


def some_names(names: Sequence[str]) -> str:
    """Return the first of some names, each on one line, and how many more there are."""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(one_line(name, _MAX_NAME_CHARS) for name in names[:_MAX_NAMED]) + more


async def _look_at_remote(git: GitRunner, remote: RepositoryUrl) -> Omitted:
    with tempfile.TemporaryDirectory(prefix="kingdom-probe-") as folder:
        place = GitLocation(Path(folder), remote=remote)
        words = ("ls-remote", "--end-of-options", remote.text, "HEAD")
        head = (await git.run_remote(place, *words, limit=_TRY_SECONDS)).text.split()
        if not head:
            return Omitted()  # empty, or without a default branch
        object_format = "sha256" if len(head[0]) == 64 else "sha1"
        await make_git_dirs(git, Path(folder), object_format=object_format, url=remote.text, partial="blob:none")
        clone = Clone(git, remote, Path(folder), "blob:none")
        options = ("--quiet", "--depth=1", "--filter=blob:none", "--no-tags", "--no-write-fetch-head")
        fetched = GitLocation(clone.control, remote=remote)
        await git.run_remote(fetched, "fetch", *options, "--", "origin", f"+HEAD:{_PROBE}", limit=_TRY_SECONDS)
        return await _look(git, clone.place(), _PROBE)


def _local_place(remote: RepositoryUrl) -> GitLocation:
    folder = Path(remote.text.removeprefix("file://"))
    inside = folder / ".git"
    return GitLocation(inside if inside.exists() else folder)


async def _look(git: GitRunner, place: GitLocation, commit: str) -> Omitted:
    if (await git.run(place, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}", ok=(0, 1))).code:
        return Omitted()
    listed = await git.run(place, "ls-tree", "-r", "-z", "--full-tree", commit)
    entries = [entry.partition("\t") for entry in listed.fields]
    submodules = tuple(path for about, _, path in entries if about.startswith(_SUBMODULE_MODE))
    found = [(path.count("/"), about.split()[2]) for about, _, path in entries if path.endswith(".gitattributes")]
    if not found:
        return Omitted(submodules)
    asked = "".join(f"{name}\n" for _, name in sorted(found)[:_MAX_ATTRIBUTE_FILES]).encode()
    read = await git.run(place, "cat-file", "--batch", stdin=asked)
    return Omitted(submodules, tuple(pattern.decode("utf-8", "replace") for pattern in _lfs_patterns(read.out)))


def _said(error: CommandFailed) -> str:
    """Return the line that says most: the first that git calls fatal."""
    lines = [line.strip() for line in error.said.splitlines() if line.strip()] or ["nothing"]
    return next((line for line in lines if line.startswith("fatal:")), lines[-1]).removeprefix("fatal: ")
