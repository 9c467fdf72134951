"""Which roles should run, when they are restarted, how long things may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kingdom.court.bootstrap import UnknownRole, available_roles
from kingdom.court.packages.installed import Generals, GeneralsCache

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from kingdom.court.home import Home
    from kingdom.court.supervisor.logs import Announce


# How long the supervisor waits for what.


@dataclass(frozen=True, slots=True)
class SupervisorTiming:
    """How long things may take, in seconds."""

    look: float = 2.0  # between two looks at generals and heartbeats
    stop: float = 10.0  # from SIGTERM to SIGKILL
    hang: float = 60.0  # a heartbeat may be older than this…
    hang_intervals: float = 3.0  # …and so many intervals of its role, then the role hangs


# When a role that died is started again.


FIRST_DELAY_SECONDS: Final = 0.5  # seconds before the first restart; doubled with each death in a row
MAX_DELAY_SECONDS: Final = 60.0
MAX_DEATHS: Final = 8  # deaths in a row after which a role counts as failed
FAILED_RETRY_SECONDS: Final = (
    600.0  # how often a failed one is tried all the same: a disk may have been full for an hour
)
STEADY_SECONDS: Final = 60.0  # whoever lived this long did not die in a row


@dataclass(slots=True)
class RestartBackoff:
    """The deaths of one role, and what follows from them. All times are of a clock that nobody sets."""

    deaths: int = 0
    why: str = ""
    due: float = field(default=0.0)

    def died(self, now: float, lived: float, why: str) -> float:
        """Note a death; returns the seconds until the next start."""
        self.deaths = 1 if lived >= STEADY_SECONDS else self.deaths + 1
        self.why = why
        delay = (
            FAILED_RETRY_SECONDS
            if self.failed
            else min(FIRST_DELAY_SECONDS * 2.0 ** (self.deaths - 1), MAX_DELAY_SECONDS)
        )
        self.due = now + delay
        return delay

    @property
    def failed(self) -> bool:
        """Whether it died so often that a person must look at it."""
        return self.deaths >= MAX_DEATHS


# Which roles a court should have now.


class WantedRoles:
    """The fixed roles and the installed generals; or of those, the ones asked for."""

    def __init__(self, home: Home, only: Sequence[str] | None, say: Announce) -> None:
        self._generals = GeneralsCache(home)
        self._fixed = available_roles(home)
        self._only = None if only is None else frozenset(only)
        self._say = say
        self._told: list[str] = []
        self._found = Generals()

    def check(self) -> None:
        """Raise :class:`UnknownRole` when a role was asked for that is not there."""
        found = self._generals.current()
        known = {*self._fixed, *found.by_name, *found.broken}
        if unknown := sorted((self._only or frozenset()) - known):
            raise UnknownRole(f"no role {unknown[0]!r:.80} here: there are {', '.join(sorted(known))}")

    def roles(self, running: Container[str]) -> dict[str, object]:
        """The wanted roles by name, each with what it was made from: when that changes, it must be made anew.

        A general whose files cannot be read goes on as it is: somebody may be in the middle of changing them.
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
        wanted |= {name: general.manifest for name, general in found.by_name.items()}
        wanted |= {name: None for name in found.broken if name in running}
        return {name: made_from for name, made_from in wanted.items() if self._only is None or name in self._only}
