"""The three timers of a run, and the grace after its result. No clock of its own: the caller says what time it is."""

from __future__ import annotations

import math
from typing import Final, Literal

from kingdom.agents.port import Timer, Timers

_EXTENSION: Final = (0.1, 60.0)  # how recent a line must be to extend total: this part of it, at most so many seconds


class Timing:
    """When a run is to be ended, by a clock that never goes back."""

    def __init__(self, timers: Timers, now: float, *, elapsed: float = 0.0, spoken: bool = False) -> None:
        self._timers = timers
        self._seen = now  # when it began, or was taken over
        self._began = now - elapsed
        self._last: float | None = now if spoken else None
        self._finished: float | None = None

    def output(self, now: float) -> None:
        """The agent printed something."""
        self._last = now

    def finished(self, now: float) -> None:
        """The agent said that it is done."""
        if self._finished is None:
            self._finished = now

    def expired(self, now: float) -> Timer | Literal["after_result"] | None:
        """Which of them has run out."""
        return next((name for name, at in self._deadlines() if now >= at), None)

    def due(self) -> float:
        """When the next one runs out, as things are."""
        return min((at for _, at in self._deadlines()), default=math.inf)

    def _deadlines(self) -> list[tuple[Timer | Literal["after_result"], float]]:
        timers = self._timers
        if self._finished is not None:
            return [("after_result", self._finished + timers.after_result)]
        if self._last is None:
            return [("first_output", self._seen + timers.first_output), ("total", self._began + timers.total)]
        extended = self._last + min(_EXTENSION[0] * timers.total, _EXTENSION[1])
        total = min(self._began + 2 * timers.total, max(self._began + timers.total, extended))
        return [("silence", self._last + timers.silence), ("total", total)]
