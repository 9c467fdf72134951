"""How fast one may speak in a channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_BURST: Final = 3.0  # posts in quick succession: Slack allows short bursts above its limit


class Pace:
    """A bucket of tokens for each channel, filled at a steady rate."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._rate = per_second
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted
        self._closed: dict[str, float] = {}  # until when nothing may be said there

    def take(self, channel: str) -> float:
        """Take a token; 0, or the seconds until there is one."""
        now = self._clock()
        closed = self._closed.get(channel, 0.0) - now
        if closed > 0:
            return closed
        self._closed.pop(channel, None)
        tokens, counted = self._buckets.get(channel, (_BURST, now))
        tokens = min(_BURST, tokens + max(now - counted, 0.0) * self._rate)
        taken = tokens >= 1.0
        self._buckets[channel] = (tokens - 1.0 if taken else tokens, now)
        return 0.0 if taken else (1.0 - tokens) / self._rate

    def close(self, channel: str, seconds: float) -> None:
        """Say nothing there for some time."""
        self._closed[channel] = max(self._closed.get(channel, 0.0), self._clock() + seconds)
