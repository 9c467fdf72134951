"""Commands about the confinement of agents: a proof, and a shell that sees what an agent sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kingdom.cli import output
from kingdom.cli.options import home_option, json_option, task_argument
from kingdom.cli.parsing import group
from kingdom.cli.session import errors_reported, find_home

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.agents.sandbox.sandbox import Sandbox


@group("sandbox")
def app() -> None:
    """Prove the sandbox of agents, or look around in it."""


@app.command("check")
@home_option
@json_option
def check(home: Path | None, json: bool) -> None:
    """Try to get out of the sandbox in every known way.

    Puts bait outside a sandbox, tries to reach it from inside, and prints each attempt. Exits 1 when one succeeds.
    """
    from kingdom.agents.sandbox.proof import prove

    sandbox = _sandbox(home)
    try:
        attempts = prove(sandbox)
    except OSError as error:
        raise output.CommandError("SANDBOX", str(error)) from None
    escaped = [attempt for attempt in attempts if attempt.escaped]
    if json:
        output.print_json(
            {
                "attempts": [{"name": one.name, "escaped": one.escaped, "detail": one.detail} for one in attempts],
                "escaped": len(escaped),
            }
        )
    else:
        for one in attempts:
            output.say(f"{'GOT OUT' if one.escaped else 'stopped'}  {one.words}")
        output.say(f"{len(attempts)} attempts, {len(escaped)} got out")
    if escaped:
        raise click.exceptions.Exit(output.FAILED)


@app.command("shell")
@task_argument
@home_option
def shell(task_id: str, home: Path | None) -> None:
    """Open a shell that sees what the agent of a task sees.

    The files and the missing network are those of the task's last soldier. What you change in its worktree stays.
    """
    import os

    from kingdom.agents.engine import Confinement, inherited_environment
    from kingdom.court.soldiers import soldiers_of_task

    court = find_home(home)
    sandbox = _sandbox(home)
    with errors_reported():
        soldiers = soldiers_of_task(court, task_id)
    if not soldiers:
        raise output.CommandError("NO_SOLDIER", f"{task_id} has no soldier on record: kingdom task ls shows the tasks")
    order = soldiers[-1].order
    if not order.cwd.is_dir():
        raise output.CommandError("NO_WORKTREE", f"the worktree of {task_id} is gone: {order.cwd}")
    environment = sandbox.environment(inherited_environment(os.environ))
    argv = [os.environ.get("SHELL") or "/bin/sh"]
    line = sandbox.isolated(sandbox.command(order, Confinement(), argv, environment, reports=False))
    os.execve(line[0], line, environment)  # noqa: S606


def _sandbox(home: Path | None) -> Sandbox:
    """Return the sandbox of the court, or the default one where there is no court."""
    from kingdom.agents.errors import SandboxUnavailable
    from kingdom.agents.sandbox.sandbox import Sandbox
    from kingdom.court.bootstrap import configured_sandbox
    from kingdom.court.config import load_system
    from kingdom.court.errors import CourtError

    try:
        made = configured_sandbox(load_system(find_home(home)))
    except (output.CommandError, CourtError):
        if home is not None:
            raise
        made = Sandbox()
    try:
        made.confines("required")
    except SandboxUnavailable as error:
        raise output.CommandError("SANDBOX_UNAVAILABLE", str(error)) from None
    return made
