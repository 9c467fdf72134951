"""``kingdom report``: the report of a day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.court.session import told
from kingdom.cli.home import HomeOption, find_home

if TYPE_CHECKING:
    from datetime import date

    from kingdom.court.config.system import SystemConfig
    from kingdom.court.home import Home


def report(
    day: Annotated[
        str, typer.Option("--date", metavar="DATE", help="2026-02-07, yesterday, or today for what there is so far.")
    ] = "yesterday",
    home: HomeOption = None,
    json: Json = False,
) -> None:
    """Show the daily report: the one that was sent, or one made from the journal as far as it is still there."""
    from kingdom.court.chamberlain.reports import report_text
    from kingdom.court.chamberlain.texts import Texts
    from kingdom.court.config.system import load_system

    found = find_home(home)
    with told():
        system = load_system(found)
        document = _report(found, system, day)
    if json:
        output.emit(document)
    else:
        output.say(report_text(document, Texts(system.locale)))


def _report(home: Home, system: SystemConfig, text: str) -> dict[str, Any]:
    import time
    from zoneinfo import ZoneInfo

    from kingdom.agents.ledger import Ledger
    from kingdom.court.chamberlain.reports import count_day, report_document, report_path
    from kingdom.court.days import ONE_DAY, day_of, start_of
    from kingdom.court.files import read_json

    zone = ZoneInfo(system.timezone)
    today = day_of(time.time(), zone)
    day = _date(text, today)
    if isinstance(sent := read_json(report_path(home, day)), dict):
        return sent
    counts = count_day(home, day, zone)
    if not counts.types and day < today:
        raise output.Failure(
            "NOT_FOUND", f"no report of {day}, and nothing of that day in the journal: reports are in logs/analysis/"
        )
    spent = Ledger(home.ledger).totals(start_of(day, zone), start_of(day + ONE_DAY, zone))
    return report_document(day, counts, spent)


def _date(text: str, today: date) -> date:
    from kingdom.court.days import ONE_DAY

    if text in ("today", "yesterday"):
        return today if text == "today" else today - ONE_DAY
    try:
        day = today.fromisoformat(text)
    except ValueError:
        raise output.misuse(f"--date {text!r} is no day: write 2026-02-07, yesterday or today") from None
    if day > today:
        raise output.misuse(f"--date {text} has not come yet: today is {today}")
    return day
