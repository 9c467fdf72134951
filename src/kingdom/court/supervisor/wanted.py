"""Which roles a court should have now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.court.bootstrap import UnknownRole, available_roles
from kingdom.court.packages.loading import Generals, GeneralsCache

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from kingdom.court.home import Home
    from kingdom.court.supervisor.speech import Say


class Wanted:
    """The fixed roles and the installed generals; or of those, the ones asked for."""

    def __init__(self, home: Home, only: Sequence[str] | None, say: Say) -> None:
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
