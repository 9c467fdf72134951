"""Commands for what a court has recorded: logs, stats, report, clean."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from kingdom.cli import output
from kingdom.cli.options import home_option, json_option, parse_duration, yes_option
from kingdom.cli.parsing import command
from kingdom.cli.session import errors_reported, find_home, with_court

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import tzinfo
    from pathlib import Path

    from rich.text import Text

    from kingdom.court.chamberlain.cleanup import Cleanup
    from kingdom.court.chamberlain.config import RetentionSection
    from kingdom.court.chamberlain.retention import ExpiredFile
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.journal import Cursor, Entry, Problem, Reader

_CATEGORY_STYLES: Final = {
    "event": "cyan",
    "task": "blue",
    "soldier": "magenta",
    "system": "yellow",
    "recovery": "green",
    "message": "white",
}
_BAD_WORDS: Final = ("failed", "timeout", "killed", "missed", "orphaned", "warning", "discarded")
_BARS: Final = "▁▂▃▄▅▆▇█"
_HOURS: Final = 24
_STATS_DAYS: Final = 7


@command()
@click.option("--follow", "-f", is_flag=True, help="Continue with new entries as they are written.")
@click.option(
    "--type",
    "-t",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only entries of this type: task.failed, or task.* for all.",
)
@click.option("--actor", "-a", "actors", multiple=True, metavar="ROLE", help="Only entries of this role.")
@click.option("--task", metavar="TASK", help="Only entries of this task.")
@click.option("--since", metavar="WHEN", help="From this time on: 2h, 3d, or 2026-02-07T10:00.")
@click.option(
    "--lines", "-n", type=click.IntRange(0), metavar="N", help="Only the last N; 50 when --since is not given."
)
@home_option
@click.option("--json", is_flag=True, help="Print each entry as it is stored, one JSON line.")
def logs(
    follow: bool,
    types: tuple[str, ...],
    actors: tuple[str, ...],
    task: str | None,
    since: str | None,
    lines: int | None,
    home: Path | None,
    json: bool,
) -> None:
    """Show the journal: what the roles of the court did.

    Several values of one option widen the selection; several options narrow it.
    """
    from kingdom.court.journal_search import JournalFilter
    from kingdom.journal import Reader

    found = find_home(home)
    start = None if since is None else _since_timestamp(since, found)
    wanted = JournalFilter(types=types, actors=actors, task=task, since=start).matches
    show = _entry_printer(json, found)
    most = 50 if lines is None and since is None else lines
    with (
        errors_reported(),
        Reader(found.journal, cursor=_start_cursor(found.journal, start), report=_print_journal_problem) as reader,
    ):
        for entry in _last_entries(filter(wanted, reader.read()), most):
            show(entry)
        if follow:
            _follow_journal(reader, wanted, show)


def _follow_journal(reader: Reader, wanted: Callable[[Entry], bool], show: Callable[[Entry], None]) -> None:
    import asyncio

    async def run() -> None:
        async for entry in reader.follow():
            if wanted(entry):
                show(entry)

    asyncio.run(run())


def _since_timestamp(text: str, home: Home) -> float:
    """Parse ``2h`` (ago) or a time; a time without a zone is in the zone of the court."""
    import time
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from kingdom.court.config import load_system

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return time.time() - parse_duration(text)
        except ValueError:
            raise output.usage_error(
                f"--since {text!r} is not a time: write 30m, 2h, 7d, or 2026-02-07T10:00"
            ) from None
    if moment.tzinfo is None:
        with errors_reported():
            moment = moment.replace(tzinfo=ZoneInfo(load_system(home).timezone))
    return moment.timestamp()


def _start_cursor(journal: Path, start: float | None) -> Cursor:
    """Return where to start: after the closed files that end before ``start``, or else at the last closed one."""
    from kingdom.journal import Cursor
    from kingdom.journal.logfiles import list_rotated

    try:
        splits = list_rotated(journal)
    except OSError:
        return Cursor()
    if start is None:
        skipped = list(splits[:-1])
    else:
        skipped = []
        for split in splits:
            with contextlib.suppress(OSError):
                if journal.with_name(split.name).stat().st_mtime < start:
                    skipped.append(split)
                    continue
            break
    return Cursor(after=skipped[-1].name) if skipped else Cursor()


def _last_entries(entries: Iterable[Entry], most: int | None) -> Iterable[Entry]:
    return entries if most is None else deque(entries, maxlen=most)


def _entry_printer(as_json: bool, home: Home) -> Callable[[Entry], None]:
    from kingdom.court.config import court_zone

    if as_json:
        return lambda entry: print(entry.to_json(), flush=True)  # noqa: T201
    console, zone = output.console(), court_zone(home)
    return lambda entry: console.print(_entry_line(entry, zone), soft_wrap=True)


def _entry_line(entry: Entry, zone: tzinfo) -> Text:
    from rich.text import Text

    category, _, action = entry.type.partition(".")
    style = "red" if any(word in action for word in _BAD_WORDS) else _CATEGORY_STYLES.get(category, "")
    data = " ".join(f"{key}={output.sanitize(_field_text(value))}" for key, value in entry.fields.items())
    when = entry.at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z")
    return Text.assemble(
        (when, "dim"),
        " ",
        (f"{output.sanitize(entry.type):<26}", style),
        f" {output.sanitize(entry.actor):<12} ",
        (data, ""),
    )


def _field_text(value: object) -> str:
    import json

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text


def _print_journal_problem(problem: Problem) -> None:
    print(output.sanitize(f"journal: {problem}"), file=sys.stderr)  # noqa: T201


@command()
@click.option("--days", type=click.IntRange(1, 31), metavar="N", help="How many days to show; 7 if not given.")
@click.option(
    "--since",
    metavar="WHEN",
    help="Over time, from here on: 1h, 24h, 90d, or 2026-02-07T10:00. Days are kept 400 days.",
)
@click.option("--general", metavar="NAME", help="Over time, only of this general; of 24 hours without --since.")
@home_option
@json_option
def stats(days: int | None, since: str | None, general: str | None, home: Path | None, json: bool) -> None:
    """Show how many tasks ran and how they ended.

    By day, by general, and by hour for the last 24 hours. With --since or --general: success rate, durations (p50 and
    p95, within 2 %), cost by general and model, and the age of the queues, in equal steps.
    """
    import time

    from kingdom.court.chamberlain.reports import current_stats

    found = find_home(home)
    if since is not None or general is not None:
        if days is not None:
            raise output.usage_error("--days does not go with --since or --general: write --since 7d")
        _print_history(found, since or "24h", general, json)
        return
    with errors_reported():
        document = current_stats(found, time.time())
    if json:
        output.print_json(document)
        return
    shown = dict(list(document["days"].items())[-(days or _STATS_DAYS) :])
    if not shown:
        output.say("no statistics yet: the journal is empty")
        return
    columns = ("day", "events", "created", "completed", "failed", "cancelled", "asked", "timed out")
    keys = ("events", "created", "completed", "failed", "cancelled", "needs_human", "timeout")
    output.print_table(
        columns, [(day, *(counts.get(key, 0) for key in keys)) for day, counts in shown.items()], columns[1:]
    )
    output.say()
    rows = _general_rows(shown)
    if rows:
        columns = ("general", "created", "completed", "failed", "cancelled", "asked", "timed out", "average")
        output.print_table(columns, rows, columns[1:])
        output.say()
    for name, key in (("completed", "completed"), ("failed", "failed")):
        chart, total = _hourly_chart(document, key)
        output.say(f"{name:<10} {chart}  {total} in the last {_HOURS} hours")


def _print_history(home: Home, since: str, general: str | None, as_json: bool) -> None:
    import time
    from zoneinfo import ZoneInfo

    from kingdom.cli.court.history_text import history_document, print_history
    from kingdom.court.config import load_system
    from kingdom.court.rollups.queries import read_history
    from kingdom.court.rollups.store import rollups_path

    with errors_reported():
        zone = ZoneInfo(load_system(home).timezone)
        begin = _since_timestamp(since, home)
        found = read_history(rollups_path(home), zone, time.time(), begin, general=general)
    if as_json:
        output.print_json(history_document(found))
    else:
        print_history(found, zone)


def _general_rows(days: dict[str, Any]) -> list[Sequence[object]]:
    rows: list[Sequence[object]] = []
    names = sorted({name for counts in days.values() for name in counts["generals"]})
    for name in names:
        parts = [counts["generals"][name] for counts in days.values() if name in counts["generals"]]
        keys = ("created", "completed", "failed", "cancelled", "needs_human", "timeout")
        sums = [sum(part.get(key, 0) for part in parts) for key in keys]
        weighted = sum((part["avg_duration_seconds"] or 0) * part["completed"] for part in parts)
        rows.append((name, *sums, f"{weighted / sums[1]:.0f} s" if sums[1] else "–"))
    return rows


def _hourly_chart(document: dict[str, Any], key: str) -> tuple[str, int]:
    """Return a chart with one bar for each of the last hours, and the total."""
    from datetime import datetime, timedelta

    last = datetime.fromisoformat(document["generated_at"])
    names = [(last - timedelta(hours=back)).strftime("%Y-%m-%dT%H") for back in reversed(range(_HOURS))]
    values = [document["hours"].get(name, {}).get(key, 0) for name in names]
    highest = max(values) or 1
    return "".join(_BARS[-(-value * (len(_BARS) - 1) // highest)] for value in values), sum(values)


@command()
@click.option("--date", "day", default="yesterday", metavar="DATE", help="2026-02-07, yesterday, or today (so far).")
@home_option
@json_option
def report(day: str, home: Path | None, json: bool) -> None:
    """Show the daily report.

    Shows the report that was sent, or builds it from the journal, as far as the journal is kept.
    """
    import time

    from kingdom.court.chamberlain.alerts import ChamberlainTexts
    from kingdom.court.chamberlain.reports import InvalidDay, load_report, report_text
    from kingdom.court.config import load_system

    found = find_home(home)
    with errors_reported():
        system = load_system(found)
        try:
            document = load_report(found, system, day, time.time())
        except InvalidDay as error:
            raise output.usage_error(f"--date: {error}") from None
    if json:
        output.print_json(document)
    else:
        output.say(report_text(document, ChamberlainTexts(system.locale)))


@command()
@click.option("--dry-run", is_flag=True, help="Only show what would be removed, and why.")
@home_option
@yes_option
@json_option
def clean(dry_run: bool, home: Path | None, yes: bool, json: bool) -> None:
    """Remove files that are past their retention time.

    The times are in config/chamberlain.yaml. Files in use stay.
    """
    from kingdom.court.machines.capacity import refuse_copy

    if dry_run:
        items = with_court(home, _expired_files)
        if json:
            output.print_json(
                {"files": [_expired_document(item) for item in items], "bytes": sum(item.size for item in items)}
            )
        elif items:
            rows = [(item.path, f"{item.size:,}", item.why) for item in items]
            output.print_table(("file", "bytes", "why"), rows, ("bytes",))
            output.say(
                f"{output.plural(len(items), 'file')} would be removed, {sum(item.size for item in items):,} bytes"
            )
        else:
            output.say("no file is past its retention time")
        return
    with errors_reported():
        refuse_copy(find_home(home))
    output.confirm("Remove all files that are past their retention time (kingdom clean --dry-run lists them)?", yes=yes)
    removed = with_court(home, _remove_expired)
    if json:
        output.print_json({"removed": removed})
    else:
        output.say(f"{removed} removed")


def _expired_document(item: ExpiredFile) -> dict[str, object]:
    return {"path": item.path, "bytes": item.size, "age_days": round(item.age / 86400, 2), "why": item.why}


async def _expired_files(services: Services) -> list[ExpiredFile]:
    cleaning, _ = _open_cleaning(services)
    return [item async for item in cleaning.plan(with_queues=_has_queues(services))]


async def _remove_expired(services: Services) -> int:
    import asyncio

    from kingdom.court.chamberlain.cleanup import is_journal_read

    cleaning, section = _open_cleaning(services)
    was_read = await asyncio.to_thread(is_journal_read, services.home, section, services.clock())
    if not was_read:
        output.say("closed journal files stay: the chamberlain has not read them yet")
    runs = cleaning.run(with_journal=was_read, with_queues=_has_queues(services))
    return sum([removed async for removed in runs])


def _has_queues(services: Services) -> bool:
    """Whether this machine cleans the queues: one that runs generals only does not know which tasks are in use."""
    from kingdom.court.machines.capacity import load_machine

    machine = load_machine(services.home)
    return machine is None or not machine.joined


def _open_cleaning(services: Services) -> tuple[Cleanup, RetentionSection]:
    from kingdom.court.chamberlain.alerts import WarningLog
    from kingdom.court.chamberlain.cleanup import Cleanup
    from kingdom.court.chamberlain.config import ChamberlainConfigFile
    from kingdom.court.chamberlain.sessions import LocalSoldierProcesses

    loaded = ChamberlainConfigFile(services.home).load()
    if loaded.problem is not None:
        raise output.CommandError("INVALID_CONFIG", f"{loaded.problem}; nothing was removed")
    section = loaded.config.retention
    processes = LocalSoldierProcesses(services.home)
    return Cleanup(services.home, services.bus, processes, section, services.clock(), WarningLog()), section
