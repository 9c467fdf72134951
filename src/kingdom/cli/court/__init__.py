"""The commands that run a court and look after it. Each takes ``--home`` and, for programs, ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.cli.court.answer import answer
from kingdom.cli.court.doctor import doctor
from kingdom.cli.court.down import down
from kingdom.cli.court.emit import emit
from kingdom.cli.court.metrics import metrics
from kingdom.cli.court.role import role
from kingdom.cli.court.service import service
from kingdom.cli.court.status import status
from kingdom.cli.court.task import app as task_app
from kingdom.cli.court.trace import trace
from kingdom.cli.court.up import up

if TYPE_CHECKING:
    import typer


def register(app: typer.Typer) -> None:
    """Add the commands to the root."""
    for command in (up, down, status, emit, answer, trace, role, doctor, metrics, service):
        app.command()(command)
    app.add_typer(task_app, name="task")
