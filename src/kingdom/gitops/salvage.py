"""Taking over what a damaged clone still holds: branches of workflows, checkpoints, rescues, and its worktrees.

The damaged repository is read as files. git is never run in it: its configuration may be somebody else's.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Final

from kingdom.gitops.errors import CommandFailed, GitError
from kingdom.gitops.names import check_ref, is_hash

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kingdom.gitops.repository import Clone

_OURS: Final = ("refs/kingdom/", "refs/heads/kingdom/")
_is_object_file = re.compile(r"(?:[0-9a-f]{2}/[0-9a-f]{38,62}|pack/pack-[0-9a-f]+\.(?:pack|idx|rev))\Z").match


async def salvage(clone: Clone, damaged: Sequence[Path]) -> tuple[str, ...]:
    """Copy the objects of damaged repositories, and our refs of the first of them, into a new clone.

    Returns the refs that could not be taken over.
    """
    first, *_ = damaged
    wanted = _refs(first)
    for broken in damaged if wanted else ():
        _copy_objects(broken / "objects", clone.repo / "objects")
    if (first / "worktrees").is_dir():
        shutil.copytree(first / "worktrees", clone.repo / "worktrees", symlinks=True)
    return tuple([name for name, value in sorted(wanted.items()) if not await _taken_over(clone, name, value)])


async def _taken_over(clone: Clone, name: str, value: str) -> bool:
    if await clone.lacks(value):
        return False
    try:
        await clone.update_refs([f"create {name} {value}"])
    except CommandFailed as error:
        if "exists; cannot create" not in error.said:
            raise
        return False  # somebody made refs that cannot be side by side, as a/b beside a
    return True


def _refs(broken: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        packed = (broken / "packed-refs").read_text("utf-8", "replace")
    except OSError:
        packed = ""
    for line in packed.splitlines():
        value, _, name = line.partition(" ")
        _note(found, name, value)
    for prefix in _OURS:
        for folder, _, files in os.walk(broken / prefix):
            for file in files:
                path = broken / folder / file
                try:
                    value = path.read_text("utf-8", "replace").strip()
                except OSError:
                    continue
                _note(found, path.relative_to(broken).as_posix(), value)
    return found


def _note(found: dict[str, str], name: str, value: str) -> None:
    if not name.startswith(_OURS) or not is_hash(value):
        return
    try:
        found[check_ref("ref", name)] = value
    except GitError:
        return


def _copy_objects(source: Path, target: Path) -> None:
    """Copy what is not there yet. Only names of objects and packs: no alternates, no helper files."""
    for folder, _, files in os.walk(source):
        for file in files:
            path = source / folder / file
            name = path.relative_to(source).as_posix()
            if _is_object_file(name) and not path.is_symlink() and not (target / name).exists():
                (target / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(path, target / name)
