"""The two git directories of a clone, and why there are two.

``repo/.git`` is the bare repository that worktrees belong to. Whoever works in a worktree can write to it: its objects
and refs (they must), but also its configuration, its hooks and its ``info`` folder. ``control`` is the git directory
that our own calls name. Its configuration is ours; its objects and refs are symbolic links into ``repo/.git``. So what
somebody writes into ``repo/.git/config`` reaches their git, and never ours.
"""

from __future__ import annotations

import secrets
import shutil
from typing import TYPE_CHECKING, Final

from kingdom.gitops.errors import CommandFailed
from kingdom.gitops.files import write_file
from kingdom.gitops.runner import Git, Place

if TYPE_CHECKING:
    from pathlib import Path

# Named as in a clone of anybody's: with another name, Claude Code takes no git command in a worktree for read-only.
REPO: Final = "repo/.git"
CONTROL: Final = "control"
_SHARED: Final = ("objects", "refs", "packed-refs", "shallow")
# What may stand in repo/.git/config. Anything else (filters, hooks, aliases, includes, …) is somebody's trap for the
# next person or agent who uses git in a worktree, and the file is put back to what it was.
_HARMLESS: Final = frozenset({
    "core.repositoryformatversion", "core.filemode", "core.bare", "core.symlinks", "core.ignorecase",
    "core.precomposeunicode", "core.logallrefupdates", "extensions.objectformat", "extensions.partialclone",
    "remote.origin.url", "remote.origin.fetch", "remote.origin.promisor", "remote.origin.partialclonefilter",
    "user.name", "user.email",
})  # fmt: skip


async def make_pair(git: Git, folder: Path, *, object_format: str, url: str, partial: str | None) -> None:
    """Make an empty ``repo/.git`` and its ``control`` in ``folder``."""
    repo = folder / REPO
    repo.parent.mkdir()
    await _init(git, repo, object_format)
    place = Place(repo)
    settings = [("remote.origin.url", url), ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")]
    if partial is not None:
        settings += [
            ("core.repositoryformatversion", "1"),
            ("extensions.partialClone", "origin"),
            ("remote.origin.promisor", "true"),
            ("remote.origin.partialclonefilter", partial),
        ]
    for name, value in settings:
        await git.run(place, "config", "--file", str(repo / "config"), name, value)
    (repo / "packed-refs").touch()
    await make_control(git, folder, object_format, (repo / "config").read_bytes())


async def make_control(git: Git, folder: Path, object_format: str, config: bytes) -> None:
    """Make ``control`` beside ``repo/.git``, replacing one that is damaged."""
    fresh = folder / f"{CONTROL}-{secrets.token_hex(4)}"
    await _init(git, fresh, object_format)
    for name in ("objects", "refs"):
        shutil.rmtree(fresh / name)
    for name in _SHARED:
        (fresh / name).symlink_to(f"../{REPO}/{name}")
    (fresh / "config").write_bytes(config)
    if (folder / CONTROL).exists():
        shutil.rmtree(folder / CONTROL)
    fresh.rename(folder / CONTROL)


def control_is_whole(folder: Path) -> bool:
    """Whether ``control`` has its own configuration and leads into ``repo/.git``."""
    control = folder / CONTROL
    try:
        for name in _SHARED:
            if not (control / name).is_symlink():  # git unlinks shallow when a clone is no longer shallow
                (control / name).symlink_to(f"../{REPO}/{name}")
        leads = all(str((control / name).readlink()) == f"../{REPO}/{name}" for name in _SHARED)
        return leads and (control / "HEAD").is_file() and (control / "config").stat().st_size > 0
    except OSError:
        return False


async def restore_config(git: Git, folder: Path) -> bool:
    """Put ``repo/.git/config`` back when it has settings that are not harmless; whether that was needed.

    Call it under the lock of the clone.
    """
    theirs, ours = folder / REPO / "config", folder / CONTROL / "config"
    if theirs.is_file() and theirs.read_bytes() == ours.read_bytes():
        return False
    expected = dict(await _settings(git, ours))
    try:
        harmless = all(
            name in _HARMLESS and expected.get(name, value if name.startswith(("user.", "core.")) else None) == value
            for name, value in await _settings(git, theirs)
        )
    except CommandFailed:
        harmless = False
    if harmless:
        return False
    write_file(theirs, ours.read_bytes(), scratch=folder)
    return True


async def _settings(git: Git, path: Path) -> list[tuple[str, str]]:
    listed = await git.run(Place(path.parent), "config", "--file", str(path), "--no-includes", "--list", "-z")
    pairs = (field.partition("\n") for field in listed.fields)
    return [(name, value) for name, _, value in pairs]


async def _init(git: Git, folder: Path, object_format: str) -> None:
    words = ("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}")
    await git.run(Place(folder), *words)
