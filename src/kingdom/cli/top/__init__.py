"""``kingdom top``: a court on one screen, live, with keys to cancel, retry and answer."""

from __future__ import annotations

import sys

from kingdom.cli import output
from kingdom.cli.session import HomeOption, find_home, journal_errors_reported


def top(home: HomeOption = None) -> None:
    """Watch a court on a full screen: roles, queues, soldiers and what they say, questions, cost and the journal.

    Arrows and Tab choose, Enter tells the story of what is chosen, c cancels, r retries, a answers, q leaves.
    """
    found = find_home(home)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise output.CommandError(
            "NO_TERMINAL", "kingdom top needs a terminal: kingdom status shows the same once, --json for programs"
        )
    from kingdom.court.config import load_system

    with journal_errors_reported():
        load_system(found)  # a mistake in it is told here, not by a screen full of nothing
    try:
        from kingdom.cli.top.app import TopApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise output.CommandError(
            "NOT_INSTALLED", "kingdom top needs textual: pip install textual; kingdom status needs nothing more"
        ) from error
    TopApp(found).run()
