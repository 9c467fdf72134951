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
        with last.transcript.open("rb") as file:
            for line in file:
                sys.stdout.write(output.clean(line.decode(errors="replace")))
        return
    output.say(f"# {last.id}, {last.order.engine}: {last.transcript}")
    for line_ in told_by(last):
        output.say(line_)


def told_by(soldier: Soldier) -> Iterator[str]:
    """What a soldier said and did, in lines for people."""
    from kingdom.agents.engines import default_engines
    from kingdom.agents.transcript import Transcript, words

    engines = default_engines()
    if soldier.order.engine in engines:
        said = map(words, Transcript(soldier.transcript, soldier.order, engines).read_on())
        yield from filter(None, said)
    else:  # an engine that is not installed any more: nobody knows how to read it
        with soldier.transcript.open("rb") as file:
            for raw in file:
                yield raw.rstrip(b"\n").decode(errors="replace")
