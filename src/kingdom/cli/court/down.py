"""``kingdom down``: stop a court."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.court.session import told
from kingdom.cli.durations import format_duration, parse_duration
from kingdom.cli.home import HomeOption, find_home

if TYPE_CHECKING:
    from kingdom.court.home import Home


def down(
    soldiers: Annotated[bool, typer.Option("--soldiers", help="End the running soldiers as well.")] = False,
    timeout: Annotated[
        float, typer.Option(parser=parse_duration, metavar="DURATION", help="How long to wait for the roles.")
    ] = "1m",  # type: ignore[assignment]  # typer parses defaults as well
    home: HomeOption = None,
    json: Json = False,
) -> None:
    """Stop the court: all roles, in their order.

    Running soldiers go on, and their generals take them over when the court is next up; --soldiers ends them too.
    """
    from kingdom.court.soldiers import all_soldiers

    court = find_home(home)
    with told():
        was_up = _stop_roles(court, timeout)
        alive = [soldier for soldier in all_soldiers(court) if soldier.alive]
        if soldiers:
            for soldier in alive:
                soldier.interrupt()
            alive = [soldier for soldier in alive if not soldier.wait(timeout)]
            if alive:
                raise output.Failure("STILL_RUNNING", f"still running: {', '.join(one.id for one in alive)}")
    if json:
        output.emit({"was_up": was_up, "soldiers": [soldier.id for soldier in alive]})
        return
    output.say("the court is down" if was_up else "the court was not up")
    if alive:
        names = ", ".join(soldier.id for soldier in alive)
        output.say(f"{len(alive)} running on, to be taken over at the next kingdom up: {names} (--soldiers ends them)")


def _stop_roles(court: Home, timeout: float) -> bool:
    import signal

    from kingdom.court.supervisor.record import read_record

    record = read_record(court)
    if record is None:
        return False
    was_up = record.supervisor.send(signal.SIGTERM)
    if not record.supervisor.wait(timeout):
        raise output.Failure(
            "STILL_RUNNING",
            f"the court (pid {record.supervisor.pid}) was asked to stop, but has not after {format_duration(timeout)}: "
            "kingdom status shows what still runs, kingdom down asks again",
        )
    # Those of a supervisor that was killed stop by themselves, unless they hang.
    for role in record.roles.values():
        if role.process is not None and role.process.send(signal.SIGTERM) and not role.process.wait(timeout):
            role.process.send(signal.SIGKILL)
    return was_up
