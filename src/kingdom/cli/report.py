"""``kingdom report``: the report of a day."""

from __future__ import annotations

from typing import Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.court.session import told
from kingdom.cli.home import HomeOption, find_home


def report(
    day: Annotated[
        str, typer.Option("--date", metavar="DATE", help="2026-02-07, yesterday, or today for what there is so far.")
    ] = "yesterday",
    home: HomeOption = None,
    json: Json = False,
) -> None:
    """Show the daily report: the one that was sent, or one made from the journal as far as it is still there."""
    import time

    from kingdom.court.chamberlain.reports import report_text
    from kingdom.court.chamberlain.texts import Texts
    from kingdom.court.config.system import load_system
    from kingdom.court.figures import NoSuchDay, report_of

    found = find_home(home)
    with told():
        system = load_system(found)
        try:
            document = report_of(found, system, day, time.time())
        except NoSuchDay as error:
            raise output.misuse(f"--date: {error}") from None
    if json:
        output.emit(document)
    else:
        output.say(report_text(document, Texts(system.locale)))
