"""Small disks that a campaign fills."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_BALLAST: Final = "ballast"


class NotPermitted(Exception):
    """This process may not mount file systems."""


@contextmanager
def small_disk(at: Path, megabytes: int) -> Iterator[Path]:
    """A file system of so many megabytes, mounted at ``at`` for as long as the context lasts."""
    at.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "kingdom-chaos", str(at)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotPermitted("there is no mount command here") from None
    if mounted.returncode:
        raise NotPermitted(f"mounting a small tmpfs is not permitted here: {mounted.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Leave no room on a disk for as long as the context lasts."""
    ballast = disk / _BALLAST
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    try:
        piece, size = 1 << 26, 0
        while piece >= 4096:
            try:
                os.posix_fallocate(descriptor, size, piece)
                size += piece
            except OSError:
                piece //= 2
        yield
    finally:
        os.close(descriptor)
        ballast.unlink()
