"""``kingdom workflow …``: agent work in steps, with git checkpoints one can go back to."""

from __future__ import annotations

import typer

from kingdom.cli import output
from kingdom.cli.workflow.control import cancel, pause, resume, rm, start
from kingdom.cli.workflow.create import create
from kingdom.cli.workflow.diff import diff
from kingdom.cli.workflow.engine import engine
from kingdom.cli.workflow.fork import fork
from kingdom.cli.workflow.log import log
from kingdom.cli.workflow.ls import ls
from kingdom.cli.workflow.modify import modify
from kingdom.cli.workflow.show import show
from kingdom.cli.workflow.verify import verify
from kingdom.cli.workflow.watch import watch

app = typer.Typer()


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Have agents work in steps, watch them, look at checkpoints, go back to one, change the plan, go on."""
    output.help_when_alone(context)


for _command in (
    create,
    start,
    watch,
    pause,
    resume,
    cancel,
    modify,
    show,
    diff,
    log,
    ls,
    rm,
    fork,
    verify,
    engine,
):
    app.command()(_command)
