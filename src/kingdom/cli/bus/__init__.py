"""``kingdom bus …``: look after a bus. Every command takes ``--url`` and, for programs, ``--json``."""

from __future__ import annotations

import typer

from kingdom.cli import output
from kingdom.cli.bus.bench import bench
from kingdom.cli.bus.dead import dead
from kingdom.cli.bus.demo import demo
from kingdom.cli.bus.depth import depth
from kingdom.cli.bus.doctor import doctor
from kingdom.cli.bus.ls import ls
from kingdom.cli.bus.metrics import metrics
from kingdom.cli.bus.migrate import migrate
from kingdom.cli.bus.purge import purge
from kingdom.cli.bus.requeue import requeue
from kingdom.cli.bus.show import show

app = typer.Typer()


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Look after an event bus.

    What waits, what failed and why, and what to do about it.
    """
    output.help_when_alone(context)


for _command in (depth, ls, dead, show, requeue, purge, migrate, doctor, bench, metrics, demo):
    app.command()(_command)
