"""How long the supervisor waits for what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things may take, in seconds."""

    look: float = 2.0  # between two looks at generals and heartbeats
    stop: float = 10.0  # from SIGTERM to SIGKILL
    hang: float = 60.0  # a heartbeat may be older than this…
    hang_intervals: float = 3.0  # …and so many intervals of its role, then the role hangs
