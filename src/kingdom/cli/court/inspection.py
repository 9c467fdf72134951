"""Commands that inspect a court: status, doctor, trace, metrics."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from kingdom.cli import output
from kingdom.cli.bus.inspection import refresh, refuse_watch_with_json, report_checks, serve_metrics
from kingdom.cli.options import DURATION, duration_or_dash, format_duration, home_option, json_option
from kingdom.cli.parsing import argument, command
from kingdom.cli.session import errors_reported, find_home, waiting_shown, with_court

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kingdom.court.history import HistoryLine
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.overview import CourtOverview

_WIDE_COLUMNS: Final = 120  # of a terminal that has room for file names
_LEVEL_STYLES: Final = {"green": "green", "ok": "green", "red": "bold red", "critical": "bold red"}
_ROLE_STYLES: Final = {"running": "green", "failed": "red", "late": "red", "waiting": "yellow", "stopping": "yellow"}


@command()
@click.option("--watch", "-w", is_flag=True, help="Refresh until interrupted.")
@click.option("--every", type=DURATION, default="2s", help="How often --watch refreshes.")
@home_option
@json_option
def status(watch: bool, every: float, home: Path | None, json: bool) -> None:
    """Show health, budget, alerts, roles, queues, soldiers, questions and problems."""
    if watch:
        refuse_watch_with_json(json)
        with_court(home, lambda services: refresh(lambda: _status_view(services), every), lasting=True)
        return
    overview = _read_overview(home)
    if json:
        output.print_json({**overview.document(), "dashboard": _dashboard_url(overview)})
    else:
        output.show(*_status_parts(overview))


def _read_overview(home: Path | None) -> CourtOverview:
    """Read everything, or all but the queues when these cannot be opened: the disk is full, the database is away."""
    import time

    from kingdom.bus.errors import StorageFull, TransportUnavailable
    from kingdom.court.overview import read_overview, read_overview_without_queues
    from kingdom.court.problems import CourtProblem

    try:
        return with_court(home, read_overview)
    except output.CommandError as failure:
        if not isinstance(failure.__cause__, StorageFull | TransportUnavailable):
            raise
        overview = read_overview_without_queues(find_home(home), time.time())
        overview.problems.insert(0, CourtProblem("queues", str(failure)))
        return overview


def _dashboard_url(overview: CourtOverview) -> str | None:
    """Return the address of the web server of the home, if one runs."""
    from pathlib import Path

    from kingdom.web.record import running_server

    found = running_server(Path(overview.home))
    return None if found is None else found.url


async def _status_view(services: Services) -> list[output.Part]:
    from kingdom.court.overview import read_overview

    return _status_parts(await read_overview(services))


def _status_parts(overview: CourtOverview) -> list[output.Part]:
    parts: list[output.Part] = [*_condition(overview)]
    if overview.running:
        inline = ", all roles in one process" if overview.mode == "inline" else ""
        parts.append(output.Styled(f"{overview.home}: up (pid {overview.supervisor_pid}{inline})", "bold green"))
    else:
        parts.append(output.Styled(f"{overview.home}: not up (kingdom up starts it)", "bold"))
    if (url := _dashboard_url(overview)) is not None:
        parts.append(output.Styled(f"dashboard: {url} (kingdom web --link logs a browser in)", "dim"))
    parts.append(_roles_table(overview))
    if overview.machines:
        from kingdom.cli.court.machines import MACHINE_COLUMNS, machine_row

        parts.append(output.Table(MACHINE_COLUMNS, [machine_row(one) for one in overview.machines]))
    if overview.queues:  # they can be read
        columns = ("queue", "waiting", "processing", "invalid or failed", "oldest")
        rows = [_queue_row(queue.name, queue.counts, queue.oldest_seconds) for queue in overview.queues]
        parts.append(output.Table(columns, rows, right=columns[1:]))
    if overview.holds:
        held = [(reason, *_hold_cells(detail)) for reason, detail in overview.holds.items()]
        parts.append(output.Table(("held back because", "events", "such as"), held, right=("events",)))
    if overview.soldiers:
        soldiers = [
            (one.id, one.task_id, one.general, one.engine, one.machine or one.pid or "–", duration_or_dash(one.seconds))
            for one in overview.soldiers
        ]
        parts.append(output.Table(("soldier", "task", "general", "engine", "pid or machine", "for"), soldiers))
    if overview.questions:
        questions = [
            (one.task_id, one.general, one.question, " | ".join(one.choices), _minute(one.deadline, overview.timezone))
            for one in overview.questions
        ]
        parts.append(output.Table(("asks", "general", "question", "choices", "until"), questions))
        parts.append(output.Styled('kingdom answer TASK "…" answers', "dim"))
    if overview.problems:
        problems = [(output.Styled(one.what, "red"), one.why) for one in overview.problems]
        parts.append(output.Table(("problem", "why"), problems))
    return parts


def _condition(overview: CourtOverview) -> list[output.Part]:
    """Return the first lines: health, budget, alerts, and what needs a person."""
    here = next((one for one in overview.machines if one.here), None)
    wanted = overview.attention()
    if here is not None and here.joined:
        lines = _condition_elsewhere(overview)
    else:
        alerts = ", ".join(one.name for one in overview.alerts)
        lines = _levels(overview, alerts, "bold red" if overview.alerts else "green")
        lines += [] if wanted else [output.Styled("Nothing needs a person.", "green")]
    if not wanted:
        return lines
    return [*lines, output.Styled("Needs a person:", "bold"), *(output.Styled(f"  - {one}", "bold") for one in wanted)]


def _levels(overview: CourtOverview, alerts: str, style: str) -> list[output.Part]:
    health, budget = overview.health, overview.budget
    spent = f" ({'; '.join(budget.spent)})" if budget.spent else ""
    return [
        output.Styled(
            f"health  {health.level}{f' ({health.reason})' if health.reason and health.level != 'green' else ''}",
            _LEVEL_STYLES.get(health.level, ""),
        ),
        output.Styled(f"budget  {budget.status}{spent}", _LEVEL_STYLES.get(budget.status, "")),
        output.Styled(f"alerts  {alerts or 'none'}", style),
    ]


def _condition_elsewhere(overview: CourtOverview) -> list[output.Part]:
    """Say on a machine that runs generals only what the machine that leads says of the court: it may not know more."""
    leader = next((one for one in overview.machines if one.leads), None)
    if leader is None:
        return []
    court = leader.court if leader.state == "active" else None
    if court is None:
        return [output.Styled(f"{leader.name} leads the court: its status shows open questions and alerts", "dim")]
    found = [output.plural(court.questions, "open question")] if court.questions else []
    found += [output.plural(court.alerts, "alert")] if court.alerts else []
    found += [f"{court.held} held back"] if court.held else []
    several = court.questions + court.alerts + court.held > 1
    said = (
        f"{', '.join(found)}; its status shows {'them' if several else 'it'}"
        if found
        else "no open questions, no alerts"
    )
    lines = _levels(overview, str(court.alerts or ""), "bold red" if court.alerts else "green")
    return [*lines, output.Styled(f"{leader.name} leads the court: {said}", "bold" if found else "dim")]


def _minute(text: str | None, timezone: str) -> str:
    """Return a time of a document for people, in the court's zone."""
    from zoneinfo import ZoneInfo

    from kingdom.base.times import epoch_seconds
    from kingdom.court.days import local_minute

    at = epoch_seconds(text)
    return "–" if at is None else local_minute(at, ZoneInfo(timezone))


