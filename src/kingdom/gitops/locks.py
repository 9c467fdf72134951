"""Our locks on repositories (``flock``), and the lock files that a killed git leaves behind.

Ours are held on an open file, and git processes inherit them: the kernel releases a lock when the last process that has
the file open ends. git's own locks are files ``*.lock`` that exist while the lock is held; a killed git leaves them.
Such a file is removed only when no process has it open and no git process works in that repository.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.base.locks import is_current, lock_async
from kingdom.gitops.errors import LockBusy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
from contextvars import ContextVar

_PAUSES: Final = (0.002, 0.1)  # seconds between two attempts: the first, and the longest
_PROC: Final = Path("/proc")
_STALE_SECONDS: Final = 600.0  # seconds; used where processes cannot be inspected


# Every git process started while they are held inherits them: one that outlives its caller keeps others out.
held: ContextVar[tuple[int, ...]] = ContextVar("kingdom_git_locks", default=())


@contextlib.asynccontextmanager
async def locked(path: Path, patience: float) -> AsyncIterator[int]:
    """Hold the lock file ``path``. Yields its descriptor. Raises :class:`LockBusy` after ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            await _take(fd, path, deadline)
            if is_current(fd, path):
                break
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # the file was deleted: others lock a new one
    mark = held.set((*held.get(), fd))
    try:
        yield fd
    finally:
        held.reset(mark)
        os.close(fd)  # not LOCK_UN: a git process that inherited the lock and still runs keeps it


async def _take(fd: int, path: Path, deadline: float) -> None:
    if not await lock_async(fd, deadline - time.monotonic(), _PAUSES):
        raise LockBusy(
            f"{path} is held by another process, which did not release it in time: "
            f"does another engine work on this repository? (lslocks shows which process it is)"
        )


def remove_stale_locks(locks: Iterable[Path], places: Iterable[Path]) -> list[Path]:
    """Remove git's lock files whose owner is gone, and return them.

    ``places`` are the folders of the repository and its worktrees. A git process that works in one of them, or has one
    on its command line, may own a lock without having it open.
    """
    found = [lock for lock in locks if lock.is_file() and not lock.is_symlink()]
    if not found:
        return []
    if not (_PROC / "self" / "fd").is_dir():
        stale = [lock for lock in found if _age(lock) > _STALE_SECONDS]
    elif _git_is_running(list(places)):
        stale = []
    else:
        opened = _open_files()
        stale = [lock for lock in found if str(lock) not in opened and str(lock.resolve()) not in opened]
    for lock in stale:
        lock.unlink(missing_ok=True)
    return stale


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime  # compared with the file system's clock
    except FileNotFoundError:
        return 0.0


def _git_is_running(places: list[Path]) -> bool:
    roots = {root for place in places for root in (str(place), str(place.resolve()))}
    for process in _processes():
        try:
            name = (process / "comm").read_text().strip()
            if not name.startswith("git"):
                continue
            words = (process / "cmdline").read_bytes().decode("utf-8", "surrogateescape")
            if not words:
                continue  # a zombie
            at = str((process / "cwd").readlink())
        except OSError:
            continue
        if any(root in words or at == root or at.startswith(root + "/") for root in roots):
            return True
    return False


def _open_files() -> set[str]:
    opened: set[str] = set()
    for process in _processes():
        with contextlib.suppress(OSError):
            for entry in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    opened.add(str(entry.readlink()))
    return opened


def _processes() -> list[Path]:
    return [entry for entry in _PROC.iterdir() if entry.name.isdigit()]
