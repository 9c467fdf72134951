"""Ending what is left of a run whose shim is gone. Only what carries the run's own mark, or is below it."""

from __future__ import annotations

import os
import signal
import time
from typing import Final

from kingdom.agents.processes import Process, bearing, descendants, look_at_all, send

_PATIENCE: Final = 5.0  # seconds until we say that something cannot be ended
_AGAIN: Final = 0.05


def end_strays(run_id: str, session: int | None = None) -> list[int]:
    """Kill every process of a run and wait until none is left. Returns the pids of those that cannot be ended.

    ``session`` is the agent's, given only by who has watched it to this moment: later the number may be another's.
    """
    deadline = time.monotonic() + _PATIENCE
    while strays := _find(run_id, session):
        for process in strays:
            send(process.pid, process.start, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return [process.pid for process in strays]
        time.sleep(_AGAIN)
    return []


def _find(run_id: str, session: int | None) -> list[Process]:
    found = {process.pid: process for process in bearing(run_id)}
    if session is not None:
        found |= {process.pid: process for process in look_at_all() if process.session == session and process.alive}
    for pid in list(found):
        found |= {process.pid: process for process in descendants(pid)}
    found.pop(os.getpid(), None)  # we may ourselves have been started by an agent
    return list(found.values())