def _roles_table(overview: CourtOverview) -> output.Table:
    rows = [
        (
            role.name,
            output.Styled(role.state, _ROLE_STYLES.get(role.state, "dim")),
            role.pid or "–",
            duration_or_dash(role.heartbeat_seconds),
            role.reason,
        )
        for role in overview.roles
    ]
    return output.Table(("role", "state", "pid", "heartbeat", "why"), rows, right=("pid", "heartbeat"))


def _queue_row(name: str, counts: dict[str, int], oldest: float) -> tuple[Any, ...]:
    numbers = list(counts.values())
    waiting, processing, bad = (numbers[0], 0, numbers[1]) if len(numbers) == 2 else numbers
    shown = output.Styled(f"{bad:,}", "red" if bad else "")
    return name, f"{waiting:,}", f"{processing:,}", shown, format_duration(oldest) if waiting else "–"


def _hold_cells(detail: Any) -> tuple[Any, str]:
    """Return the count and a few ids. The king writes a detail as a number or as an object."""
    if isinstance(detail, dict):
        samples = next((value for value in detail.values() if isinstance(value, list)), [])
        return detail.get("count", len(samples)), ", ".join(str(one) for one in samples)
    return detail, ""


@command()
@home_option
@json_option
def doctor(home: Path | None, json: bool) -> None:
    """Check the court and everything it needs.

    Checks the home, its configuration, the generals, their engines, git, the disk, the queues and the processes. Exits
    1 when a check finds an error.
    """
    import asyncio
    import time

    from kingdom.court.doctor import run_checks

    court = find_home(home)
    with errors_reported():
        checks = asyncio.run(run_checks(court, time.time, waiting_shown))
    report_checks(checks, json=json)


