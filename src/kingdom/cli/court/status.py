"""``kingdom status``: how a court is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.court.session import in_court
from kingdom.cli.durations import format_duration, parse_duration
from kingdom.cli.home import HomeOption, find_home

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Group

    from kingdom.court.loop import Services
    from kingdom.court.overview import Overview

_STYLES: Final = {"running": "green", "failed": "red", "late": "red", "waiting": "yellow", "stopping": "yellow"}


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep looking, until interrupted.")] = False,
    every: Annotated[
        float, typer.Option(parser=parse_duration, metavar="DURATION", help="How often --watch looks.")
    ] = "2s",  # type: ignore[assignment]  # typer parses defaults as well
    home: HomeOption = None,
    json: Json = False,
) -> None:
    """Show who runs, what waits and why, which soldiers work, who is asked, and what went wrong lately."""
    if watch and json:
        raise output.misuse("--watch is for people and --json for programs, which ask again: give one of them")
    if watch:
        in_court(home, lambda services: _watch(services, every))
        return
    overview = _look(home)
    if json:
        output.emit({**overview.document(), "dashboard": _dashboard(overview)})
    else:
        output.console().print(_view(overview))


def _look(home: Path | None) -> Overview:
    """Look at everything, or at what is left to see when the queues cannot be opened: a full disk, a database away."""
    import time

    from kingdom.bus.errors import StorageFull, TransportUnavailable
    from kingdom.court.overview import ProblemView, look, look_beside_queues

    try:
        return in_court(home, look)
    except output.Failure as failure:
        if not isinstance(failure.__cause__, StorageFull | TransportUnavailable):
            raise
        overview = look_beside_queues(find_home(home), time.time())
        overview.problems.insert(0, ProblemView("queues", str(failure)))
        return overview


def _dashboard(overview: Overview) -> str | None:
    """Where the web server of the home is, if one runs."""
    from pathlib import Path

    from kingdom.web.record import running_server

    found = running_server(Path(overview.home))
    return None if found is None else found.url


async def _watch(services: Services, every: float) -> None:
    import asyncio

    from rich.live import Live

    from kingdom.court.overview import look

    console = output.console()
    if not sys.stdout.isatty():
        while True:
            console.print(_view(await look(services)))
            await asyncio.sleep(every)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(_view(await look(services)), refresh=True)
            await asyncio.sleep(every)


def _view(overview: Overview) -> Group:
    from rich.console import Group

    parts: list[Any] = []
    if overview.running:
        inline = ", all roles in one process" if overview.mode == "inline" else ""
        parts.append(_text(f"{overview.home}: up (pid {overview.supervisor_pid}{inline})", "bold green"))
    else:
        parts.append(_text(f"{overview.home}: not up (kingdom up starts it)", "bold"))
    if (url := _dashboard(overview)) is not None:
        parts.append(_text(f"dashboard: {url} (kingdom web --link logs a browser in)", "dim"))
    parts.append(_roles(overview))
    columns = ("queue", "waiting", "held", "invalid or failed", "oldest")
    rows = [_queue_row(queue.name, queue.counts, queue.oldest_seconds) for queue in overview.queues]
    parts.append(output.table(columns, rows, right=columns[1:]))
    if overview.holds:
        held = [(reason, *_hold(detail)) for reason, detail in overview.holds.items()]
        parts.append(output.table(("held back because", "events", "such as"), held, right=("events",)))
    if overview.soldiers:
        soldiers = [
            (one.id, one.task_id, one.general, one.engine, one.pid or "–", _span(one.seconds))
            for one in overview.soldiers
        ]
        parts.append(output.table(("soldier", "task", "general", "engine", "pid", "for"), soldiers))
    if overview.questions:
        questions = [
            (one.task_id, one.general, one.question, " | ".join(one.choices), one.deadline or "–")
            for one in overview.questions
        ]
        parts.append(output.table(("asks", "general", "question", "choices", "until"), questions))
        parts.append(_text('kingdom answer TASK "…" answers', "dim"))
    if overview.problems:
        problems = [(output.styled(one.what, "red"), one.why) for one in overview.problems]
        parts.append(output.table(("problem", "why"), problems))
    return Group(*parts)


def _roles(overview: Overview) -> Any:
    rows = [
        (
            role.name,
            output.styled(role.state, _STYLES.get(role.state, "dim")),
            role.pid or "–",
            _span(role.heartbeat_seconds),
            role.reason,
        )
        for role in overview.roles
    ]
    return output.table(("role", "state", "pid", "heartbeat", "why"), rows, right=("pid", "heartbeat"))


def _queue_row(name: str, counts: dict[str, int], oldest: float) -> tuple[Any, ...]:
    numbers = list(counts.values())
    waiting, held, bad = (numbers[0], 0, numbers[1]) if len(numbers) == 2 else numbers
    shown = output.styled(f"{bad:,}", "red" if bad else "")
    return name, f"{waiting:,}", f"{held:,}", shown, format_duration(oldest) if waiting else "–"


def _hold(detail: Any) -> tuple[Any, str]:
    """How many, and a few ids, in whichever of its forms the king told it."""
    if isinstance(detail, dict):
        samples = next((value for value in detail.values() if isinstance(value, list)), [])
        return detail.get("count", len(samples)), ", ".join(str(one) for one in samples)
    return detail, ""


def _span(seconds: float | None) -> str:
    return "–" if seconds is None else format_duration(seconds)


def _text(words: str, style: str) -> Any:
    return output.styled(words, style)
