"""The checks of ``doctor`` for a bus in a directory."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Final

from kingdom.base.files import remove_abandoned
from kingdom.base.filesystems import check_filesystem
from kingdom.bus.delivery import Check
from kingdom.bus.errors import BusError
from kingdom.bus.transports.files.layout import MARKER, StreamLock, StreamPaths, check_version, list_streams

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOW_BYTES: Final = 256 << 20
_LOW_INODES: Final = 10_000
_LARGE_FOLDER: Final = 256 << 20  # bytes of the directory itself: millions of names
_LOCK_WAIT: Final = 2.0


def examine(root: str) -> list[Check]:
    """Check the directory of a bus and each of its streams."""
    try:
        check_version(root)
    except (BusError, OSError) as error:
        return [Check("layout", "error", str(error))]
    checks = [Check("layout", "ok", f"{root} is set up")]
    checks.append(Check("file system", *check_filesystem(root)))
    checks += _room(root)
    checks += _case(root)
    checks += _notifications()
    remove_abandoned(root)
    for stream in list_streams(root):
        checks += _stream(root, stream)
    return checks


def _room(root: str) -> Iterator[Check]:
    found = os.statvfs(root)
    free = found.f_bavail * found.f_frsize
    # Some file systems allocate inodes on demand and report none.
    if free < _LOW_BYTES or (found.f_files > 0 and found.f_favail < _LOW_INODES):
        yield Check(
            "room",
            "error" if free < _LOW_BYTES // 16 else "warning",
            f"{free >> 20:,} MB and {found.f_favail:,} files are left",
            "purge what is done (kingdom bus purge), or make room",
        )
    else:
        yield Check("room", "ok", f"{free >> 20:,} MB free")


def _case(root: str) -> Iterator[Check]:
    if os.path.exists(f"{root}/{MARKER.upper()}"):
        yield Check(
            "letter case",
            "warning",
            "this file system ignores letter case: ids that differ only by case collide",
            "use ids in one case, such as the default ones",
        )


def _notifications() -> Iterator[Check]:
    if not sys.platform.startswith("linux"):
        yield Check("wake-up", "warning", "no inotify on this system: workers poll")
        return
    limits = {}
    for name in ("max_user_watches", "max_user_instances"):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/sys/fs/inotify/{name}", encoding="ascii") as file:
            limits[name] = int(file.read())
    if limits.get("max_user_watches", 8192) < 1024 or limits.get("max_user_instances", 128) < 64:
        yield Check("wake-up", "warning", f"few inotify watches: {limits}", "raise fs.inotify.max_user_watches")
    else:
        yield Check("wake-up", "ok", "inotify")


def _stream(root: str, stream: str) -> Iterator[Check]:
    paths = StreamPaths(root, stream)
    guard = StreamLock(paths.lock, _LOCK_WAIT, paths.make)
    try:
        with guard.held():
            paths.load_options()
            paths.make()
            leftover = remove_abandoned(paths.home)
    except (BusError, OSError) as error:
        yield Check(f"{stream}: lock", "error", str(error))
        return
    finally:
        guard.close()
    yield Check(f"{stream}: lock", "ok", "can be taken")
    if leftover:
        yield Check(f"{stream}: temporary files", "ok", f"removed {leftover} of dead publishers")
    devices = {os.stat(path).st_dev for path in (paths.home, *paths.states.values(), paths.invalid)}
    if len(devices) > 1:
        yield Check(
            f"{stream}: one file system",
            "error",
            f"the state directories of {paths.home} are on different file systems: a file cannot be renamed across",
            "put them on one",
        )
    invalid = [name for name in os.listdir(paths.invalid) if not name.endswith(".reason")]
    if invalid:
        yield Check(
            f"{stream}: invalid files",
            "warning",
            f"{len(invalid)} in {paths.invalid}, such as {invalid[0]}",
            "the .reason file of each says why; repair it and move it to pending, or delete it",
        )
    for status, path in paths.states.items():
        if os.stat(path).st_size > _LARGE_FOLDER:
            yield Check(f"{stream}: {status}", "warning", f"{path} holds millions of files", "purge more often")
