"""The lock of a log file: whoever appends holds it for the time of one line.

It is ``flock``, so the kernel lets go of it when its holder dies. A holder that is stopped (SIGSTOP, a debugger) keeps
it, so nobody waits for ever: after its patience a writer goes on without the lock. What that costs is said at each
caller.
"""

from __future__ import annotations

import fcntl
import time
from typing import Final

_FIRST_PAUSE: Final = 20e-6
_LONGEST_PAUSE: Final = 1e-3


def lock(fd: int, patience: float) -> bool:
    """Take the lock, waiting ``patience`` seconds at most. False: somebody else has it, or there are no locks here."""
    if try_lock(fd):
        return True
    give_up, pause = time.monotonic() + patience, _FIRST_PAUSE
    while time.monotonic() < give_up:
        time.sleep(pause)
        if try_lock(fd):
            return True
        pause = min(2 * pause, _LONGEST_PAUSE)
    return False


def try_lock(fd: int) -> bool:
    """Take the lock if it is free."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by another, or a file system without locks
        return False
    return True


def unlock(fd: int) -> None:
    """Let go of it."""
    fcntl.flock(fd, fcntl.LOCK_UN)
