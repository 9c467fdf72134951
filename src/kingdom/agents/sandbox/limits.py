"""What a confined run may use up: memory, processes, open files, the size of a file, what it writes to disks.

The kernel enforces them: resource limits for each process, and a control group for all of them together where we may
make one (as root, version 1 or 2). The shim checks the sums too, so that a run that exceeds one ends with its name.
Standard library only and few imports: the shim imports it.
"""
# ruff: noqa: PTH102, PTH106, PTH110, PTH123

from __future__ import annotations

import contextlib
import errno
import os
import resource
import time

TYPE_CHECKING = False  # not the one of typing: importing that would take a fifth of the start of a shim
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

MEMORY: Final = "memory_bytes"
PROCESSES: Final = "processes"
FILE_SIZE: Final = "file_bytes"
DISK: Final = "disk_bytes"
OPEN_FILES: Final = "open_files"
CHECK_SECONDS: Final = 1.0
DEFAULTS: Final = {
    MEMORY: 8 * 1024**3,
    PROCESSES: 1000,
    FILE_SIZE: 4 * 1024**3,
    DISK: 32 * 1024**3,
    OPEN_FILES: 16384,
}
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_ROOT: Final = "/sys/fs/cgroup"
_PREFIX: Final = "kingdom-run-"
_REMOVE_SECONDS: Final = 5.0  # how long a group that still has a process is tried
_REMOVE_INTERVAL: Final = 0.01
# The folders below the root, and the file with the limit of each, in both versions of control groups.
_GROUPS: Final = (
    (f"{_ROOT}/memory", "memory.limit_in_bytes", MEMORY),
    (f"{_ROOT}/pids", "pids.max", PROCESSES),
    (_ROOT, "memory.max", MEMORY),
    (_ROOT, "pids.max", PROCESSES),
)
# Where the kernel counts how often a limit was met.
_EVENTS: Final = (
    ("pids.events", "max", PROCESSES),
    ("memory.events", "oom_kill", MEMORY),
    ("memory.oom_control", "oom_kill", MEMORY),
)
_NEARLY: Final = 0.95  # of the processes: at the limit itself the kernel refuses to start another


def limit_process(limits: Mapping[str, int]) -> None:
    """Set the resource limits of this process and of those it will start."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: limits[FILE_SIZE],
        resource.RLIMIT_NOFILE: limits[OPEN_FILES],
        resource.RLIMIT_NPROC: limits[PROCESSES],  # counted in the user namespace of the run; root is exempt
    }
    for kind, value in wanted.items():
        _, most = resource.getrlimit(kind)
        least = value if most == resource.RLIM_INFINITY else min(value, most)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (least, least))


def make_groups(run_id: str, limits: Mapping[str, int]) -> list[str]:
    """Make control groups for a run, as far as we may, and return their folders."""
    made = []
    for root, file, key in _GROUPS:
        folder = f"{root}/{_PREFIX}{run_id}"
        # Version 1 has a folder for each controller; its root has no limits.
        if not os.path.exists(f"{root}/cgroup.procs") or (root == _ROOT and os.path.exists(f"{_ROOT}/memory")):
            continue
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
            _write(f"{folder}/{file}", str(limits[key]))
            made.append(folder)
    return list(dict.fromkeys(made))


def join_groups(folders: Sequence[str]) -> None:
    """Move this process into control groups."""
    for folder in folders:
        with contextlib.suppress(OSError):
            _write(f"{folder}/cgroup.procs", str(os.getpid()))


def remove_groups(run_id: str) -> None:
    """Remove the control groups of a run that has ended. Safe to call twice, and when there are none.

    A group is busy until its last process is gone: the child of a shim that was killed takes a moment to see it.
    """
    deadline = time.monotonic() + _REMOVE_SECONDS
    for root in dict.fromkeys(root for root, _, _ in _GROUPS):
        while _is_busy(f"{root}/{_PREFIX}{run_id}") and time.monotonic() < deadline:
            time.sleep(_REMOVE_INTERVAL)


def _is_busy(folder: str) -> bool:
    """Remove a control group; return whether it has processes, so that it has to be tried again."""
    try:
        os.rmdir(folder)
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def met(groups: Sequence[str], limits: Mapping[str, int]) -> str | None:
    """Return which limit the kernel had to enforce in control groups, or their processes exceed; None if none."""
    for folder in groups:
        for file, word, key in _EVENTS:
            if _counter(f"{folder}/{file}", word):
                return key
    return DISK if sum(map(_written_bytes, _members(groups[0]))) > limits[DISK] else None


def exceeded(pids: Sequence[int], limits: Mapping[str, int]) -> str | None:
    """Return which limit the processes of a run exceed together, where there is no control group; None if none."""
    if len(pids) >= _NEARLY * limits[PROCESSES]:
        return PROCESSES
    if sum(map(_resident_bytes, pids)) > limits[MEMORY]:
        return MEMORY
    return DISK if sum(map(_written_bytes, pids)) > limits[DISK] else None


def _members(group: str) -> list[int]:
    try:
        with open(f"{group}/cgroup.procs") as file:
            return [int(line) for line in file]
    except (OSError, ValueError):
        return []


def _counter(path: str, word: str) -> int:
    """Return a number in a file of lines with a word and a number each; 0 if it is not there."""
    try:
        with open(path) as file:
            found = dict(line.split() for line in file)
    except (OSError, ValueError):
        return 0
    return int(found.get(word, 0))


def describe(name: str) -> str | None:
    """Return in words which limit was exceeded; None for another name."""
    return {
        MEMORY: "it used more memory than it may",
        PROCESSES: "it started more processes than it may",
        FILE_SIZE: "it wrote a larger file than it may",
        DISK: "it wrote more to the disk than it may",
    }.get(name)


def _resident_bytes(pid: int) -> int:
    """Return the memory of a process, without pages that it shares with others."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared = map(int, file.read().split()[:3])
    except (OSError, ValueError):
        return 0
    return max(0, resident - shared) * _PAGE_BYTES


def _written_bytes(pid: int) -> int:
    """Return what a process and its children that have ended wrote to disks, without what was deleted at once."""
    counted = {"write_bytes:": 1, "cancelled_write_bytes:": -1}
    total = 0
    try:
        with open(f"/proc/{pid}/io") as file:
            for line in file:
                name, _, number = line.partition(" ")
                total += counted.get(name, 0) * int(number)
    except (OSError, ValueError):
        return 0
    return max(0, total)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
