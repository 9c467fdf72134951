"""Files and folders: written whole or not at all, walked without following links."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from kingdom.base.files import create_file

if TYPE_CHECKING:
    from collections.abc import Iterable


def write_file(path: Path, content: bytes, *, scratch: Path | None = None, modified_ns: int | None = None) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new one.

    The unfinished file is made in ``scratch`` (the same folder by default; it must be on the same file system).
    ``modified_ns`` is its time of modification, when that is not to be now.
    """
    fresh = (scratch or path.parent) / f".{path.name.lstrip('.')}-{secrets.token_hex(4)}"
    create_file(fresh, content)
    if modified_ns is not None:
        os.utime(fresh, ns=(modified_ns, modified_ns))
    fresh.replace(path)


def real_folder(path: Path) -> bool:
    """Whether ``path`` is a folder and neither it nor anything above it is a link."""
    return path.is_dir() and not path.is_symlink() and path.resolve() == path


def files_below(root: Path, relative: str) -> list[str]:
    """Every file and link below ``root/relative``, as paths relative to ``root``, but for the inside of ``.git``."""
    top = root / relative
    if top.is_symlink() or not top.is_dir():
        return [relative.rstrip("/")]
    found: list[str] = []
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name != ".git"]
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in (*files, *links) if name != ".git"]  # noqa: PTH118
    return found


def sort_out(root: Path, paths: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
    """Which of the paths are files or links, which are no longer there, and which are folders.

    What lies behind a link, and what became a socket or a pipe, is not there.
    """
    there: list[str] = []
    gone: list[str] = []
    folders: list[str] = []
    real = {"": True}  # folders that were looked at

    def is_real(folder: str) -> bool:
        if folder not in real:
            above = folder.rpartition("/")[0]
            path = root / folder
            real[folder] = is_real(above) and path.is_dir() and not path.is_symlink()
        return real[folder]

    for path in paths:
        mode = _mode(root / path) if is_real(path.rpartition("/")[0]) else 0
        kind = folders if stat.S_ISDIR(mode) else there if stat.S_ISREG(mode) or stat.S_ISLNK(mode) else gone
        kind.append(path)
    return there, gone, folders


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def in_the_way(root: Path, relative: str) -> str | None:
    """What on disk would be replaced by writing ``relative``: that path, or a file or link above it; or None."""
    path = root
    for part in relative.split("/"):
        path = path / part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            return str(path.relative_to(root))
        if not path.exists():
            return None
    return relative
