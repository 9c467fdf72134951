"""``kingdom workflow``: run agents in steps, with git checkpoints to go back to."""

from __future__ import annotations

import typer

from kingdom.cli import output
from kingdom.cli.workflow.control import cancel, engine, pause, resume, rm, start
from kingdom.cli.workflow.inspection import diff, log, ls, show, verify
from kingdom.cli.workflow.plans import create, fork, modify
from kingdom.cli.workflow.watch import watch

app = typer.Typer()


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Run agents in steps, with checkpoints to go back to."""
    output.show_help_if_no_command(context)


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