@command()
@argument("traced", metavar="ID", help="The id of an event, task or message; or SHOP-7, acme/shop#12, its address.")
@home_option
@json_option
def trace(traced: str, home: Path | None, json: bool) -> None:
    """Show the history of an event, task, message, issue or ticket.

    The history is in time order, from all files that mention the id. That of an issue, a pull request or a ticket is
    the history of all tasks about it.
    """
    from kingdom.court.history import read_history

    lines = with_court(home, lambda services: read_history(services, traced))
    if not lines:
        raise output.CommandError(
            "NOT_FOUND", f"no file here mentions {traced}: kingdom task ls lists tasks, kingdom status shows problems"
        )
    if json:
        output.print_json({"id": traced, "story": [line.document() for line in lines]})
    else:
        _print_history(find_home(home), lines)


def _print_history(home: Home, lines: Sequence[HistoryLine]) -> None:
    """Print a history as a table. On a narrow terminal the files are left out, and the date of each line."""
    from kingdom.court.config import court_zone
    from kingdom.court.days import local_time

    zone = court_zone(home)
    narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < _WIDE_COLUMNS
    columns = ["date", f"time ({zone.key})", "after", "who", "what", "where"]
    rows = []
    for line in lines:
        day, clock = local_time(line.at, zone, millis=not line.whole).split(" ")
        after = int(line.at - lines[0].at)
        rows.append([day, clock, f"+{format_duration(after)}" if after else "0s", line.who, line.what, line.where])
    if narrow:
        output.say(f"{rows[0][0]}, times in {zone.key}; --json names the files")
        columns, rows = ["time", *columns[2:5]], [row[1:5] for row in rows]
    output.print_table(columns, rows, right=("after",))


@command()
@click.option("--serve", is_flag=True, help="Serve them until interrupted, instead of printing.")
@click.option("--port", type=click.IntRange(0, 65535), default=9465, help="The port to serve on; 0 takes a free one.")
@click.option("--host", default="127.0.0.1", help="The address to serve on.")
@click.option("--every", type=DURATION, default="15s", help="How often the court is read.")
@click.option("--prefix", default="kingdom", help="The prefix of the metric names.")
@home_option
@json_option
def metrics(serve: bool, port: int, host: str, every: float, prefix: str, home: Path | None, json: bool) -> None:
    """Print or serve the metrics of the court for Prometheus."""
    with_court(home, lambda services: _print_or_serve(services, serve, host, port, every, prefix, json), lasting=serve)


async def _print_or_serve(
    services: Services, serve: bool, host: str, port: int, every: float, prefix: str, json: bool
) -> None:
    import asyncio

    from prometheus_client import CollectorRegistry, generate_latest

    from kingdom.court.metrics import CourtMetrics

    collector = CourtMetrics(services, prefix)
    await collector.sample()
    registry = CollectorRegistry()
    registry.register(collector)
    if not serve:
        text = generate_latest(registry).decode()
        if json:
            output.print_json({"metrics": text})
        else:
            output.say(text.rstrip())
        return
    with serve_metrics(registry, host, port, json=json):
        while True:
            await asyncio.sleep(every)
            await collector.sample()
