"""``kingdom task transcript``: what the soldiers of a task said and did."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kingdom.cli import output
from kingdom.cli.court.options import TaskId
from kingdom.cli.court.session import in_court
from kingdom.cli.home import HomeOption, find_home


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
    from kingdom.agents.engines import default_engines
    from kingdom.court.commands import find_task
    from kingdom.court.soldiers import soldiers_of
    from kingdom.court.transcripts import told_by

    in_court(home, lambda services: find_task(services, task_id))
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
        with last.transcript.open("rb") as file:
            for line in file:
                sys.stdout.write(output.clean(line.decode(errors="replace")))
        return
    output.say(f"# {last.id}, {last.order.engine}: {last.transcript}")
    for line_ in told_by(last, default_engines()):
        output.say(line_)
