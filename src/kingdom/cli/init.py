"""``kingdom init``: make the home of a court."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.home import errors_told

if TYPE_CHECKING:
    from kingdom.court.founding import Founded


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that becomes the home of the court.")],
    general: Annotated[
        list[str] | None,
        typer.Option(
            "--general",
            metavar="NAME",
            help="A general to begin with, instead of gen-pr and gen-briefing; may be repeated.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also in a folder that has something else in it. Overwrites nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Make a folder the home of a court: folders, queues, configuration, generals to begin with.

    Repeated, it adds what is missing and changes nothing else.
    """
    import asyncio

    from kingdom.court.founding import found

    with errors_told():
        founded = asyncio.run(found(directory, general, force=force))
    if json:
        output.emit({"home": str(founded.home.root), "new": founded.anew, "made": founded.made})
    else:
        _tell(founded, directory)


def _tell(founded: Founded, directory: Path) -> None:
    for name in founded.made:
        output.say(f"  + {name}")
    if not founded.made:
        output.say(f"{founded.home.root} is complete: nothing was changed")
        return
    if not founded.anew:
        output.say(f"{founded.home.root} is complete again; nothing that was there was changed")
        return
    output.say(f"{founded.home.root} is the home of a court now. What comes next:")
    if founded.home.root != Path.cwd():
        output.say(f"  cd {directory}")
    output.say("  kingdom general ls                         who is there, and what they hear")
    output.say("  kingdom doctor                             whether everything they need is installed")
    output.say("  kingdom up                                 start the court")
    output.say("  kingdom emit github.pr.review_requested …  give it something to do")
    output.say("config/system.yaml has the settings, config/generals/ the generals: read them, change them.")
