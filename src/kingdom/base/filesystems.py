"""The type of the file system that a path is on, and whether a queue may be kept there."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, Literal, NamedTuple

# Locks, renames and notifications of one machine do not reach another one that mounts the same file system.
_NETWORK: Final = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs"),
        *("gpfs", "fuse.sshfs", "fuse.s3fs", "fuse.glusterfs"),
    )
)
_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})


class FilesystemCheck(NamedTuple):
    """Whether a queue may be kept on a file system, why, and what to do about it."""

    status: Literal["ok", "warning", "error"]
    detail: str
    hint: str = ""


def check_filesystem(path: str) -> FilesystemCheck:
    """Check whether events under ``path`` are safe: on a local file system that survives a restart."""
    kind = filesystem_type(path)
    if kind is None:
        return FilesystemCheck("ok", "its type is unknown on this system; it must be a local one")
    if kind in _NETWORK:
        return FilesystemCheck(
            "error",
            f"{path} is on {kind}: locks, shared memory and notifications do not work across machines, "
            "and events can be lost or damaged",
            "move it to a local disk, or use postgresql: for several machines",
        )
    if kind in _VOLATILE:
        return FilesystemCheck("warning", f"{path} is on {kind}: events do not survive a restart of the machine")
    return FilesystemCheck("ok", f"{kind}, local")


def filesystem_type(path: str, mounts: str = "/proc/self/mountinfo") -> str | None:
    """Return the kernel's name for the file system that ``path`` is on; None where it cannot be found out."""
    real, best, kind = str(Path(path).resolve()), "", None
    with contextlib.suppress(OSError), Path(mounts).open(encoding="utf-8", errors="replace") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            point = before.split()[4].replace("\\040", " ")
            if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
                best, kind = point, after.split()[0]
    return kind
