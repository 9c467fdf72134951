"""The ``kingdom`` command under a clock that can be set: ``python -m tests.support.court_clock FILE COMMAND …``.

The file says by how many seconds the clock is off; it is read at every look at the clock, in every role. The clock is
replaced before anything of the court is imported, so that nothing keeps the real one.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

_real = time.time


def main() -> int:
    """Run the command."""
    file = Path(sys.argv[1])

    def now() -> float:
        return _real() + float(file.read_text())

    time.time = now
    time.time_ns = lambda: int(now() * 1e9)
    from kingdom.cli.app import run

    return run(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
