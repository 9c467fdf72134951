"""``kingdom bus demo``: a worker is killed half way, and nothing is lost."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kingdom.cli import output


class Transport(StrEnum):
    """Where the demo's bus lives; both need nothing installed."""

    sqlite = "sqlite"
    files = "files"


def demo(
    transport: Annotated[Transport, typer.Option(help="What carries the events.")] = Transport.sqlite,
    events: Annotated[int, typer.Option(min=40, max=5000, help="How many events to publish.")] = 200,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where to put its files. [default: a new temporary directory]"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only the proof, as one JSON document.")] = False,
) -> None:
    """Kill a worker half way, lose nothing.

    Publishes events, ends a worker process with SIGKILL half way, and shows another one finish everything. Takes about
    ten seconds, asks nothing, needs nothing configured, and leaves nothing running. Exits 0 only when every event was
    handled and took effect exactly once.
    """
    import asyncio

    from kingdom.bus import BusError
    from kingdom.cli.bus.demo.story import Stage, tell
    from kingdom.cli.bus.demo.view import choose_view
    from kingdom.cli.bus.session import failure_of

    stage = Stage.build(transport.value, events, folder)
    try:
        proof = asyncio.run(tell(stage, choose_view(quiet=json)))
    except BusError as error:
        raise failure_of(error) from error
    if json:
        output.emit({"url": stage.url, "directory": str(stage.folder), **proof.document()})
    else:
        for line in proof.lines(stage):
            output.say(line)
    if not proof.holds:
        raise typer.Exit(output.FAILED)
