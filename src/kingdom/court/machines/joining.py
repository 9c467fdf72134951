"""Join a court from a further machine, and leave it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kingdom.base.files import read_object
from kingdom.base.times import epoch_seconds
from kingdom.bus.transport import INTERACTIVE_CONNECT_SECONDS
from kingdom.court.config import load_system
from kingdom.court.errors import CourtError, MachineRefused
from kingdom.court.init_home import HomeChoices, create_home
from kingdom.court.machines.capacity import note_machine_state
from kingdom.court.machines.listing import describe_machine
from kingdom.court.machines.registry import Registry
from kingdom.court.machines.rights import Rights
from kingdom.court.packages.installed import general_folders
from kingdom.court.supervisor.record import running_supervisor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kingdom.court.config import MachineSection
    from kingdom.court.home import Home
    from kingdom.court.init_home import InitResult, SharedQueues
    from kingdom.court.machines.rights import MachineRight

_LOOK_SECONDS: Final = 0.5


class NotJoined(CourtError):
    """This machine is not one of several."""

    code = "NOT_JOINED"


def own_machine(home: Home) -> tuple[MachineSection, Registry]:
    """Return the settings of this machine and the court's tables. Raises :class:`NotJoined`."""
    system = load_system(home)
    if system.machine is None:
        raise NotJoined(
            f"the court in {home.root} is on one machine: kingdom init --database creates one for several, "
            "kingdom join adds a machine"
        )
    return system.machine, Registry(system.queue_url(home), connect_timeout=INTERACTIVE_CONNECT_SECONDS)


async def create_first_machine(
    root: Path, shared: SharedQueues, choices: HomeChoices, generals: tuple[str, ...] | None, *, force: bool
) -> InitResult:
    """Create the home of a court's first machine. Raises :class:`MachineRefused` when the database has a court."""
    registry = Registry(shared.database, connect_timeout=INTERACTIVE_CONNECT_SECONDS)
    await registry.setup()
    first = next((one for one in await registry.machines() if not one.joined), None)
    if first is not None:
        raise MachineRefused(
            f"the database has a court already, whose first machine is {first.name}: "
            "kingdom join adds this machine to it, and another schema (?schema=NAME) holds another court"
        )
    result = await create_home(root, generals, force=force, choices=choices)
    await registry.register(shared.machine, joined=False)
    await registry.publish_packages(result.home)
    return result


async def join_court(root: Path, shared: SharedQueues, *, force: bool) -> tuple[InitResult, list[str]]:
    """Create the home of a further machine, joined or standing by; return it, and the generals that it has got.

    Nothing is created when the database has no court, or a machine of this name, or not the generals that were named.
    """
    registry = Registry(shared.database, connect_timeout=INTERACTIVE_CONNECT_SECONDS)
    await registry.setup()
    own = await Rights(shared.database, connect_timeout=INTERACTIVE_CONNECT_SECONDS).own()
    if own is not None:
        _check_role(own, shared)
    machines = await registry.machines()
    if not any(not one.joined for one in machines):
        raise MachineRefused(
            "the database has no court yet: run kingdom init --database on its first machine, and kingdom up there"
        )
    known = await registry.packages()
    if unknown := [name for name in shared.generals or () if name not in known]:
        raise MachineRefused(f"the court has no general {unknown[0]!r}: it has {', '.join(known) or 'none yet'}")
    await registry.register(shared.machine, joined=shared.joined)
    try:
        result = await create_home(root, (), force=force, choices=HomeChoices(shared=shared))
        note_machine_state(result.home, "active")  # it may have left before
        changed = await registry.fetch_packages(result.home, shared.generals if shared.joined else None)
    except BaseException:
        await registry.set_state(shared.machine, "left")  # the name is free again
        raise
    return result, changed


async def add_machine(
    home: Home, machine: str, generals: Sequence[str] | None, *, role: str | None
) -> tuple[str | None, bool]:
    """Give a machine a role of the database.

    Return its URL (None for a ``role`` that exists already), and whether the machine is in the court already. Raises
    :class:`MachineRefused` for one that could not use it.
    """
    _, registry = own_machine(home)
    known = next((one for one in await registry.machines() if one.name == machine), None)
    if known is not None and known.state == "removed":
        raise MachineRefused(
            f"{machine} was removed from the court: kingdom machines remove {machine} --forget frees its name"
        )
    if known is not None and not known.joined:
        duty = "leads the court" if known.leads else "stands by to lead the court"
        raise MachineRefused(
            f"{machine} {duty} with the court's own role: choose another name for a machine that runs generals"
        )
    return await machine_rights(home).add(machine, generals, role=role), known is not None


def machine_rights(home: Home) -> Rights:
    """Return the roles of the court's machines, for a command."""
    return Rights(load_system(home).queue_url(home), connect_timeout=INTERACTIVE_CONNECT_SECONDS)


def _check_role(own: MachineRight, shared: SharedQueues) -> None:
    """Raise :class:`MachineRefused` when the role with which this machine connects is for something else."""
    if own.machine != shared.machine:
        raise MachineRefused(f"the role {own.role} is that of {own.machine}: join with --name {own.machine}")
    if not shared.joined:
        raise MachineRefused(
            f"the database's role {own.role} may only run generals: a machine that stands by needs the court's own role"
        )


async def stop_claiming(home: Home) -> None:
    """Claim nothing more on this machine."""
    section, registry = own_machine(home)
    await registry.set_state(section.name, "leaving")
    note_machine_state(home, "leaving")


def wait_for_tasks(home: Home, timeout: float) -> list[str]:
    """Wait until the tasks of this machine have ended; return those that have not."""
    since, deadline = time.time(), time.monotonic() + timeout
    while (running := _running_tasks(home, since)) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return running


async def is_last_to_lead(home: Home) -> bool:
    """Whether no other machine of the court could lead it now."""
    section, registry = own_machine(home)
    machines = [describe_machine(one, section.name) for one in await registry.machines()]
    return not any(not one.joined and one.state == "active" and not one.here for one in machines)


async def leave_court(home: Home) -> None:
    """Take this machine off the court's list. What it still held goes to others when its leases end."""
    section, registry = own_machine(home)
    await registry.set_state(section.name, "left")
    note_machine_state(home, "left")


def _running_tasks(home: Home, since: float) -> list[str]:
    """Return the tasks that the generals of this machine hold; a general that has not reported since counts as one."""
    supervisor = running_supervisor(home)
    found: list[str] = []
    for folder in general_folders(home):
        beat = read_object(home.heartbeat(folder.name))
        running = beat.get("running")
        tasks = [one.get("task_id") for one in running if isinstance(one, dict)] if isinstance(running, list) else []
        if not tasks and supervisor is not None and folder.name in supervisor.roles:
            tasks = [] if (epoch_seconds(beat.get("ts")) or 0.0) > since else [folder.name]
        found += map(str, tasks)
    return found
