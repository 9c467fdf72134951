"""Find and signal processes by identity: a pid alone may have been reused. Standard library only.

Without ``/proc`` (not Linux), the start time is None and only process groups can be signalled.
"""
# ruff: noqa: PTH123, PTH208
# os.*, not pathlib: importing it would take a large part of the shim's start.

from __future__ import annotations

import contextlib
import os
import signal

TYPE_CHECKING = False  # not the one of typing: importing that would take a fifth of the start of a shim
if TYPE_CHECKING:
    from typing import Final

RUN_ID_VARIABLE: Final = "KINGDOM_RUN_ID"  # in the environment of everything a run starts


class Process:
    """A process as ``/proc/<pid>/stat`` shows it."""

    __slots__ = ("parent", "pid", "session", "start", "state")

    def __init__(self, pid: int, state: str, parent: int, session: int, start: int) -> None:
        """``start`` is in ticks since boot: it identifies a process together with pid and boot id."""
        self.pid = pid
        self.state = state
        self.parent = parent
        self.session = session
        self.start = start

    @property
    def alive(self) -> bool:
        """Whether it runs; a zombie does not."""
        return self.state not in "ZXx"


def boot_id() -> str:
    """Return the id of this boot of the machine; empty if the kernel has none."""
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def find_process(pid: int) -> Process | None:
    """Return the process with this pid, or None."""
    data = _read(f"/proc/{pid}/stat")
    if not data:
        return None
    # The name in parentheses may contain spaces and parentheses.
    fields = data[data.rindex(b")") + 2 :].split()
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def all_processes() -> list[Process]:
    """Return every process of the machine."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    return [process for name in names if name.isdigit() and (process := find_process(int(name)))]


def is_running(pid: int, start: int | None) -> bool:
    """Tell whether exactly this process is still alive."""
    process = find_process(pid)
    if process is not None:
        return process.alive and start in (None, process.start)
    if os.path.isdir("/proc/self"):  # noqa: PTH112
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def descendants(pid: int) -> list[Process]:
    """Return all live descendants of ``pid``."""
    children: dict[int, list[Process]] = {}
    for process in all_processes():
        children.setdefault(process.parent, []).append(process)
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += [process for process in below if process.alive]
        waiting += [process.pid for process in below]
    return found


def has_run_id(pid: int, run_id: str) -> bool:
    """Tell whether a process has this run id in its environment, if we may read it."""
    return f"{RUN_ID_VARIABLE}={run_id}".encode() in _read(f"/proc/{pid}/environ").split(b"\0")


def processes_of_run(run_id: str) -> list[Process]:
    """Return the live processes with this run id, except this process."""
    return [
        process
        for process in all_processes()
        if process.alive and process.pid != os.getpid() and has_run_id(process.pid, run_id)
    ]


def send(pid: int, start: int | None, number: int) -> bool:
    """Send a signal to exactly this process. Returns False when it is gone, or we may not signal it."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError) as error:
        if isinstance(error, ProcessLookupError) or not is_running(pid, start):
            return False
        with contextlib.suppress(OSError):
            os.kill(pid, number)
            return True
        return False
    try:
        # Opened before the check: the handle refers to the process that was checked, even if its pid is reused.
        if not is_running(pid, start):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
