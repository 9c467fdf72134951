"""The ``kingdom`` command.

Modules of this package import only the standard library, click and each other at their top: the bus, rich and
prometheus_client are imported inside the command that needs them, so that ``kingdom --help`` answers at once.
"""

from __future__ import annotations

import gc
import io
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from kingdom.base.garbage import collect_rarely

    collect_rarely()  # Python would search again and again what it imports, a tenth of the time that takes
    from kingdom.cli.app import run

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an ASCII terminal is no reason to fail
    code = run(sys.argv[1:])
    gc.freeze()  # when it exits, Python would search all that was imported for garbage
    sys.exit(code)
