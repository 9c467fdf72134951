"""Processes by identity, never by name: a pid alone may since belong to somebody else. Standard library only.

Where there is no ``/proc`` (not Linux), a start time is None and only process groups can be ended.
"""
# ruff: noqa: PTH123, PTH208
# os.*, not pathlib: importing that would be a good part of the shim's start.

from __future__ import annotations

import contextlib
import os
import signal
from typing import Final, NamedTuple

RUN_ID_VARIABLE: Final = "KINGDOM_RUN_ID"  # in the environment of everything a run starts


class Process(NamedTuple):
    """What the kernel says of a process."""

    pid: int
    state: str
    parent: int
    session: int
    start: int  # ticks since boot: with the pid and the boot id, this is one process and no other

    @property
    def alive(self) -> bool:
        """Whether it can still do something: a zombie cannot."""
        return self.state not in "ZXx"


def boot_id() -> str:
    """Which boot of this machine this is; empty where the kernel does not say."""
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def find_process(pid: int) -> Process | None:
    """The process with this pid, if there is one."""
    data = _read(f"/proc/{pid}/stat")
    if not data:
        return None
    # The name in parentheses may itself have spaces and parentheses.
    fields = data[data.rindex(b")") + 2 :].split()
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def all_processes() -> list[Process]:
    """Every process there is."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    return [process for name in names if name.isdigit() and (process := find_process(int(name)))]


def is_running(pid: int, start: int | None) -> bool:
    """Whether exactly this process is still alive."""
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
    """All live processes below ``pid``."""
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
    """Whether a process has exactly this run id in its environment, as far as we may look."""
    return f"{RUN_ID_VARIABLE}={run_id}".encode() in _read(f"/proc/{pid}/environ").split(b"\0")


def processes_of_run(run_id: str) -> list[Process]:
    """Live processes of ours that carry this run id, this process aside."""
    return [
        process
        for process in all_processes()
        if process.alive and process.pid != os.getpid() and has_run_id(process.pid, run_id)
    ]


def send(pid: int, start: int | None, number: int) -> bool:
    """Send a signal to exactly this process. False when it is gone, or not ours to signal."""
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
        # Opened first, looked at then: the handle is of the process we looked at, whoever has its number later.
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
