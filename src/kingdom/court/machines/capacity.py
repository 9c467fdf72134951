"""What this machine may take on: whether it takes part in the court, and how many soldiers run on it.

A soldier needs a slot, which the process of its general holds. A slot is a locked file: the kernel releases it when the
process dies, so no slot is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.base.files import read_object, write_json
from kingdom.base.locks import FileLock
from kingdom.court.config import load_system
from kingdom.court.errors import CourtError, JoinedMachine, NotLeading
from kingdom.court.machines.own_lead import known_leader, read_lead

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from kingdom.court.config import MachineSection
    from kingdom.court.home import Home
    from kingdom.court.packages.manifest import Manifest


_STATE_FILE: Final = "machine.json"


def load_machine(home: Home) -> MachineSection | None:
    """Return the section about this machine; None without one, and while the configuration is invalid."""
    try:
        return load_system(home).machine
    except CourtError:
        return None


def runs_here(home: Home) -> Callable[[Manifest], bool]:
    """Return a function that tells whether a general runs on this machine."""
    machine = load_machine(home)
    return (lambda _: True) if machine is None else lambda general: machine.runs(general.name, general.runs_on)


def leads_or_joined(home: Home) -> bool:
    """Whether the roles of this machine may run: it leads its court, or it runs generals only."""
    machine = load_machine(home)
    if machine is None or machine.joined:
        return True
    lead = read_lead(home)
    return lead is not None and lead.leading


def require_lead(home: Home) -> None:
    """Raise an error unless what is changed in this home reaches the court.

    :class:`JoinedMachine` on a machine that runs generals only. :class:`NotLeading` if another machine leads: its files
    replace those of this one.
    """
    refuse_joined(home)
    refuse_copy(home)


def refuse_copy(home: Home) -> None:
    """Raise :class:`NotLeading` if another machine leads, or may since this one was stopped."""
    leader = known_leader(home)
    if leader is None:
        return
    machine = load_machine(home)
    if machine is not None and leader == machine.name:
        raise NotLeading(
            f"{leader} gave the lead back when it was stopped, and another machine may have it: do it on the one that "
            "leads (kingdom machines), or start this one first (kingdom up)"
        )
    raise NotLeading(f"{leader} leads the court, and this machine has a copy of its files: do it there")


def refuse_joined(home: Home) -> None:
    """Raise :class:`JoinedMachine` on a machine that runs generals only."""
    machine = load_machine(home)
    if machine is not None and machine.joined:
        raise JoinedMachine(f"{machine.name} runs generals only: run this on the machine that leads")


def machine_state(home: Home) -> str:
    """Return the state of this machine in the court, as it was last read: ``active``, ``leaving``, ``removed``…"""
    state = read_object(home.role("link") / _STATE_FILE).get("state")
    return state if isinstance(state, str) else "active"


def note_machine_state(home: Home, state: str) -> None:
    """Keep the state of this machine for its generals."""
    if machine_state(home) != state:
        home.role("link").mkdir(parents=True, exist_ok=True)
        write_json(home.role("link") / _STATE_FILE, {"state": state})


class SoldierSlots:
    """The slots of this machine that one general holds, by task. Without a limit there are no files."""

    def __init__(self, home: Home, limit: int | None) -> None:
        self._folder = home.state / "slots"
        self._limit = limit
        self._free: list[FileLock] = []
        self._held: dict[str, FileLock] = {}

    def reserve(self, count: int) -> int:
        """Reserve up to ``count`` slots; return how many there are."""
        if self._limit is None:
            return count
        self._folder.mkdir(parents=True, exist_ok=True)
        for number in range(self._limit):
            if len(self._free) >= count:
                break
            if (slot := FileLock.take(self._folder / f"{number}.lock")) is not None:
                self._free.append(slot)
        return len(self._free)

    def use(self, task_id: str) -> None:
        """Give a reserved slot to a task. A task that runs already may have to do without one."""
        if self._free and task_id not in self._held:
            self._held[task_id] = self._free.pop()

    def keep(self, running: Container[str]) -> None:
        """Release the slots of all other tasks, and those that are reserved and not used."""
        for task_id in [task_id for task_id in self._held if task_id not in running]:
            self._held.pop(task_id).release()
        while self._free:
            self._free.pop().release()
