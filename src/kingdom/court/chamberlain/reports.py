"""The report of a day: as JSON, as a message, and as Markdown beside the JSON in ``logs/analysis/``."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from kingdom.court.chamberlain.stats import analysis_folder
from kingdom.court.chamberlain.tally import Tally
from kingdom.court.chamberlain.tokens import money
from kingdom.court.days import ONE_DAY, last_due
from kingdom.court.files import write_atomic, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import time
    from pathlib import Path
    from zoneinfo import ZoneInfo

    from kingdom.agents.ledger import Totals
    from kingdom.court.chamberlain.tally import Day
    from kingdom.court.chamberlain.texts import Texts
    from kingdom.court.home import Home


def report_document(day: date, counts: Day, spent: Totals) -> dict[str, Any]:
    """The report as JSON."""
    averages = {name: general.average_seconds for name, general in sorted(counts.generals.items())}
    return {
        "type": "daily_report",
        "date": day.isoformat(),
        "tasks": {
            "created": counts.count("task.created"),
            "completed": counts.count("task.completed"),
            "failed": counts.count("task.failed"),
            "needs_human": counts.count("task.needs_human"),
        },
        "soldiers": {"spawned": counts.count("soldier.spawned"), "timeout": counts.count("soldier.timeout")},
        "avg_duration_seconds": {name: round(average) for name, average in averages.items() if average is not None},
        "cost": {"usd": money(spent.cost_usd), "tokens": spent.tokens},
    }


def report_text(report: dict[str, Any], texts: Texts) -> str:
    """The report as a message."""
    lines = [
        texts.say("report-title", date=report["date"]),
        texts.say("report-tasks", **report["tasks"]),
        texts.say("report-soldiers", **report["soldiers"]),
        texts.say("report-cost", **report["cost"]),
    ]
    averages = report["avg_duration_seconds"]
    if averages:
        shown = ", ".join(f"{name} {seconds} s" for name, seconds in averages.items())
        lines.append(f"{texts.say('report-durations')}: {shown}")
    return "\n".join(lines)


def report_markdown(report: dict[str, Any], counts: Day, texts: Texts) -> str:
    """The report as a page, with a row for each general."""
    title, *lines = report_text(report, texts).split("\n")
    page = [f"# {title}", "", *(f"- {line}" for line in lines)]
    if counts.generals:
        page += ["", texts.say("report-table"), "|---|---:|---:|---:|---:|---:|---:|"]
    for name, general in sorted(counts.generals.items()):
        average = general.average_seconds
        cells = [name, general.created, general.completed, general.failed, general.needs_human, general.timeouts]
        page.append(f"| {' | '.join(map(str, cells))} | {'–' if average is None else f'{average:.0f} s'} |")
    return "\n".join(page) + "\n"


def report_path(home: Home, day: date) -> Path:
    """Where the report of a day lies."""
    return analysis_folder(home) / f"report-{day.isoformat()}.json"


def write_report(home: Home, report: dict[str, Any], counts: Day, texts: Texts) -> None:
    """Write both files. Doing it again changes nothing."""
    path = report_path(home, date.fromisoformat(report["date"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path.with_suffix(".md"), report_markdown(report, counts, texts))
    write_json(path, report)


def last_reported(home: Home) -> str | None:
    """The latest day that has its report on disk."""
    names = (path.stem.removeprefix("report-") for path in analysis_folder(home).glob("report-????-??-??.json"))
    return max(names, default=None)


def due_reports(tally: Tally, reported: str, now: float, at: time, zone: ZoneInfo) -> Iterator[date]:
    """The days whose report is due: the day before, and missed ones on which something happened."""
    latest = last_due(now, at, zone) - ONE_DAY
    for name in sorted(tally.days):
        if reported < name < latest.isoformat():
            yield date.fromisoformat(name)
    if reported < latest.isoformat():
        yield latest


def count_day(home: Home, day: date, zone: ZoneInfo) -> Day:
    """Count a day from the journal itself, as far as it is still there."""
    from kingdom.court.chamberlain.scan import count
    from kingdom.journal import Reader

    tally = Tally(zone)
    with Reader(home.journal, report=lambda problem: None) as reader:
        for block in reader.read_blocks():
            count(tally, block)
    return tally.day(day.isoformat())
