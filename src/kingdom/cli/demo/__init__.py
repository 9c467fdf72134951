"""``kingdom demo`` and ``kingdom bus demo``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kingdom.cli import output

# ``kingdom demo``: a whole court at work, in a temporary folder, without a model or an account.


def demo(
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where to put the court. [default: a new temporary directory]"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only what came of it, as one JSON document.")] = False,
) -> None:
    """See a court at work: events become tasks, soldiers do them, a person is asked.

    Makes a court in a temporary directory, with generals whose soldiers play a script, and a small git repository.
    Gives it a review, a ticket and a release, ends its king with SIGKILL half way, answers the question that comes up,
    and shows that everything was finished once. Takes about ten seconds, needs nothing configured, leaves nothing
    running. Exits 0 only when every event was completed and did what it should.
    """
    import asyncio

    from kingdom.cli.demo.court import build_court_site, run_court_demo
    from kingdom.cli.demo.view import choose_court_view
    from kingdom.cli.session import court_errors_reported

    with court_errors_reported():
        stage = build_court_site(folder)
        proof = asyncio.run(run_court_demo(stage, choose_court_view(quiet=json)))
    if json:
        output.print_json(proof.document())
    else:
        for line in proof.lines():
            output.say(line)
    if not proof.holds:
        raise typer.Exit(output.FAILED)


# ``kingdom bus demo``: a worker is killed half way, and nothing is lost.


class DemoTransport(StrEnum):
    """Where the demo's bus lives; both need nothing installed."""

    sqlite = "sqlite"
    files = "files"


def bus_demo(
    transport: Annotated[DemoTransport, typer.Option(help="What carries the events.")] = DemoTransport.sqlite,
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
    from kingdom.cli.demo.bus import BusDemoSite, run_bus_demo
    from kingdom.cli.demo.view import choose_bus_view
    from kingdom.cli.session import bus_error

    stage = BusDemoSite.build(transport.value, events, folder)
    try:
        proof = asyncio.run(run_bus_demo(stage, choose_bus_view(quiet=json)))
    except BusError as error:
        raise bus_error(error) from error
    if json:
        output.print_json({"url": stage.url, "directory": str(stage.folder), **proof.document()})
    else:
        for line in proof.lines(stage):
            output.say(line)
    if not proof.holds:
        raise typer.Exit(output.FAILED)
