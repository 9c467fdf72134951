"""Commands that start and stop a court: up, down, role, service."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kingdom.cli import output
from kingdom.cli.options import DURATION, format_duration, home_option, json_option
from kingdom.cli.parsing import argument, command
from kingdom.cli.session import errors_reported, find_home

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.home import Home
    from kingdom.court.supervisor.logs import Announce
    from kingdom.web.record import ServerRecord

# KillMode=process: soldiers run in sessions of their own and are adopted at the next start.
_SYSTEMD_UNIT: Final = """\
[Unit]
Description=Kingdom court in {home}
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
{user}ExecStart={program} up --home {quoted}
ExecStop={program} down --home {quoted}
WorkingDirectory={home}
Environment="PATH={path}"
{variables}EnvironmentFile={home}/.env
KillMode=process
Restart=on-failure
RestartSec=5
TimeoutStopSec=60

[Install]
WantedBy={target}
"""


@command()
@click.option("--inline", is_flag=True, help="Run all roles in this process.")
@click.option("--daemon", "-d", is_flag=True, help="Run in the background and write to logs/supervisor.log.")
@click.option("--roles", metavar="NAME,NAME", help="Run only these roles.")
@home_option
def up(inline: bool, daemon: bool, roles: str | None, home: Path | None) -> None:
    """Start the court and restart roles that die.

    Runs one process for each role. Ctrl-C or `kingdom down` stops it. A general that is installed meanwhile is started,
    one that is removed is stopped, one whose manifest changes is restarted. Soldiers keep running when the court stops:
    their generals adopt them at the next start.
    """
    import asyncio

    from kingdom.court.bootstrap import configured_sandbox
    from kingdom.court.config import load_system
    from kingdom.court.doctor import engine_problems
    from kingdom.court.erasure.plan import check_no_removal
    from kingdom.court.machines.capacity import machine_state
    from kingdom.court.supervisor.logs import ConsoleWriter, configure_logging
    from kingdom.court.supervisor.record import running_supervisor

    court = find_home(home)
    with errors_reported():
        check_no_removal(court)
        system = load_system(court)
        system.queue_url(court)
        if system.machine is not None and machine_state(court) == "left":
            raise output.CommandError(
                "LEFT_COURT",
                f"{system.machine.name} has left the court: kingdom join makes it a machine of the court again",
            )
        if (record := running_supervisor(court)) is not None:
            raise output.CommandError(
                "ALREADY_RUNNING",
                f"the court in {court.root} is already up (pid {record.supervisor.pid}): "
                "kingdom status shows it, kingdom down stops it",
            )
        for problem in asyncio.run(engine_problems(court)):
            output.warn(problem)
        only = [name.strip() for name in roles.split(",") if name.strip()] if roles is not None else None
        say = ConsoleWriter()
        configure_logging("supervisor", say, court)
        sandbox = configured_sandbox(system)
        if sandbox.mode != "off" and (unconfined := sandbox.problem()) is not None:
            output.warn(unconfined)
        if daemon:
            _run_in_background(court, only, inline=inline)
        else:
            _run_court(court, say, only, inline=inline, follow=True)


def _run_in_background(court: Home, only: list[str] | None, *, inline: bool) -> None:
    from kingdom.court.supervisor.logs import ConsoleWriter, configure_logging
    from kingdom.court.supervisor.process import detach

    log = court.logs / "supervisor.log"

    def run(ready: Callable[[], None]) -> None:
        say = ConsoleWriter()
        configure_logging("supervisor", say, court)
        _run_court(court, say, only, inline=inline, follow=False, ready=ready)

    pid = detach(log, run)
    output.say(f"the court is up (pid {pid}): kingdom status shows it, kingdom down stops it")
    _print_dashboard_url(court, only)


def _print_dashboard_url(court: Home, only: list[str] | None) -> None:
    from kingdom.court.bootstrap import available_roles
    from kingdom.court.config import load_system
    from kingdom.web.record import starting_server, url_of

    system = load_system(court)
    web = system.web
    if "web" not in available_roles(court) or (only is not None and "web" not in only):
        return
    if sys.stdout.isatty() and (running := starting_server(court.root)) is not None:
        _say_link(court, running)
    elif web.port:
        when = "" if system.machine is None else " when this machine leads"
        output.say(f"the dashboard starts at {url_of(web.host, web.port)}{when}: kingdom web --link logs a browser in")


class _LinkAnnouncer:
    """Prints the link that logs a browser in once the web server runs; on a terminal only: it contains the token."""

    def __init__(self, court: Home) -> None:
        self._court = court
        self._done = not sys.stdout.isatty()

    def __call__(self) -> None:
        from kingdom.web.record import running_server

        if not self._done and (running := running_server(self._court.root)) is not None:
            self._done = True
            _say_link(self._court, running)


def _say_link(court: Home, running: ServerRecord) -> None:
    from kingdom.web.security.credentials import login_link, obtain_token

    output.say(f"the dashboard is at {running.url}; log in with {login_link(running.url, obtain_token(court.root))}")


def _together(*functions: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        for function in functions:
            function()

    return call


def _run_court(
    court: Home,
    say: Announce,
    only: list[str] | None,
    *,
    inline: bool,
    follow: bool,
    ready: Callable[[], None] = lambda: None,
) -> None:
    from kingdom.court.supervisor.logs import JournalFollower, with_system_log

    meanwhile = _together(JournalFollower(court, say), _LinkAnnouncer(court)) if follow else None
    say = with_system_log(court, say)
    if inline:
        import asyncio

        from kingdom.court.supervisor.inline import run_inline

        asyncio.run(run_inline(court, say, only=only, meanwhile=meanwhile, ready=ready))
    else:
        from kingdom.court.supervisor.supervisor import Supervisor

        Supervisor(court, say, only=only, meanwhile=meanwhile).run(ready)


@command()
@click.option("--soldiers", is_flag=True, help="Stop the running soldiers as well.")
@click.option("--timeout", type=DURATION, default="1m", help="How long to wait for the roles.")
@home_option
@json_option
def down(soldiers: bool, timeout: float, home: Path | None, json: bool) -> None:
    """Stop the court.

    Running soldiers continue, and their generals adopt them when the court starts again; --soldiers stops them too.
    In a court on several machines it stops this one, and the others go on.
    """
    from kingdom.court.machines.listing import read_machines
    from kingdom.court.soldiers import all_soldiers

    court = find_home(home)
    with errors_reported():
        was_up = stop_roles(court, timeout)
        alive = [soldier for soldier in all_soldiers(court) if soldier.alive]
        if soldiers:
            for soldier in alive:
                soldier.interrupt()
            alive = [soldier for soldier in alive if not soldier.wait(timeout)]
            if alive:
                raise output.CommandError(
                    "STILL_RUNNING",
                    f"soldiers still running after {format_duration(timeout)}: {', '.join(one.id for one in alive)}; "
                    "run kingdom down --soldiers again",
                )
    if json:
        output.print_json({"was_up": was_up, "soldiers": [soldier.id for soldier in alive]})
        return
    stopped = "is down" if was_up else "was not up"
    machines = [one for one in read_machines(court, time.time()) if not one.here]
    others = [one for one in machines if one.state == "active"]
    names = ", ".join(one.name for one in others)
    if not others:
        silent = ", ".join(one.name for one in machines if one.state == "silent")
        output.say(
            f"this machine {stopped}; nothing was heard of {silent} lately" if silent else f"the court {stopped}"
        )
    elif all(one.joined for one in others):
        output.say(f"this machine {stopped}; new events wait until one leads again (kingdom up); still up: {names}")
    else:
        output.say(f"this machine {stopped}; the court goes on at {names} (kingdom machines)")
    if alive:
        names = ", ".join(soldier.id for soldier in alive)
        output.say(f"{output.plural(len(alive), 'soldier')} still running: {names} (--soldiers stops them)")


def stop_roles(court: Home, timeout: float) -> bool:
    """Stop the roles of a court; return whether it was up."""
    import signal

    from kingdom.court.supervisor.record import read_record

    record = read_record(court)
    if record is None:
        return False
    was_up = record.supervisor.send(signal.SIGTERM)
    if not record.supervisor.wait(timeout):
        raise output.CommandError(
            "STILL_RUNNING",
            f"the court (pid {record.supervisor.pid}) has not stopped after {format_duration(timeout)}: "
            "kingdom status shows what still runs; run kingdom down again",
        )
    # The roles of a supervisor that was killed stop by themselves, unless they hang.
    for role in record.roles.values():
        if role.process is not None and role.process.send(signal.SIGTERM) and not role.process.wait(timeout):
            role.process.send(signal.SIGKILL)
    return was_up


@command()
@argument("name", help="king, envoy, chamberlain, sentinel, or the name of a general.")
@home_option
def role(name: str, home: Path | None) -> None:
    """Run one role in the foreground.

    Runs until interrupted: for a general on another machine, or to watch a role. The envoy accepts answers typed on
    the terminal.
    """
    import asyncio

    from kingdom.court.erasure.plan import check_no_removal
    from kingdom.court.supervisor.logs import ConsoleWriter, configure_logging
    from kingdom.court.supervisor.process import serve_role

    found = find_home(home)
    configure_logging(name, ConsoleWriter(sys.stderr), found)
    with errors_reported():
        check_no_removal(found)
        asyncio.run(serve_role(found, name, foreground=sys.stdin.isatty() and sys.stdout.isatty()))


@command()
@click.option("--system", is_flag=True, help="For the whole machine instead of one user.")
@home_option
@json_option
def service(system: bool, home: Path | None, json: bool) -> None:
    """Print a systemd unit that keeps the court running.

    Save it as ~/.config/systemd/user/kingdom.service, then: systemctl --user enable --now kingdom

    With --system, as /etc/systemd/system/kingdom.service: the court runs as the owner of its home.
    """
    court, found = find_home(home), shutil.which("kingdom")
    unit = _SYSTEMD_UNIT.format(
        home=_for_systemd(str(court.root)),
        quoted=_quoted_for_systemd(str(court.root)),
        program=f"{_quoted_for_systemd(sys.executable)} -m kingdom" if found is None else _quoted_for_systemd(found),
        path=_for_systemd(os.environ.get("PATH", os.defpath)),
        user=_user(court) if system else "",
        variables=_variables(court),
        target="multi-user.target" if system else "default.target",
    )
    if json:
        output.print_json({"unit": unit})
    else:
        output.say(unit.rstrip())


def _user(court: Home) -> str:
    """Return the line that names the owner of the home: without it, systemd runs the court as root."""
    try:
        return f"User={court.root.owner()}\n"
    except KeyError:  # the owner has no name on this machine
        return f"User={court.root.stat().st_uid}\n"


def _variables(court: Home) -> str:
    """Return what precedes EnvironmentFile=: a comment sign, unless the court needs a variable."""
    from kingdom.court.config import load_system
    from kingdom.court.errors import CourtError

    try:
        needed = load_system(court).queue_variable
    except CourtError:  # kingdom up says what is wrong
        needed = None
    return "# " if needed is None else f"# A file that only you can read (chmod 600), with {needed}=postgresql://…\n"


def _for_systemd(text: str) -> str:
    """Double percent signs, which systemd expands otherwise."""
    return text.replace("%", "%%")


def _quoted_for_systemd(path: str) -> str:
    """Quote a path with spaces in a command. Settings with one path, such as WorkingDirectory=, take no quotes."""
    doubled = _for_systemd(path)
    return f'"{doubled}"' if any(character.isspace() for character in doubled) else doubled
