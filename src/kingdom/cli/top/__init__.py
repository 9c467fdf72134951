"""``kingdom top``: a court on one screen, live, with keys to cancel, retry and answer."""

from __future__ import annotations

import sys

from kingdom.cli import output
from kingdom.cli.court.session import told
from kingdom.cli.home import HomeOption, find_home


def top(home: HomeOption = None) -> None:
    """Watch a court on a full screen: roles, queues, soldiers and what they say, questions, cost and the journal.

    Arrows and Tab choose, Enter tells the story of what is chosen, c cancels, r retries, a answers, q leaves.
    """
    found = find_home(home)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise output.Failure(
            "NO_TERMINAL", "kingdom top needs a terminal: kingdom status shows the same once, --json for programs"
        )
    from kingdom.court.config.system import load_system

    with told():
        load_system(found)  # a mistake in it is told here, not by a screen full of nothing
    try:
        from kingdom.cli.top.app import TopApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise output.Failure(
            "NOT_INSTALLED", "kingdom top needs textual: pip install textual; kingdom status needs nothing more"
        ) from error
    TopApp(found).run()
