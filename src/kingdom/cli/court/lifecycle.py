"""Commands that create, start and stop a court: init, up, down, role, service."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kingdom.cli import output
from kingdom.cli.options import DURATION, PATH, format_duration, home_option, json_option
from kingdom.cli.parsing import argument, command
from kingdom.cli.session import errors_reported, find_home

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.home import Home
    from kingdom.court.init_home import HomeChoices, InitResult, SharedQueues
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
ExecStart={program} up --home {home}
ExecStop={program} down --home {home}
WorkingDirectory={home}
Environment=PATH={path}
# EnvironmentFile={home}/.env
KillMode=process
Restart=on-failure
RestartSec=5
TimeoutStopSec=60

[Install]
WantedBy={target}
"""


@command()
@argument(
    "directory",
    type=PATH,
    metavar="DIR",
    required=False,
    help="The folder that becomes the home of the court. Default: court, or the home you are in.",
)
@click.option(
    "--general",
    multiple=True,
    metavar="NAME",
    help="A general to install, instead of gen-pr and gen-briefing; may be repeated.",
)
@click.option("--engine", type=click.Choice(["claude", "codex"]), help="The engine of the generals. [default: claude]")
@click.option("--repo", multiple=True, metavar="OWNER/NAME", help="A GitHub repository to watch; may be repeated.")
@click.option("--messages", type=click.Choice(["console", "slack"]), help="Where messages go. [default: console]")
@click.option("--language", type=click.Choice(["en", "ko"]), help="The language of messages. [default: en]")
@click.option("--database", metavar="URL", help="For several machines: the PostgreSQL that they share.")
@click.option("--database-env", metavar="NAME", help="The environment variable with that URL, if it has a password.")
@click.option("--machine", metavar="NAME", help="The name of this machine, the first. [default: the host's name]")
@click.option("--yes", "-y", is_flag=True, help="Ask nothing; use the defaults.")
@click.option("--force", is_flag=True, help="Allow a folder that has other files in it. Overwrites nothing.")
@json_option
def init(
    directory: Path | None,
    general: tuple[str, ...],
    engine: str | None,
    repo: tuple[str, ...],
    messages: str | None,
    language: str | None,
    database: str | None,
    database_env: str | None,
    machine: str | None,
    yes: bool,
    force: bool,
    json: bool,
) -> None:
    """Create the home of a court.

    Creates folders, queues, configuration and the first generals. On a terminal it asks for what was not given. Run
    again, it adds what is missing and changes nothing else.
    """
    import asyncio

    from kingdom.court.home import Home
    from kingdom.court.init_home import HomeChoices, create_home

    directory = directory or (Path() if Home(Path.cwd()).exists else Path("court"))
    asks = not (yes or json or Home(directory).exists) and sys.stdin.isatty() and sys.stdout.isatty()
    with errors_reported():
        shared = _shared_queues(database, database_env, machine)
        choices = HomeChoices(
            _chosen("Which agents do the work?", engine, ["claude", "codex"], asks),
            repo or (_asked_repos() if asks else ()),
            _chosen("Where do messages go?", messages, ["console", "slack"], asks) == "slack",
            _chosen("In which language?", language, ["en", "ko"], asks),
            shared,
        )
        general = general or (_asked_generals() if asks else ())
        if shared is None:
            founded = asyncio.run(create_home(directory, general or None, force=force, choices=choices))
        else:
            from kingdom.court.machines.joining import create_first_machine

            founded = asyncio.run(create_first_machine(directory, shared, choices, general or None, force=force))
    if json:
        output.print_json({"home": str(founded.home.root), "new": founded.created, "made": founded.added})
    else:
        _print_founded(founded, directory, choices)


def _shared_queues(url: str | None, variable: str | None, machine: str | None) -> SharedQueues | None:
    from kingdom.cli.court.machines import database_of, machine_name
    from kingdom.court.init_home import SharedQueues

    if url is None and variable is None:
        if machine is not None:
            raise output.usage_error("--machine needs --database: only a court on several machines names them")
        return None
    return SharedQueues(machine_name(machine), *database_of(url, variable))


def _chosen(question: str, given: str | None, words: list[str], asks: bool) -> Any:
    """Return what was given, else ask, else the first word."""
    if given is not None or not asks:
        return given or words[0]
    return click.prompt(question, type=click.Choice(words), default=words[0])


