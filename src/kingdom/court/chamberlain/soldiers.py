"""Who runs, by the identity each run has on disk; and ending those that nobody waits for.

Only runs whose identity lies in ``state/soldiers/`` and whose task is one of the court are looked at, and a signal is
sent only to exactly the process that was written down: pid, start time and boot.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kingdom.agents.processes import bearing, boot_id, is_running, send
from kingdom.court.files import read_json

if TYPE_CHECKING:
    from kingdom.court.home import Home


@dataclass(frozen=True, slots=True)
class Soldier:
    """A run that has an identity."""

    id: str
    pid: int
    started_at: float
    running: bool
    ended: bool  # it left word of its end
    identity: dict[str, Any]


class Barracks(Protocol):
    """Where soldiers are found and ended."""

    def soldiers(self) -> list[Soldier]:
        """Every run that has an identity."""

    def stop(self, soldier: Soldier) -> None:
        """Ask a run to end; it has some seconds, then it is ended by its own keeper."""

    def kill(self, soldier: Soldier) -> int:
        """End everything that is left of a run at once; returns how many processes that were."""


class HomeBarracks:
    """The soldiers of a home on this machine."""

    def __init__(self, home: Home) -> None:
        self._folder = home.soldiers

    def soldiers(self) -> list[Soldier]:
        """Every run that has an identity. One that cannot be read is left alone."""
        try:
            with os.scandir(self._folder) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []
        return [soldier for name in names if (soldier := self._read(name)) is not None]

    def stop(self, soldier: Soldier) -> None:
        """Tell its keeper, who stops it step by step."""
        if not _signal(soldier, "shim_pid", "shim_start", signal.SIGTERM):
            self.kill(soldier)

    def kill(self, soldier: Soldier) -> int:
        """End the keeper, the agent, and whoever carries the run's mark."""
        killed = sum(
            _signal(soldier, pid, start, signal.SIGKILL)
            for pid, start in (("shim_pid", "shim_start"), ("pid", "start"))
        )
        return killed + sum(send(process.pid, process.start, signal.SIGKILL) for process in bearing(soldier.id))

    def _read(self, name: str) -> Soldier | None:
        identity = read_json(self._folder / name / "identity.json")
        if not isinstance(identity, dict) or identity.get("run_id") != name:
            return None
        pid, started_at = identity.get("pid"), identity.get("started_at")
        if not isinstance(pid, int) or not isinstance(started_at, (int, float)):
            return None
        running = _is_alive(identity, "shim_pid", "shim_start") or _is_alive(identity, "pid", "start")
        return Soldier(name, pid, float(started_at), running, (self._folder / name / "exit.json").is_file(), identity)


def _is_alive(identity: dict[str, Any], pid: str, start: str) -> bool:
    number, began = identity.get(pid), identity.get(start)
    sound = isinstance(number, int) and number > 1 and isinstance(began, int) and identity.get("boot_id") == boot_id()
    return sound and is_running(identity[pid], began)


def _signal(soldier: Soldier, pid: str, start: str, number: signal.Signals) -> bool:
    return _is_alive(soldier.identity, pid, start) and send(soldier.identity[pid], soldier.identity[start], number)
