"""``kingdom join``, ``kingdom leave``, ``kingdom machines``: a court on several machines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kingdom.cli import output
from kingdom.cli.court.lifecycle import stop_roles
from kingdom.cli.options import DURATION, PATH, format_duration, home_option, json_option, yes_option
from kingdom.cli.parsing import argument, command, group
from kingdom.cli.session import errors_reported, find_home, waiting_shown

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kingdom.court.home import Home
    from kingdom.court.machines.listing import MachineState

T = TypeVar("T")
MACHINE_COLUMNS: Final = ("machine", "state", "duty", "generals", "soldiers", "load", "clock", "version", "seen")


@command()
@argument("database", required=False, metavar="[URL]", help="The court's database: postgresql://host/database.")
@click.option("--database-env", metavar="NAME", help="The environment variable with the URL, if it has a password.")
@click.option("--name", metavar="NAME", help="The name of this machine in the court. [default: the host's name]")
@click.option("--generals", metavar="NAME,NAME", help="The generals that run here. [default: all of the court]")
@click.option("--labels", metavar="NAME,NAME", help="What this machine has: for generals that demand it.")
@click.option("--soldiers", type=click.IntRange(1, 1000), help="How many soldiers run here at once.")
@click.option("--standby", is_flag=True, help="Run no generals here: take over when the machine that leads is gone.")
@click.option("--dir", "directory", type=PATH, default=Path("court"), help="The folder that becomes the home here.")
@click.option("--force", is_flag=True, help="Allow a folder that has other files in it. Overwrites nothing.")
@json_option
def join(
    database: str | None,
    database_env: str | None,
    name: str | None,
    generals: str | None,
    labels: str | None,
    soldiers: int | None,
    standby: bool,
    directory: Path,
    force: bool,
    json: bool,
) -> None:
    """Add this machine to a court.

    Creates a home whose generals come from the database. They claim tasks of the court, run them here and report to
    the machine that leads. Credentials of engines and repositories stay on the machine that uses them.

    With --standby it keeps a copy of the court's files instead, and takes over its king, envoy, sentinel, chamberlain
    and dashboard within 15 seconds when the machine that leads dies. It needs the same tokens of GitHub, Jira and Slack
    in its environment.
    """
    from kingdom.court.init_home import SharedQueues
    from kingdom.court.machines.joining import join_court

    with errors_reported():
        shared = SharedQueues(
            machine_name(name),
            *database_of(database, database_env),
            joined=not standby,
            generals=_named_generals(generals, standby=standby),
            labels=tuple(_checked_name("--labels", one) for one in _names(labels or "")),
            soldiers=soldiers,
        )
        with waiting_shown(shared.database):
            founded, installed = asyncio.run(join_court(directory, shared, force=force))
    if json:
        output.print_json({"home": str(founded.home.root), "machine": shared.machine, "generals": installed})
        return
    output.say(f"{shared.machine} is a machine of the court now; its home is {founded.home.root}. Next steps:")
    if standby:
        output.say("  it stands by: put the tokens that the court uses into its environment")
        output.say(f"  cd {directory}")
        output.say("  kingdom up           copy the files of the court, and take over when it must")
    else:
        output.say(f"  generals: {', '.join(installed) or 'none yet; they come when the court has some'}")
        output.say(f"  cd {directory}")
        output.say("  kingdom doctor       check that the engines they need are installed and logged in here")
        output.say("  kingdom up           start them")
    output.say("  kingdom machines     see all machines of the court; kingdom leave takes this one out again")


def _named_generals(given: str | None, *, standby: bool) -> tuple[str, ...] | None:
    if standby and given is not None:
        raise output.usage_error("--standby runs no generals: join with a further --name and --dir to run some too")
    if given is None:
        return () if standby else None
    return _names(given)


def _names(given: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in given.split(",") if one.strip())


def database_of(url: str | None, variable: str | None) -> tuple[str | None, str | None]:
    """Return the URL or the name of its variable, exactly one of them."""
    if (url is None) == (variable is None):
        raise output.usage_error("give the URL of the database, or --database-env NAME for one with a password")
    return url, variable


def _checked_name(option: str, name: str) -> str:
    import re

    if not re.fullmatch(r"[a-z0-9][a-z0-9\-]{0,59}", name):
        raise output.usage_error(f"{option} {name!r}: small letters, digits and -, such as builder-2")
    return name


def machine_name(given: str | None) -> str:
    """Return the name of this machine: as given, or made from the name of the host."""
    import re
    import socket

    if given is not None:
        return _checked_name("--name", given)
    host = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().partition(".")[0].lower()).strip("-")
    return host[:60] or "machine"


@command("move-to")
@argument("database", required=False, metavar="[URL]", help="postgresql://host/database; or files, to move back.")
@click.option("--database-env", metavar="NAME", help="The environment variable with the URL, if it has a password.")
@click.option("--machine", metavar="NAME", help="The name of this machine in the court. [default: the host's name]")
@yes_option
@home_option
@json_option
def move_to(
    database: str | None, database_env: str | None, machine: str | None, yes: bool, home: Path | None, json: bool
) -> None:
    """Move a court to a database, so that machines can join.

    The court must be down, and its soldiers ended: kingdom down --soldiers. Everything is kept: what is pending, open
    questions, what is finished. The former queues stay in queue.moved.

    kingdom move-to files moves it back, when no other machine is left: the database then keeps nothing of the court.
    """
    from kingdom.court.init_home import SharedQueues
    from kingdom.court.machines.migration import move_to_database

    court = find_home(home)
    if database == "files":
        _move_back(court, yes=yes, json=json)
        return
    with errors_reported():
        shared = SharedQueues(machine_name(machine), *database_of(database, database_env))
        output.confirm(f"Move the queues of {court.root} to the database?", yes=yes)
        with waiting_shown(shared.database):
            moved = asyncio.run(move_to_database(court, shared))
    if json:
        output.print_json({"machine": shared.machine, "moved": moved.documents, "left": moved.left})
        return
    counts = ", ".join(f"{count} {stream}" for stream, count in moved.documents.items())
    output.say(f"the queues are in the database now: {counts}. This machine is {shared.machine} there. Next steps:")
    if moved.left:
        output.say(f"  {output.plural(moved.left, 'document')} could not be read: look into queue.moved/*/invalid")
    output.say("  kingdom up           start the court as before")
    output.say("  kingdom join URL     on another machine, to run generals there or to stand by")


def _move_back(court: Home, *, yes: bool, json: bool) -> None:
    from kingdom.court.machines.migration import move_to_files

    with errors_reported():
        output.confirm(f"Move the queues of {court.root} out of the database, into its folder?", yes=yes)
        moved = asyncio.run(move_to_files(court))
    if json:
        output.print_json({"machine": None, "moved": moved.documents, "left": moved.left})
        return
    counts = ", ".join(f"{count} {stream}" for stream, count in moved.documents.items())
    output.say(f"the queues are files of the home again: {counts}. kingdom up starts the court as before")


@command()
@click.option("--timeout", type=DURATION, default="1h", help="How long to wait for the tasks that run here.")
@home_option
@json_option
def leave(timeout: float, home: Path | None, json: bool) -> None:
    """Take this machine out of its court.

    Nothing new is claimed; when the tasks that run here have ended, the roles stop. Tasks that have not ended in time
    stay with this machine's soldiers until `kingdom down --soldiers`, and then go to other machines.
    """
    from kingdom.court.machines.joining import is_last_to_lead, leave_court, own_machine, stop_claiming, wait_for_tasks

    court = find_home(home)
    with errors_reported():
        section, _ = own_machine(court)
        if not section.joined and _ask(court, is_last_to_lead(court)):
            raise output.CommandError(
                "FIRST_MACHINE",
                f"{section.name} leads the court, and no other machine stands by: kingdom down stops it",
            )
        _ask(court, stop_claiming(court))
        if running := wait_for_tasks(court, timeout):
            raise output.CommandError(
                "STILL_RUNNING",
                f"{', '.join(running)} still running after {format_duration(timeout)}; nothing new is claimed: "
                "run kingdom leave again, or kingdom down --soldiers first",
            )
        stop_roles(court, 60.0)
        _ask(court, leave_court(court))
    if json:
        output.print_json({"machine": section.name, "left": True})
    else:
        output.say(f"{section.name} has left the court; its home {court.root} stays as it is")


@group("machines")
def app() -> None:
    """List the machines of a court, add one, or remove one.

    Without a command, lists them.
    """


@command()
@home_option
@json_option
def ls(home: Path | None, json: bool) -> None:
    """List machines: generals, soldiers, load, clock, last seen."""
    from dataclasses import asdict

    from kingdom.court.machines.joining import own_machine
    from kingdom.court.machines.listing import describe_machine

    court = find_home(home)
    with errors_reported():
        section, registry = own_machine(court)
        machines = [describe_machine(one, section.name) for one in _ask(court, registry.machines())]
    if json:
        output.print_json({"machine": section.name, "machines": [asdict(one) for one in machines]})
        return
    output.print_table(MACHINE_COLUMNS, map(machine_row, machines))


@command()
@argument("name", help="The name of the machine.")
@click.option("--generals", metavar="NAME,NAME", help="The generals that it may run. [default: all of the court]")
@click.option("--role", metavar="NAME", help="A role of the database that exists already, if none can be created.")
@home_option
@json_option
def add(name: str, generals: str | None, role: str | None, home: Path | None, json: bool) -> None:
    """Create the database role of a machine that is to join.

    It may claim and report the tasks of its generals, and nothing more. Prints the URL with its password once: keep it
    in the environment of that machine. Repeat the command to change the generals or the password.
    """
    from kingdom.court.machines.capacity import refuse_joined
    from kingdom.court.machines.joining import add_machine, own_machine

    court = find_home(home)
    with errors_reported():
        own_machine(court)
        machine = _checked_name("NAME", name)
        refuse_joined(court)
        allowed = None if generals is None else _names(generals)
        url, is_member = _ask(court, add_machine(court, machine, allowed, role=role))
    if json:
        output.print_json({"machine": machine, "url": url, "generals": None if allowed is None else list(allowed)})
        return
    output.say(f"{machine} may run {'all generals' if allowed is None else ', '.join(allowed)}. On that machine:")
    output.say(f"  export KINGDOM_DATABASE='{url or 'postgresql://' + str(role) + ':PASSWORD@HOST/DATABASE'}'")
    if is_member:
        output.say("  kingdom down && kingdom up      it is in the court already, and uses the URL from then on")
    else:
        output.say(f"  kingdom join --database-env KINGDOM_DATABASE --name {machine}")
    if url is not None and is_member:
        output.say("its former password is not valid any more; the URL with the new one is not shown again")
    elif url is not None:
        output.say("the URL has a password, which is not shown again; kingdom machines add makes a new one")


@command()
@argument("name", help="The machine to remove.")
@click.option("--forget", is_flag=True, help="Free its name for another machine as well.")
@yes_option
@home_option
@json_option
def remove(name: str, forget: bool, yes: bool, home: Path | None, json: bool) -> None:
    """Shut a machine out of the court.

    It claims nothing more, and ends its soldiers when it next looks. Its tasks go to other machines. A database role
    that kingdom machines add created is dropped, and its connections are closed.
    """
    from kingdom.court.machines.capacity import refuse_joined
    from kingdom.court.machines.joining import machine_rights, own_machine

    court = find_home(home)
    with errors_reported():
        section, registry = own_machine(court)
        if name == section.name:
            raise output.CommandError("OWN_MACHINE", f"{name} is this machine: kingdom leave takes it out")
        rights = machine_rights(court)
        if section.joined and _ask(court, rights.own()) is not None:
            refuse_joined(court)
        output.confirm(f"Remove {name} from the court?", yes=yes)
        had_role = _ask(court, rights.remove(name))
        if not _ask(court, registry.set_state(name, "left" if forget else "removed")) and not had_role:
            raise output.CommandError("UNKNOWN_MACHINE", f"the court has no machine {name!r}: kingdom machines")
    if json:
        output.print_json({"machine": name, "removed": True})
    else:
        output.say(f"{name} is removed: its tasks go to other machines when their leases end")


def _ask(court: Home, work: Coroutine[Any, Any, T]) -> T:
    """Do something in the database of a court, while a person waits."""
    from kingdom.court.config import load_system

    with waiting_shown(load_system(court).queue_url(court)):
        return asyncio.run(work)


def machine_row(machine: MachineState) -> tuple[str, ...]:
    """Return the row of a machine, under :data:`MACHINE_COLUMNS`."""
    soldiers = len(machine.soldiers)
    return (
        f"{machine.name} (here)" if machine.here else machine.name,
        machine.state,
        machine.duty,
        ", ".join(machine.runs) or "-",
        f"{soldiers} of {machine.slots}" if machine.slots else str(soldiers),
        "-" if machine.load is None else f"{machine.load:g} on {machine.cores}",
        f"{machine.clock_skew_seconds:+.1f} s",
        machine.version or "-",
        f"{format_duration(machine.silent_seconds)} ago",
    )


for _command in (ls, add, remove):
    app.add_command(_command)
app.default = "ls"
