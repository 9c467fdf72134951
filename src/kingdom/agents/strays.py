"""Ending what is left of a run whose shim is gone: only what carries the run's own mark, or is certainly its own."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kingdom.agents.processes import Process, bearing, descendants, look_at_all, send

_PATIENCE: Final = 5.0  # seconds until we say that something cannot be ended
_AGAIN: Final = 0.05


def end_strays(run_id: str, session: int | None = None, outputs: Sequence[Path] | None = None) -> list[int]:
    """Kill every process of a run and wait until none is left. Returns the pids of those that cannot be ended.

    ``session`` is the agent's: members of it that have lost the mark (``env -i``) are ended too. Who has not watched
    the run to this moment also gives its ``outputs``: the number of the session may be another's by now, but a member
    that writes to a file of the run is the run's.
    """
    deadline = time.monotonic() + _PATIENCE
    while strays := _find(run_id, session, outputs):
        for process in strays:
            send(process.pid, process.start, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return [process.pid for process in strays]
        time.sleep(_AGAIN)
    return []


def _find(run_id: str, session: int | None, outputs: Sequence[Path] | None) -> list[Process]:
    found = {process.pid: process for process in bearing(run_id)}
    if session is not None:
        for process in look_at_all():
            if process.session == session and process.alive and (outputs is None or writes(process.pid, outputs)):
                found[process.pid] = process
    for pid in list(found):
        found |= {process.pid: process for process in descendants(pid)}
    found.pop(os.getpid(), None)  # we may ourselves have been started by an agent
    return list(found.values())


def writes(pid: int, outputs: Sequence[Path]) -> bool:
    """Whether the standard output or error of a process is one of these files."""
    names = {str(path.resolve()) for path in outputs}
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if str(Path(f"/proc/{pid}/fd/{descriptor}").readlink()) in names:
                return True
    return False
