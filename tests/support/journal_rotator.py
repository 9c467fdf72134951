"""A rotator that is killed: ``python -m tests.support.journal_rotator LOG STEP`` dies before its system call STEP.

Prints the name of each call before it is made; exits with 0 when it came to its end.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from typing import Any

from kingdom.journal import rotate, rotation


class Deadly:
    """Stands in for ``os`` in the module under test."""

    def __init__(self, step: int) -> None:
        self._left = step

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self._counted(name, found) if callable(found) and not isinstance(found, type) else found

    def _counted(self, name: str, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
            print(name, flush=True)
            return function(*args, **options)

        return call


if __name__ == "__main__":
    rotation.os = Deadly(int(sys.argv[2]))  # type: ignore[assignment]
    assert rotate(sys.argv[1], datetime(2026, 2, 8, 1, tzinfo=UTC), max_bytes=1) is not None
