"""Which file systems a queue may lie on."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from kingdom.bus.delivery import Check

# Where the locks, renames and notifications of one machine do not hold for another.
_NETWORK: Final = frozenset(
    (
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "ncpfs",
            "9p",
            "afs",
            "ceph",
            "glusterfs",
            "lustre",
            "beegfs",
            "gpfs",
        ),
        *("fuse.sshfs", "fuse.s3fs", "fuse.glusterfs"),
    )
)
_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})


def filesystem_check(path: str) -> Check:
    """Judge where ``path`` lies, for the doctors of transports that keep files."""
    kind = filesystem_type(path)
    if kind is None:
        return Check("file system", "ok", "its kind cannot be told on this system; it must be a local one")
    if kind in _NETWORK:
        return Check(
            "file system",
            "error",
            f"{path} is on {kind}: locks, shared memory and notifications do not work across machines, "
            "and events can be lost or damaged",
            "move it to a local disk, or use postgresql: for several machines",
        )
    if kind in _VOLATILE:
        return Check("file system", "warning", f"{path} is on {kind}: events do not survive a restart of the machine")
    return Check("file system", "ok", f"{kind}, local")


def filesystem_type(path: str, mounts: str = "/proc/self/mountinfo") -> str | None:
    """The kind of file system a path is on, as the kernel names it; None where that cannot be told."""
    real, best, kind = str(Path(path).resolve()), "", None
    with contextlib.suppress(OSError), Path(mounts).open(encoding="utf-8", errors="replace") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            point = before.split()[4].replace("\\040", " ")
            if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
                best, kind = point, after.split()[0]
    return kind
