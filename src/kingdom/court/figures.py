"""Statistics and daily reports as they are now: those the chamberlain wrote, or the same counted from the journal."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from kingdom.agents.ledger import Ledger
from kingdom.court.chamberlain.reports import count_day, report_document, report_path
from kingdom.court.chamberlain.scan import count
from kingdom.court.chamberlain.stats import stats_document, stats_path
from kingdom.court.chamberlain.tally import Tally
from kingdom.court.config.system import load_system
from kingdom.court.days import ONE_DAY, day_of, start_of
from kingdom.court.errors import CourtError
from kingdom.court.files import read_json
from kingdom.court.king.times import seconds_of
from kingdom.journal import Reader

if TYPE_CHECKING:
    from kingdom.court.config.system import SystemConfig
    from kingdom.court.home import Home

_FRESH_SECONDS: Final = 300.0


class NoReport(CourtError):
    """Nothing is known of that day."""

    code = "NOT_FOUND"


class NoSuchDay(CourtError):
    """Not a day, or one that has not come yet."""

    code = "INVALID_DAY"


def current_stats(home: Home, now: float) -> dict[str, Any]:
    """What the chamberlain wrote lately, or the same counted from the journal where none runs."""
    document = read_json(stats_path(home))
    if isinstance(document, dict):
        written = seconds_of(document.get("generated_at"))
        if written is not None and abs(now - written) < _FRESH_SECONDS:
            return document
    tally = Tally(ZoneInfo(load_system(home).timezone))
    with Reader(home.journal, report=lambda problem: None) as reader:
        for block in reader.read_blocks():
            count(tally, block)
    tally.prune(now)
    return stats_document(tally, now)


def report_of(home: Home, system: SystemConfig, day: str, now: float) -> dict[str, Any]:
    """The report of a day (``2026-02-07``, ``yesterday``, ``today`` for what there is so far).

    The one that was sent, or one made from the journal as far as it is still there. Raises :class:`NoReport` and
    :class:`NoSuchDay`.
    """
    zone = ZoneInfo(system.timezone)
    today = day_of(now, zone)
    wanted = _date(day, today)
    if isinstance(sent := read_json(report_path(home, wanted)), dict):
        return sent
    counts = count_day(home, wanted, zone)
    if not counts.types and wanted < today:
        raise NoReport(f"no report of {wanted}, and nothing of that day in the journal: reports are in logs/analysis/")
    spent = Ledger(home.ledger).totals(start_of(wanted, zone), start_of(wanted + ONE_DAY, zone))
    return report_document(wanted, counts, spent)


def _date(text: str, today: date) -> date:
    if text in ("today", "yesterday"):
        return today if text == "today" else today - ONE_DAY
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise NoSuchDay(f"{text!r:.40} is no day: write 2026-02-07, yesterday or today") from None
    if day > today:
        raise NoSuchDay(f"{text} has not come yet: today is {today}")
    return day
