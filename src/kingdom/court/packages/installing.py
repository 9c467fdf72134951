"""Putting a general into a court, and taking it out.

Whoever looks meanwhile sees the old general or the new one, whole. What is under way lies beside them under a name that
begins with a dot, and the next change sweeps away what a killed one left.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.court.errors import InvalidPackage
from kingdom.court.files import sync_folder
from kingdom.court.packages.checking import check_package
from kingdom.court.packages.loading import MANIFEST, General, load_general

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kingdom.court.home import Home

MAX_BYTES: Final = 5_000_000
MAX_FILES: Final = 500
_LEFT_OUT: Final = {".git", "__pycache__", ".DS_Store"}
_UNDER_WAY: Final = ".changing-"
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


def install_package(
    home: Home, source: Path, *, replace: bool = False, engines: Collection[str] | None = None
) -> General:
    """Copy a general into the court. When anything is wrong, raises :class:`InvalidPackage` and changes nothing.

    One that is already there stays, unless ``replace`` says otherwise. Symbolic links are followed inside the package
    and refused when they lead out of it.
    """
    source = source.resolve()
    if not (source / MANIFEST).is_file():
        raise InvalidPackage(f"{source} is no general: there is no {MANIFEST} in it")
    if source.is_relative_to(home.generals.resolve()):
        raise InvalidPackage(f"{source} is installed already: kingdom general check {source.name} looks at it")
    files = _files_of(source)
    with _changing(home) as workshop:
        copy = workshop / source.name
        for relative in files:
            _copy(source / relative, copy / relative)
        if problems := check_package(copy, engines):
            raise InvalidPackage("\n".join(problem.replace(str(copy), str(source)) for problem in problems))
        for folder, _, _ in os.walk(copy):
            sync_folder(Path(folder))
        target = home.general(source.name)
        if not target.exists():
            copy.rename(target)
        elif replace:
            _exchange(copy, target)
        else:
            raise InvalidPackage(f"{target} is already there: give --replace to put the new one in its place")
        sync_folder(home.generals)
    return load_general(target)


def remove_package(home: Home, name: str) -> None:
    """Take a general out of the court. Its memory, results and workspace stay."""
    folder = home.general(name)
    if not folder.is_dir():
        raise InvalidPackage(
            f"there is no general {name!r} in {home.generals}: kingdom general ls shows those there are"
        )
    with _changing(home) as workshop:
        folder.rename(workshop / name)
        sync_folder(home.generals)


@contextlib.contextmanager
def _changing(home: Home) -> Iterator[Path]:
    """A folder to work in, on the same disk, swept away at the end; one change at a time."""
    home.generals.mkdir(parents=True, exist_ok=True)
    with (home.generals / ".lock").open("a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in home.generals.glob(f"{_UNDER_WAY}*"):
            shutil.rmtree(left, ignore_errors=True)
        workshop = Path(tempfile.mkdtemp(prefix=_UNDER_WAY, dir=home.generals))
        try:
            yield workshop
        finally:
            shutil.rmtree(workshop, ignore_errors=True)


def _files_of(source: Path) -> list[Path]:
    """The files of a package, relative to it."""
    found: list[Path] = []
    size = 0
    for folder, subfolders, names in os.walk(source):
        subfolders[:] = sorted(set(subfolders) - _LEFT_OUT)
        for name in subfolders:
            if (Path(folder) / name).is_symlink():
                raise InvalidPackage(f"{Path(folder) / name}: a link to a folder cannot be installed: copy the folder")
        for name in sorted(set(names) - _LEFT_OUT):
            path = Path(folder) / name
            size += _checked_size(path, source)
            found.append(path.relative_to(source))
            if len(found) > MAX_FILES or size > MAX_BYTES:
                raise InvalidPackage(
                    f"{source} is too large for a general: at most {MAX_FILES} files and {MAX_BYTES:,} bytes"
                )
    return found


def _checked_size(path: Path, source: Path) -> int:
    try:
        real = path.resolve(strict=True)
        found = real.stat()
    except (OSError, RuntimeError) as error:
        raise InvalidPackage(f"{path}: cannot be read ({error})") from None
    if not real.is_relative_to(source):
        raise InvalidPackage(f"{path} is a link that leads out of the package, to {real}: put the file itself there")
    if not stat.S_ISREG(found.st_mode):
        raise InvalidPackage(f"{path}: not a file")
    return found.st_size


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        file.write(source.read_bytes())
        file.flush()
        os.fchmod(file.fileno(), 0o755 if source.stat().st_mode & 0o111 else 0o644)
        os.fsync(file.fileno())


def _exchange(one: Path, other: Path) -> None:
    """Let two folders change places in one step, where the system can; in two steps where it cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(AttributeError):
        if library.renameat2(_AT_FDCWD, bytes(one), _AT_FDCWD, bytes(other), _RENAME_EXCHANGE) == 0:
            return
    aside = one.with_name(f".{one.name}")
    other.rename(aside)
    one.rename(other)
