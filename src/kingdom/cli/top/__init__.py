"""``kingdom top``: a court on one screen, live, with keys to cancel, retry and answer."""

from __future__ import annotations

import sys
from pathlib import Path

from kingdom.cli import output
from kingdom.cli.options import home_option
from kingdom.cli.parsing import command
from kingdom.cli.session import errors_reported, find_home


@command()
@home_option
def top(home: Path | None) -> None:
    """Watch the court on a full screen.

    Shows roles, queues, soldiers and their output, questions, cost and the journal. Arrow keys and Tab select, Enter
    shows the history of the selection, c cancels, r retries, a answers, q quits.
    """
    found = find_home(home)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise output.CommandError(
            "NO_TERMINAL", "kingdom top needs a terminal: use kingdom status, with --json for programs"
        )
    from kingdom.court.config import load_system

    with errors_reported():
        load_system(found)  # an error in it is reported here, not by an empty screen
    from kingdom.cli.top.app import TopApp

    TopApp(found).run()
