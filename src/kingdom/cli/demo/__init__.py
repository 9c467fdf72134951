"""``kingdom demo`` and ``kingdom bus demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kingdom.cli import output
from kingdom.cli.options import PATH
from kingdom.cli.parsing import command
from kingdom.cli.session import run_async

if TYPE_CHECKING:
    from kingdom.cli.demo.shared import Proof

folder_option = click.option(
    "--dir", "folder", type=PATH, metavar="DIR", help="Where to put its files. [default: a new temporary directory]"
)
proof_json_option = click.option("--json", is_flag=True, help="Print only the proof, as one JSON document.")


@command()
@folder_option
@proof_json_option
def demo(folder: Path | None, json: bool) -> None:
    """Show a court at work in a temporary folder.

    Creates a court whose soldiers play a script, and a small git repository. Gives the court a review, a ticket and a
    release, kills its king with SIGKILL, answers the question that comes up, and shows that everything was done once.
    Takes about ten seconds, needs no configuration, and leaves nothing running. Exits 0 only when every event was
    completed with the expected result.
    """
    from kingdom.cli.demo.court import build_court_site, run_court_demo
    from kingdom.cli.demo.shared import choose_view
    from kingdom.cli.session import errors_reported

    with errors_reported():
        site = build_court_site(folder)
    _print_proof(run_async(lambda: run_court_demo(site, choose_view(quiet=json))), json=json)


@command("demo")
@click.option("--transport", type=click.Choice(("sqlite", "files")), default="sqlite", help="The transport to use.")
@click.option("--events", type=click.IntRange(40, 5000), default=200, help="How many events to publish.")
@folder_option
@proof_json_option
def bus_demo(transport: str, events: int, folder: Path | None, json: bool) -> None:
    """Kill a worker half way and show that nothing is lost.

    Publishes events, kills a worker process with SIGKILL half way, and lets another one finish. Takes about ten
    seconds, needs no configuration, and leaves nothing running. Exits 0 only when every event was handled and took
    effect exactly once.
    """
    from kingdom.cli.demo.bus import BusDemoSite, run_bus_demo
    from kingdom.cli.demo.shared import choose_view

    site = BusDemoSite.build(transport, events, folder)
    _print_proof(run_async(lambda: run_bus_demo(site, choose_view(quiet=json))), json=json)


def _print_proof(proof: Proof, *, json: bool) -> None:
    if json:
        output.print_json(proof.document)
    else:
        for line in proof.lines():
            output.say(line)
    if not proof.holds:
        raise click.exceptions.Exit(output.FAILED)
