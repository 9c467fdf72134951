"""The words of the agents of one workflow: the last ones of each run, numbered, so that a reader can go on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.workflow.listening import Listening, Said

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.agents.engine import Engine, Player

_KEPT: Final = 2000  # words of one run; older ones are in its transcript


@dataclass(frozen=True, slots=True)
class Spoken:
    """Something an agent said, and the how manieth of its run it is."""

    number: int
    position: int
    said: Said


class Voices:
    """Reads on each time it is asked; what was read is kept."""

    def __init__(self, runs: Path, sessions: Path, engines: Mapping[str, Engine | Player]) -> None:
        self._listening = Listening(runs, sessions, engines)
        self._runs: dict[str, deque[Spoken]] = {}
        self._counts: dict[str, int] = {}
        self._heard = 0
        self._lock = asyncio.Lock()

    async def read_on(self, work_ids: Iterable[str]) -> None:
        """Hear what was said since the last time by runs of these works."""
        async with self._lock:
            for said in await asyncio.to_thread(self._listening.read_on, list(work_ids)):
                number = self._counts[said.run_id] = self._counts.get(said.run_id, 0) + 1
                self._heard += 1
                words = self._runs.setdefault(said.run_id, deque(maxlen=_KEPT))
                words.append(Spoken(number, self._heard, said))

    def after(self, counts: Mapping[str, int], prefix: str = "") -> list[Spoken]:
        """What was said behind these numbers of each run, in the order in which it was heard.

        Only by runs whose id begins with ``prefix``.
        """
        found = [
            one
            for run_id, words in self._runs.items()
            if run_id.startswith(prefix)
            for one in words
            if one.number > counts.get(run_id, 0)
        ]
        return sorted(found, key=lambda one: one.position)
