"""``kingdom bus``: inspect and operate a bus. Every command takes ``--url`` and, for programs, ``--json``."""

from __future__ import annotations

import typer

from kingdom.cli import output
from kingdom.cli.bus.inspection import dead, depth, doctor, ls, metrics, show
from kingdom.cli.bus.maintenance import bench, migrate, purge, requeue
from kingdom.cli.demo import bus_demo

app = typer.Typer()


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Inspect and operate an event bus.

    Shows what is waiting and what failed, and requeues or purges events.
    """
    output.show_help_if_no_command(context)


for _command in (depth, ls, dead, show, requeue, purge, migrate, doctor, bench, metrics):
    app.command()(_command)
app.command("demo")(bus_demo)
