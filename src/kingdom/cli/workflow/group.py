"""``kingdom workflow``: run agents in steps, with git checkpoints to go back to."""

from __future__ import annotations

from kingdom.cli.parsing import group
from kingdom.cli.workflow.changes import diff
from kingdom.cli.workflow.control import answer, cancel, engine, follow_up, pause, resume, rm, start
from kingdom.cli.workflow.inspection import log, ls, show, verify
from kingdom.cli.workflow.land import land, update_base
from kingdom.cli.workflow.modify import modify
from kingdom.cli.workflow.plans import create, fork
from kingdom.cli.workflow.rescues import app as rescue
from kingdom.cli.workflow.watch import watch


@group("workflow")
def app() -> None:
    """Run agents in steps, with checkpoints to go back to."""


for _command in (
    create,
    start,
    watch,
    pause,
    resume,
    answer,
    follow_up,
    cancel,
    modify,
    show,
    diff,
    land,
    update_base,
    log,
    ls,
    rm,
    fork,
    rescue,
    verify,
    engine,
):
    app.add_command(_command)
