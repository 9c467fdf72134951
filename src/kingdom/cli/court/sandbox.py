"""Commands about the confinement of agents: a proof, and a shell that sees what an agent sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kingdom.cli import output
from kingdom.cli.options import home_option, json_option, task_argument
from kingdom.cli.parsing import group
from kingdom.cli.session import errors_reported, find_home

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.agents.sandbox.sandbox import Sandbox

_CHUNK_BYTES: Final = 65536


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
    import sys

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
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    session = ("setsid", "--ctty", "--wait") if terminal else ()  # the shell can then control its jobs
    argv = [*session, os.environ.get("SHELL") or "/bin/sh"]
    line = sandbox.isolated(sandbox.command(order, Confinement(), argv, environment, reports=False))
    if terminal:
        raise click.exceptions.Exit(_run_in_own_terminal(line, environment))
    os.execve(line[0], line, environment)  # noqa: S606


def _run_in_own_terminal(argv: list[str], environment: dict[str, str]) -> int:
    """Run a program in a terminal of its own and show it here; return its exit code.

    A program that has the person's own terminal could type commands into it, for the shell outside.
    """
    import fcntl
    import os
    import pty
    import signal
    import subprocess
    import termios
    import tty

    terminal, inner = pty.openpty()

    def follow_size(*_: object) -> None:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))

    follow_size()
    process = subprocess.Popen(  # noqa: S603
        argv, stdin=inner, stdout=inner, stderr=inner, env=environment, start_new_session=True
    )
    os.close(inner)
    settings = termios.tcgetattr(0)
    signal.signal(signal.SIGWINCH, follow_size)
    try:
        tty.setraw(0)
        _copy_terminal(terminal)
    finally:
        termios.tcsetattr(0, termios.TCSAFLUSH, settings)
        os.close(terminal)
    return process.wait()


def _copy_terminal(terminal: int) -> None:
    """Pass on what is typed here, and what the program prints, until it closes its terminal."""
    import os
    import select

    while True:
        ready, _, _ = select.select((0, terminal), (), ())
        if terminal in ready:
            try:
                printed = os.read(terminal, _CHUNK_BYTES)
            except OSError:  # how Linux says that the other end is closed
                return
            os.write(1, printed)
        if 0 in ready:
            typed = os.read(0, _CHUNK_BYTES)
            if not typed:
                return
            os.write(terminal, typed)


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
