"""What the soldiers at work said last."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from kingdom.agents.transcript import Transcript, words
from kingdom.court.bootstrap import engines_of
from kingdom.court.soldiers import find_soldier

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kingdom.court.config.system import SystemConfig
    from kingdom.court.home import Home

_LINES: Final = 50
_FROM_THE_END: Final = 256 * 1024  # bytes of a long transcript that are read at first


class Voices:
    """Follows the transcripts of some soldiers."""

    def __init__(self, home: Home, system: SystemConfig) -> None:
        self._home = home
        self._engines = engines_of(system)
        self._heard: dict[str, tuple[Transcript, deque[str]]] = {}

    def hear(self, soldiers: Iterable[str]) -> dict[str, list[str]]:
        """The last lines of each of these soldiers; the others are forgotten."""
        wanted = list(soldiers)
        self._heard = {name: heard for name, heard in self._heard.items() if name in wanted}
        return {name: self._last(name) for name in wanted}

    def _last(self, name: str) -> list[str]:
        if name not in self._heard:
            soldier = find_soldier(self._home, name)
            if soldier is None:
                return []
            transcript = Transcript(soldier.transcript, soldier.order, self._engines, last=_FROM_THE_END)
            self._heard[name] = transcript, deque(maxlen=_LINES)
        transcript, lines = self._heard[name]
        for event in transcript.read_on():
            lines.extend(line for line in words(event).splitlines() if line.strip())
        return list(lines)
