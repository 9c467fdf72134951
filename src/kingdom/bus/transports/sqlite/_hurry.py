"""Having the interpreter change threads more often, while a thread needs it for moments only.

A thread that comes back from the disk, or from SQLite, waits for the interpreter until whoever has it waits for
something itself, or 5 ms are over. The thread that writes would do that after each statement of a transaction, with the
file locked against every other process meanwhile, and the event loop would in turn be idle while it runs. With 0.1 ms
they work at the same time: what is gained is in ``docs/explanation/group-commit.md``.
"""

from __future__ import annotations

import sys
import threading
from typing import Final

_SOON: Final = 0.0001  # seconds


class Hurry:
    """How many are in a hurry in this process. The interpreter has one interval for all of its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._usual = 0.0

    def begin(self) -> None:
        """Change threads more often from now on."""
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._usual = sys.getswitchinterval()
                if self._usual > _SOON:
                    sys.setswitchinterval(_SOON)

    def end(self) -> None:
        """Go back to the usual, when nobody else is in a hurry and nobody has changed it meanwhile."""
        with self._lock:
            self._count -= 1
            if not self._count and self._usual > _SOON and abs(sys.getswitchinterval() - _SOON) < 1e-6:
                sys.setswitchinterval(self._usual)


HURRY: Final = Hurry()
