"""``kingdom task transcript``: what the soldiers of a task said and did."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.court.options import TaskId
from kingdom.cli.court.session import in_court, task_or_failure
from kingdom.cli.home import HomeOption, find_home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.agents.port import AgentEvent
    from kingdom.court.soldiers import Soldier


def transcript(
    task_id: TaskId,
    soldier: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Of this soldier; without it, of the last one.", show_default=False),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Every line as the agent wrote it.")] = False,
    home: HomeOption = None,
) -> None:
    """Show what a soldier of the task said and did."""
    from kingdom.court.soldiers import soldiers_of

    in_court(home, lambda services: task_or_failure(services, task_id))
    found = soldiers_of(find_home(home), task_id)
    chosen = [one for one in found if soldier in (None, one.id)]
    if not chosen:
        names = ", ".join(one.id for one in found) or "none"
        who = "no soldier was on it yet" if soldier is None else f"no soldier {soldier} was on it"
        raise output.Failure("NOT_FOUND", f"{task_id}: {who} (there were: {names})")
    last = chosen[-1]
    if not last.transcript.exists():
        raise output.Failure("NOT_FOUND", f"{last.transcript} is gone: transcripts are kept for some days only")
    if raw:
        for line in last.transcript.open("rb"):
            sys.stdout.write(output.clean(line.decode(errors="replace")))
        return
    output.say(f"# {last.id}, {last.order.engine}: {last.transcript}")
    for line_ in _told(last):
        output.say(line_)


def _told(soldier: Soldier) -> Iterator[str]:
    from kingdom.agents.engines import default_engines

    engine = default_engines().get(soldier.order.engine)
    reader = engine.reader(soldier.order) if engine is not None and hasattr(engine, "reader") else None
    with soldier.transcript.open("rb") as file:
        for raw in file:
            line = raw.rstrip(b"\n")
            if reader is None:
                yield line.decode(errors="replace")
                continue
            for event in reader.feed(line):
                if words := _words(event):
                    yield words


def _words(event: AgentEvent) -> str:
    from kingdom.agents import port

    if isinstance(event, port.Began):
        return f"began {' '.join(part for part in (event.model, event.session_id) if part)}".strip()
    if isinstance(event, port.Text):
        return event.text
    if isinstance(event, port.ToolUse):
        return f"→ {event.name} {event.detail}".rstrip()
    if isinstance(event, port.RateLimit):
        return f"rate limit: {event.status}"
    if isinstance(event, port.Finished):
        return f"finished: {event.error or ('ok' if event.ok else 'not ok')}"
    return ""
