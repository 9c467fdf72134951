"""A circuit breaker: a source that fails again and again is not asked for a while, then once to see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_FAILURES: Final = 3  # in a row
_PAUSE: Final = (60.0, 1800.0)  # seconds: at first, at most


class Breaker:
    """Counts failures in a row. Closed: requests pass. Open: none does. After the pause one may, and decides."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._opened = 0  # times in a row
        self._until = 0.0

    @property
    def wait(self) -> float:
        """Seconds until a request may pass; 0 when one may now."""
        return max(self._until - self._clock(), 0.0)

    def succeeded(self) -> None:
        """The source answered."""
        self._failures = self._opened = 0
        self._until = 0.0

    def failed(self) -> None:
        """It did not, or with an error of its own."""
        self._failures += 1
        if self._failures >= _FAILURES or self._opened:
            self._failures = 0
            self._until = self._clock() + min(_PAUSE[0] * 2.0**self._opened, _PAUSE[1])
            self._opened = min(self._opened + 1, 10)
