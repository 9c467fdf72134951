"""``kingdom demo``: a whole court at work, in a temporary folder, without a model or an account."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kingdom.cli import output


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

    from kingdom.cli.demo.play import perform
    from kingdom.cli.demo.stage import build
    from kingdom.cli.demo.view import choose_view
    from kingdom.cli.home import errors_told

    with errors_told():
        stage = build(folder)
        proof = asyncio.run(perform(stage, choose_view(quiet=json)))
    if json:
        output.emit(proof.document())
    else:
        for line in proof.lines():
            output.say(line)
    if not proof.holds:
        raise typer.Exit(output.FAILED)
