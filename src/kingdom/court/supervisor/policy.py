"""Policy of the supervisor: which roles should run, when to restart them, how long to wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kingdom.base.backoff import backoff
from kingdom.court.bootstrap import UnknownRole, available_roles
from kingdom.court.loop import LINK
from kingdom.court.machines.capacity import leads_or_joined, runs_here
from kingdom.court.packages.installed import Generals, GeneralsCache

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from kingdom.court.home import Home
    from kingdom.court.supervisor.logs import Announce


@dataclass(frozen=True, slots=True)
class SupervisorTiming:
    """Intervals and timeouts in seconds."""

    look: float = 2.0  # between two checks of generals and heartbeats
    stop: float = 10.0  # from SIGTERM to SIGKILL
    hang: float = 60.0  # a role hangs when its heartbeat is older than this...
    hang_intervals: float = 3.0  # ...plus this many intervals of the role


FIRST_DELAY_SECONDS: Final = 0.5  # before the first restart; doubled with each death in a row
MAX_DELAY_SECONDS: Final = 60.0
MAX_DEATHS: Final = 8  # deaths in a row after which a role counts as failed
FAILED_RETRY_SECONDS: Final = 600.0  # a failed role is still retried: the disk may have been full for an hour
STEADY_SECONDS: Final = 60.0  # a role that lived this long starts a new count of deaths


@dataclass(slots=True)
class RestartBackoff:
    """The deaths of one role in a row, and the time of its next start. All times are monotonic."""

    deaths: int = 0
    why: str = ""
    due: float = field(default=0.0)

    def died(self, now: float, lived: float, why: str) -> float:
        """Record a death; return the seconds until the next start."""
        self.deaths = 1 if lived >= STEADY_SECONDS else self.deaths + 1
        self.why = why
        delay = (
            FAILED_RETRY_SECONDS if self.failed else backoff(self.deaths - 1, FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS)
        )
        self.due = now + delay
        return delay

    @property
    def failed(self) -> bool:
        """Whether the role has died too often in a row."""
        return self.deaths >= MAX_DEATHS


class WantedRoles:
    """The roles that should run: the fixed roles and the installed generals, or a selection of them."""

    def __init__(self, home: Home, only: Sequence[str] | None, say: Announce) -> None:
        self._generals = GeneralsCache(home)
        self._fixed = available_roles(home)
        self._runs_here = runs_here(home)
        self._only = None if only is None else frozenset(only)
        self._home = home
        self._say = say
        self._told: list[str] = []
        self._found = Generals()

    def check(self) -> None:
        """Raise :class:`UnknownRole` when a selected role does not exist."""
        found = self._generals.current()
        known = {*self._fixed, *found.by_name, *found.broken}
        if unknown := sorted((self._only or frozenset()) - known):
            raise UnknownRole(f"no role {unknown[0]!r:.80} here: there are {', '.join(sorted(known))}")

    def roles(self, running: Container[str]) -> dict[str, object]:
        """Return the wanted roles by name, each with its manifest: a role whose manifest changes must be restarted.

        A running general whose files are invalid keeps running: somebody may be editing them.
        """
        try:
            found = self._found = self._generals.current()
            problems = found.problems
        except OSError as error:
            found, problems = self._found, [f"the generals cannot be read: {error}"]
        if problems != self._told:
            self._told = problems
            for problem in problems:
                self._say("supervisor", problem)
        wanted: dict[str, object] = dict.fromkeys(self._fixed)
        wanted |= {name: general.manifest for name, general in found.on(self._runs_here).by_name.items()}
        wanted |= {name: None for name in found.broken if name in running}
        selected = {name: made for name, made in wanted.items() if self._only is None or name in self._only}
        if LINK in selected and not leads_or_joined(self._home):
            return {LINK: selected[LINK]}  # it asks for the lead of the court; without it the others must not run
        return selected
