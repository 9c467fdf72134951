"""The soldiers of a court, as their files tell of them to whoever looks from outside."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.agents.errors import AgentsError
from kingdom.agents.folder import RunFolder
from kingdom.court.errors import CourtError
from kingdom.court.files import read_json
from kingdom.court.king.times import seconds_of
from kingdom.court.supervisor.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kingdom.agents.port import Order
    from kingdom.court.home import Home

_PLAYERS: Final = ("scripted", "workflow")  # engines without a process


@dataclass(frozen=True, slots=True)
class Soldier:
    """One run."""

    id: str
    folder: Path
    order: Order
    pid: int | None
    shim: Identity | None  # the process that looks after it; None when it has none, or none yet
    started_at: float | None
    transcript: Path
    errors: Path
    played: bool = False
    """Whether it works without a process of its own, inside its general's."""

    @property
    def task_id(self) -> str:
        """The task it is on."""
        return self.order.task_id

    @property
    def general(self) -> str:
        """Whose soldier it is."""
        return self.order.labels.get("general", "")

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.shim is not None and self.shim.alive

    @property
    def at_work(self) -> bool:
        """Whether it works, with a process of its own or without."""
        return self.alive or self.played

    def interrupt(self) -> None:
        """Have it ended, and everything it started."""
        if self.shim is not None:
            self.shim.send(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended, at most so long; True when it has."""
        return self.shim is None or self.shim.wait(seconds)


def all_soldiers(home: Home) -> Iterator[Soldier]:
    """Every soldier whose files are still there, by id."""
    try:
        names = sorted(path.name for path in home.soldiers.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        found = find_soldier(home, name)
        if found is not None:
            yield found


def soldiers_of(home: Home, task_id: str) -> list[Soldier]:
    """Those that are or were on a task, the first one first."""
    found = [soldier for soldier in all_soldiers(home) if soldier.task_id == task_id]
    return sorted(found, key=_by_start)


def _by_start(soldier: Soldier) -> tuple[float, str]:
    return soldier.started_at or 0.0, soldier.id


def find_soldier(home: Home, name: str) -> Soldier | None:
    """The soldier of that id; None when it has no files that make sense."""
    try:
        folder = RunFolder(home.soldiers, name)
        order = folder.read_order()
    except (AgentsError, KeyError, TypeError, OSError):  # not one of ours, or half written
        return None
    if order is None:
        return None
    found = read_json(folder.identity)
    identity = found if isinstance(found, dict) else {}
    played = not identity and _is_played(home, folder, order)
    pid, shim_pid, shim_start = (identity.get(key) for key in ("pid", "shim_pid", "shim_start"))
    return Soldier(
        id=name,
        folder=folder.path,
        order=order,
        pid=pid if isinstance(pid, int) else None,
        shim=Identity.read({"pid": shim_pid, "start_time": shim_start, "boot_id": identity.get("boot_id")}),
        started_at=_modified(folder.order) if played else seconds_of(identity.get("started_at")),
        transcript=home.sessions / f"{name}.json",
        errors=home.sessions / f"{name}.err",
        played=played,
    )


def _is_played(home: Home, folder: RunFolder, order: Order) -> bool:
    """Whether a run that has no process is under way: its task is, and nothing was written of its end."""
    try:
        task = home.soldier_id(order.task_id)
        return (
            order.engine in _PLAYERS
            and not folder.outcome.exists()
            and task.read_text().strip() == folder.run_id
            and not home.result(order.task_id).exists()
        )
    except (OSError, ValueError, CourtError):
        return False


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


class Roster:
    """Who is or was on which task, for whoever asks often: what never changes of a soldier is read once.

    Any thread may ask.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._tasks: dict[str, str] = {}  # by soldier
        self._ended: set[str] = set()

    def of_task(self, task_id: str) -> list[Soldier]:
        """As :func:`soldiers_of`."""
        with self._lock:
            names = self._names()
            for name in names - self._tasks.keys():
                soldier = find_soldier(self._home, name)
                if soldier is not None:  # else it may be on its way
                    self._tasks[name] = soldier.task_id
            own = [name for name, task in self._tasks.items() if task == task_id]
        found = (find_soldier(self._home, name) for name in own)
        return sorted((one for one in found if one is not None), key=_by_start)

    def at_work(self) -> list[Soldier]:
        """Those that work now, by id."""
        found = []
        with self._lock:
            for name in sorted(self._names() - self._ended):
                soldier = find_soldier(self._home, name)
                if soldier is not None and soldier.at_work:
                    found.append(soldier)
                elif soldier is not None and RunFolder(self._home.soldiers, name).outcome.exists():
                    self._ended.add(name)
        return found

    def _names(self) -> set[str]:
        try:
            names = {path.name for path in self._home.soldiers.iterdir()}
        except (FileNotFoundError, NotADirectoryError):
            names = set()
        self._tasks = {name: task for name, task in self._tasks.items() if name in names}
        self._ended &= names
        return names
