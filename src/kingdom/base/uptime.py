"""A clock that nobody sets, the same for all processes of a machine until it is started again."""

from __future__ import annotations

import time


def uptime() -> float:
    """Return the seconds since the machine was started; time in which it was suspended counts."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
