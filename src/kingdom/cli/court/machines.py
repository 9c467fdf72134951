"""``kingdom join``, ``kingdom leave``, ``kingdom machines``: a court on several machines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kingdom.cli import output
from kingdom.cli.court.lifecycle import stop_roles
from kingdom.cli.options import DURATION, PATH, format_duration, home_option, json_option, yes_option
from kingdom.cli.parsing import argument, command, group
from kingdom.cli.session import errors_reported, find_home

if TYPE_CHECKING:
    from kingdom.court.machines.listing import MachineState

MACHINE_COLUMNS: Final = ("machine", "state", "roles", "generals", "soldiers", "load", "clock", "version", "seen")


@command()
@argument("database", required=False, metavar="[URL]", help="The court's database: postgresql://host/database.")
@click.option("--database-env", metavar="NAME", help="The environment variable with the URL, if it has a password.")
@click.option("--name", metavar="NAME", help="The name of this machine in the court. [default: the host's name]")
@click.option("--generals", metavar="NAME,NAME", help="The generals that run here. [default: all of the court]")
@click.option("--soldiers", type=click.IntRange(1, 1000), help="How many soldiers run here at once.")
@click.option("--dir", "directory", type=PATH, default=Path("court"), help="The folder that becomes the home here.")
@click.option("--force", is_flag=True, help="Allow a folder that has other files in it. Overwrites nothing.")
@json_option
def join(
    database: str | None,
    database_env: str | None,
    name: str | None,
    generals: str | None,
    soldiers: int | None,
    directory: Path,
    force: bool,
    json: bool,
) -> None:
    """Add this machine to a court.

    Creates a home whose generals come from the database. They claim tasks of the court, run them here and report to
    the first machine. Credentials of engines and repositories stay on the machine that uses them.
    """
    from kingdom.court.init_home import SharedQueues
    from kingdom.court.machines.joining import join_court

    with errors_reported():
        shared = SharedQueues(
            machine_name(name),
            *database_of(database, database_env),
            joined=True,
            generals=None if generals is None else tuple(one.strip() for one in generals.split(",") if one.strip()),
            soldiers=soldiers,
        )
        founded, installed = asyncio.run(join_court(directory, shared, force=force))
    if json:
        output.print_json({"home": str(founded.home.root), "machine": shared.machine, "generals": installed})
        return
    output.say(f"{shared.machine} is a machine of the court now; its home is {founded.home.root}. Next steps:")
    output.say(f"  generals: {', '.join(installed) or 'none yet; they come when the court has some'}")
    output.say(f"  cd {directory}")
    output.say("  kingdom doctor       check that the engines they need are installed and logged in here")
    output.say("  kingdom up           start them")
    output.say("  kingdom machines     see all machines of the court; kingdom leave takes this one out again")


def database_of(url: str | None, variable: str | None) -> tuple[str | None, str | None]:
    """Return the URL or the name of its variable, exactly one of them."""
    if (url is None) == (variable is None):
        raise output.usage_error("give the URL of the database, or --database-env NAME for one with a password")
    return url, variable


def machine_name(given: str | None) -> str:
    """Return the name of this machine: as given, or made from the name of the host."""
    import re
    import socket

    if given is not None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9\-]{0,59}", given):
            raise output.usage_error(f"--name {given!r}: small letters, digits and -, such as builder-2")
        return given
    host = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().partition(".")[0].lower()).strip("-")
    return host[:60] or "machine"


@command()
@click.option("--timeout", type=DURATION, default="1h", help="How long to wait for the tasks that run here.")
@home_option
@json_option
def leave(timeout: float, home: Path | None, json: bool) -> None:
    """Take this machine out of its court.

    Nothing new is claimed; when the tasks that run here have ended, the roles stop. Tasks that have not ended in time
    stay with this machine's soldiers until `kingdom down --soldiers`, and then go to other machines.
    """
    from kingdom.court.machines.joining import leave_court, own_machine, stop_claiming, wait_for_tasks

    court = find_home(home)
    with errors_reported():
        section, _ = own_machine(court)
        if not section.joined:
            raise output.CommandError(
                "FIRST_MACHINE",
                f"{section.name} is the first machine of the court, which cannot leave: kingdom down stops it",
            )
        asyncio.run(stop_claiming(court))
        if running := wait_for_tasks(court, timeout):
            raise output.CommandError(
                "STILL_RUNNING",
                f"{', '.join(running)} still running after {format_duration(timeout)}; nothing new is claimed: "
                "run kingdom leave again, or kingdom down --soldiers first",
            )
        stop_roles(court, 60.0)
        asyncio.run(leave_court(court))
    if json:
        output.print_json({"machine": section.name, "left": True})
    else:
        output.say(f"{section.name} has left the court; its home {court.root} stays as it is")


@group("machines")
def app() -> None:
    """List the machines of a court, or remove one."""


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
        machines = [describe_machine(one, section.name) for one in asyncio.run(registry.machines())]
    if json:
        output.print_json({"machine": section.name, "machines": [asdict(one) for one in machines]})
        return
    output.print_table(MACHINE_COLUMNS, map(machine_row, machines))


@command()
@argument("name", help="The machine to remove.")
@click.option("--forget", is_flag=True, help="Free its name for another machine as well.")
@yes_option
@home_option
@json_option
def remove(name: str, forget: bool, yes: bool, home: Path | None, json: bool) -> None:
    """Shut a machine out of the court.

    It claims nothing more, and ends its soldiers when it next looks. Its tasks go to other machines.
    """
    from kingdom.court.machines.joining import own_machine

    court = find_home(home)
    with errors_reported():
        section, registry = own_machine(court)
        if name == section.name:
            raise output.CommandError("OWN_MACHINE", f"{name} is this machine: kingdom leave takes it out")
        output.confirm(f"Remove {name} from the court?", yes=yes)
        if not asyncio.run(registry.set_state(name, "left" if forget else "removed")):
            raise output.CommandError("UNKNOWN_MACHINE", f"the court has no machine {name!r}: kingdom machines ls")
    if json:
        output.print_json({"machine": name, "removed": True})
    else:
        output.say(f"{name} is removed: its tasks go to other machines when their leases end")


def machine_row(machine: MachineState) -> tuple[str, ...]:
    """Return the row of a machine, under :data:`MACHINE_COLUMNS`."""
    soldiers = len(machine.soldiers)
    return (
        f"{machine.name} (here)" if machine.here else machine.name,
        machine.state,
        "generals" if machine.joined else "all",
        ", ".join(machine.generals) or "-",
        f"{soldiers} of {machine.slots}" if machine.slots else str(soldiers),
        "-" if machine.load is None else f"{machine.load:g} on {machine.cores}",
        f"{machine.clock_skew_seconds:+.1f} s",
        machine.version or "-",
        f"{format_duration(machine.silent_seconds)} ago",
    )


for _command in (ls, remove):
    app.add_command(_command)
