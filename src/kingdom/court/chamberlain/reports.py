"""Statistics (``logs/analysis/stats.json``) and daily reports (``logs/analysis/report-DATE.json`` and ``.md``)."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from kingdom.agents.ledger import Ledger
from kingdom.base.files import read_json, write_atomic, write_json
from kingdom.base.times import epoch_seconds
from kingdom.court.chamberlain.checks import format_usd
from kingdom.court.chamberlain.tally import JournalTally
from kingdom.court.config import load_system
from kingdom.court.days import ONE_DAY, day_of, last_due_day, start_of_day
from kingdom.court.errors import CourtError
from kingdom.court.models import timestamp
from kingdom.journal import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import time
    from pathlib import Path

    from kingdom.agents.ledger import LedgerTotals
    from kingdom.court.chamberlain.alerts import ChamberlainTexts
    from kingdom.court.chamberlain.tally import DayCounts, GeneralDayCounts
    from kingdom.court.config import SystemConfig
    from kingdom.court.home import Home


_DAYS_SHOWN: Final = 31


def analysis_folder(home: Home) -> Path:
    """Return the folder of statistics and reports."""
    return home.logs / "analysis"


def stats_path(home: Home) -> Path:
    return analysis_folder(home) / "stats.json"


def stats_document(tally: JournalTally, now: float) -> dict[str, Any]:
    days = {name: _day(tally.days[name]) for name in sorted(tally.days)[-_DAYS_SHOWN:]}
    hours = {name: _tasks(tally.hours[name]) for name in sorted(tally.hours)}
    return {
        "generated_at": timestamp(now),
        "hours": hours,
        "days": days,
        "failures_in_a_row": dict(sorted(tally.streaks.items())),
        "undispatched_events": len(tally.waiting),
        "unreadable_lines": tally.skipped,
    }


def _day(day: DayCounts) -> dict[str, Any]:
    generals = {name: _general(general) for name, general in sorted(day.generals.items())}
    return {**_tasks(day.types), "generals": generals}


def _tasks(types: Mapping[str, int]) -> dict[str, int]:
    return {
        "events": types.get("event.detected", 0),
        "created": types.get("task.created", 0),
        "completed": types.get("task.completed", 0),
        "failed": types.get("task.failed", 0),
        "cancelled": types.get("task.cancelled", 0),
        "needs_human": types.get("task.needs_human", 0),
        "spawned": types.get("soldier.spawned", 0),
        "timeout": types.get("soldier.timeout", 0),
    }


def _general(general: GeneralDayCounts) -> dict[str, Any]:
    average = general.average_seconds
    return {
        "created": general.created,
        "completed": general.completed,
        "failed": general.failed,
        "cancelled": general.cancelled,
        "needs_human": general.needs_human,
        "timeout": general.timeouts,
        "avg_duration_seconds": None if average is None else round(average),
    }


def report_document(day: date, counts: DayCounts, spent: LedgerTotals) -> dict[str, Any]:
    averages = {name: general.average_seconds for name, general in sorted(counts.generals.items())}
    return {
        "type": "daily_report",
        "date": day.isoformat(),
        "tasks": {
            "created": counts.count("task.created"),
            "completed": counts.count("task.completed"),
            "failed": counts.count("task.failed"),
            "cancelled": counts.count("task.cancelled"),
            "needs_human": counts.count("task.needs_human"),
        },
        "soldiers": {"spawned": counts.count("soldier.spawned"), "timeout": counts.count("soldier.timeout")},
        "avg_duration_seconds": {name: round(average) for name, average in averages.items() if average is not None},
        "cost": {"usd": format_usd(spent.cost_usd), "tokens": spent.tokens},
    }


def report_text(report: dict[str, Any], texts: ChamberlainTexts) -> str:
    """Format the report as a message."""
    lines = [
        texts.format("report-title", date=report["date"]),
        texts.format("report-tasks", **{"cancelled": 0, **report["tasks"]}),
        texts.format("report-soldiers", **report["soldiers"]),
        texts.format("report-cost", **report["cost"]),
    ]
    averages = report["avg_duration_seconds"]
    if averages:
        shown = ", ".join(f"{name} {seconds} s" for name, seconds in averages.items())
        lines.append(f"{texts.format('report-durations')}: {shown}")
    return "\n".join(lines)


def report_markdown(report: dict[str, Any], counts: DayCounts, texts: ChamberlainTexts) -> str:
    """Format the report as a Markdown page, with a row for each general."""
    title, *lines = report_text(report, texts).split("\n")
    page = [f"# {title}", "", *(f"- {line}" for line in lines)]
    if counts.generals:
        page += ["", texts.format("report-table"), "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for name, general in sorted(counts.generals.items()):
        average = general.average_seconds
        ended = [general.completed, general.failed, general.cancelled, general.needs_human, general.timeouts]
        cells = [name, general.created, *ended, "–" if average is None else f"{average:.0f} s"]
        page.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(page) + "\n"


def report_path(home: Home, day: date) -> Path:
    """Return the path of the report of a day."""
    return analysis_folder(home) / f"report-{day.isoformat()}.json"


def write_report(home: Home, report: dict[str, Any], counts: DayCounts, texts: ChamberlainTexts) -> None:
    """Write the report as JSON and as Markdown. Idempotent."""
    path = report_path(home, date.fromisoformat(report["date"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path.with_suffix(".md"), report_markdown(report, counts, texts))
    write_json(path, report)


def last_reported(home: Home) -> str | None:
    """Return the latest day with a report on disk."""
    names = (path.stem.removeprefix("report-") for path in analysis_folder(home).glob("report-????-??-??.json"))
    return max(names, default=None)


def due_reports(tally: JournalTally, reported: str, now: float, at: time, zone: ZoneInfo) -> Iterator[date]:
    """Yield the days whose report is due: the day before, and missed days with activity."""
    latest = last_due_day(now, at, zone) - ONE_DAY
    for name in sorted(tally.days):
        if reported < name < latest.isoformat():
            yield date.fromisoformat(name)
    if reported < latest.isoformat():
        yield latest


def count_day(home: Home, day: date, zone: ZoneInfo) -> DayCounts:
    """Count a day from the journal, as far as it still exists."""
    return _count_journal(home, zone).day(day.isoformat())


def _count_journal(home: Home, zone: ZoneInfo) -> JournalTally:
    tally = JournalTally(zone)
    with Reader(home.journal, report=lambda problem: None) as reader:
        for records in reader.read_records():
            tally.feed(records)
    return tally


_STATS_FRESH_SECONDS: Final = 300.0


class NoReport(CourtError):
    """There is no report of that day, and nothing in the journal."""

    code = "NOT_FOUND"


class InvalidDay(CourtError):
    """Not a date, or a date in the future."""

    code = "INVALID_DAY"


def current_stats(home: Home, now: float) -> dict[str, Any]:
    """Return the recent statistics of the chamberlain, or count the journal when they are outdated."""
    document = read_json(stats_path(home))
    if isinstance(document, dict):
        written = epoch_seconds(document.get("generated_at"))
        if written is not None and abs(now - written) < _STATS_FRESH_SECONDS:
            return document
    tally = _count_journal(home, ZoneInfo(load_system(home).timezone))
    tally.prune(now)
    return stats_document(tally, now)


def load_report(home: Home, system: SystemConfig, day: str, now: float) -> dict[str, Any]:
    """Return the report of a day (``2026-02-07``, ``yesterday``, or ``today`` so far).

    It is the report that was sent, or one made from the journal, as far as it still exists. Raises :class:`NoReport`
    and :class:`InvalidDay`.
    """
    zone = ZoneInfo(system.timezone)
    today = day_of(now, zone)
    wanted = _parse_day(day, today)
    if isinstance(sent := read_json(report_path(home, wanted)), dict):
        return sent
    counts = count_day(home, wanted, zone)
    if not counts.types and wanted < today:
        raise NoReport(f"no report of {wanted}, and no journal entry of that day: reports are in logs/analysis/")
    spent = Ledger(home.ledger).totals(start_of_day(wanted, zone), start_of_day(wanted + ONE_DAY, zone))
    return report_document(wanted, counts, spent)


def _parse_day(text: str, today: date) -> date:
    if text in ("today", "yesterday"):
        return today if text == "today" else today - ONE_DAY
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise InvalidDay(f"{text!r:.40} is not a date: write 2026-02-07, yesterday or today") from None
    if day > today:
        raise InvalidDay(f"{text} is in the future: today is {today}")
    return day