def _asked_repos() -> tuple[str, ...]:
    from kingdom.court.errors import CourtError
    from kingdom.court.init_home import check_repositories

    def checked(text: str) -> tuple[str, ...]:
        names = tuple(text.replace(",", " ").split())
        try:
            check_repositories(names)
        except CourtError as error:
            raise click.UsageError(str(error)) from error
        return names

    question = "Which GitHub repositories shall it watch, such as acme/shop? (several with spaces, Enter for none)"
    names: tuple[str, ...] = click.prompt(question, default="", show_default=False, value_proc=checked)
    return names


def _asked_generals() -> tuple[str, ...]:
    from kingdom.court.init_home import DEFAULT_GENERALS, describe_shipped_generals

    known = describe_shipped_generals()

    def checked(text: str) -> tuple[str, ...]:
        names = tuple(text.replace(",", " ").split())
        if unknown := [name for name in names if name not in known]:
            raise click.UsageError(f"{unknown[0]!r} is none of them")
        return names

    output.say("Which generals shall it have? (several with spaces; kingdom general install NAME adds others later)")
    for name, what in known.items():
        output.say(f"  {name:12}  {what}")
    names: tuple[str, ...] = click.prompt("Generals", default=" ".join(DEFAULT_GENERALS), value_proc=checked)
    return names


def _example_event(court: Home) -> str | None:
    """Return a type of events that a general takes."""
    from kingdom.court.packages.installed import load_generals

    generals = sorted(load_generals(court).by_name.values(), key=lambda general: general.manifest.order)
    types = [one.type for general in generals for one in general.manifest.subscribes if not (one.own or one.is_pattern)]
    return next(iter(types), None)


def _print_founded(founded: InitResult, directory: Path, choices: HomeChoices) -> None:
    for name in founded.added:
        output.say(f"  + {name}")
    if not founded.added:
        output.say(f"{founded.home.root} is complete: nothing was changed")
        return
    if not founded.created:
        output.say(f"{founded.home.root} is complete again; existing files were not changed")
        return
    output.say(f"{founded.home.root} is the home of a court now. Next steps:")
    if founded.home.root != Path.cwd():
        output.say(f"  cd {directory}")
    if choices.repos:
        output.say("  export GITHUB_TOKEN=…                      then kingdom connect github checks it")
    if choices.slack:
        output.say("  export SLACK_BOT_TOKEN=… SLACK_APP_TOKEN=… then kingdom connect slack checks them")
    output.say("  kingdom general ls                         list the generals and the events they handle")
    output.say("  kingdom doctor                             check that everything they need is installed")
    output.say("  kingdom up                                 start the court")
    if (kind := _example_event(founded.home)) is not None:
        output.say(f"  {f'kingdom emit {kind} …':41}  give it work")
    if choices.shared is not None:
        output.say("  kingdom join …                             on each further machine, with the same database")
    output.say("The settings are in config/system.yaml, the generals in config/generals/.")


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
    from kingdom.court.supervisor.logs import ConsoleWriter, configure_logging
    from kingdom.court.supervisor.record import running_supervisor

    court = find_home(home)
    with errors_reported():
        check_no_removal(court)
        system = load_system(court)
        system.queue_url(court)
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
    others = [one for one in read_machines(court, time.time()) if one.state == "active" and not one.here]
    names = ", ".join(one.name for one in others)
    if not others:
        output.say(f"the court {stopped}")
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
    """
    court = find_home(home)
    program = shutil.which("kingdom") or f"{sys.executable} -m kingdom"
    target = "multi-user.target" if system else "default.target"
    root = _quote_for_systemd(str(court.root))
    unit = _SYSTEMD_UNIT.format(home=root, program=program, path=os.environ.get("PATH", os.defpath), target=target)
    if json:
        output.print_json({"unit": unit})
    else:
        output.say(unit.rstrip())


def _quote_for_systemd(path: str) -> str:
    """Double percent signs, which systemd expands otherwise, and quote a path with spaces."""
    doubled = path.replace("%", "%%")
    return f'"{doubled}"' if any(character.isspace() for character in doubled) else doubled
