"""Ids of new tasks, drawn several at a time: each draw is a write that waits for the disk."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kingdom.court.sequences import Sequences


class TaskIds:
    """Hands out ids one by one. What is drawn and not used is used next."""

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences
        self._drawn: deque[str] = deque()
        self._day = ""

    def expect(self, count: int) -> None:
        """So many may be needed soon."""
        missing = count - len(self._drawn)
        if missing > 0:
            drawn = self._sequences.tasks(missing)
            if drawn[0].split("-")[1] != self._day:  # what is left of yesterday
                self._drawn.clear()
                self._day = drawn[0].split("-")[1]
            self._drawn.extend(drawn)

    def take(self) -> str:
        """An id that nobody else has."""
        if not self._drawn:
            self.expect(1)
        return self._drawn.popleft()

    def give_back(self, task_id: str) -> None:
        """It was not used after all."""
        self._drawn.appendleft(task_id)
