"""Files of a worktree: written atomically, and listed without following links."""

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
    """Replace a file atomically: a reader, and a crash, finds the old content or the new.

    The temporary file is created in ``scratch``, which must be on the same file system (default: the same folder).
    ``modified_ns`` sets the modification time.
    """
    fresh = (scratch or path.parent) / f".{path.name.lstrip('.')}-{secrets.token_hex(4)}"
    create_file(fresh, content)
    if modified_ns is not None:
        os.utime(fresh, ns=(modified_ns, modified_ns))
    fresh.replace(path)


def real_folder(path: Path) -> bool:
    """Tell whether ``path`` is a folder, and neither it nor a folder above it is a link."""
    return path.is_dir() and not path.is_symlink() and path.resolve() == path


def files_below(root: Path, relative: str) -> list[str]:
    """List the files and links below ``root/relative``, relative to ``root``, without the content of ``.git``."""
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
    """Split paths into files and links, missing paths, and folders.

    A path behind a link, a socket and a pipe count as missing.
    """
    there: list[str] = []
    gone: list[str] = []
    folders: list[str] = []
    real = {"": True}  # folders already checked

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
    """Return the path that writing ``relative`` would replace: itself, or a file or link above it; or None."""
    path = root
    for part in relative.split("/"):
        path = path / part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            return str(path.relative_to(root))
        if not path.exists():
            return None
    return relative
