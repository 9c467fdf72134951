"""``kingdom doctor``: what is wrong with a court, or about to be."""

from __future__ import annotations

import typer

from kingdom.cli import output
from kingdom.cli.bus.doctor import print_checks
from kingdom.cli.bus.options import Json
from kingdom.cli.court.session import told
from kingdom.cli.home import HomeOption, find_home


def doctor(home: HomeOption = None, json: Json = False) -> None:
    """Check the home, its configuration, the generals, their engines, git, the disk, the queues and the processes.

    Exits 1 when something is wrong now.
    """
    import asyncio
    import time

    from kingdom.bus.looking import check_document
    from kingdom.court.examination import examine

    court = find_home(home)
    with told():
        checks = asyncio.run(examine(court, time.time))
    healthy = all(check.level != "error" for check in checks)
    if json:
        output.emit({"ok": healthy, "checks": [check_document(check) for check in checks]})
    else:
        print_checks(checks)
    if not healthy:
        raise typer.Exit(output.FAILED)
