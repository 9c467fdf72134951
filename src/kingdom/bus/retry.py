"""When a failed event is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kingdom.bus.errors import InvalidOption


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delay before attempt *n + 1*: ``base × factor^(n−1)``, at most ``cap``, give or take ``jitter``.

    The jitter (a fraction, ±20 % by default) is applied after the cap, so that events which failed together at the
    cap do not come back together. After ``max_attempts`` failed attempts the event is DEAD.
    """

    base: float = 0.5
    factor: float = 2.0
    cap: float = 60.0
    jitter: float = 0.2
    max_attempts: int = 10

    def __post_init__(self) -> None:
        rules = (
            ("base", self.base >= 0, "zero or more seconds"),
            ("factor", self.factor >= 1, "1 or more"),
            ("cap", self.cap >= 0, "zero or more seconds"),
            ("jitter", 0 <= self.jitter < 1, "a fraction from 0 up to 1"),
            ("max_attempts", self.max_attempts >= 1, "1 or more"),
        )
        for name, holds, rule in rules:
            if not holds:
                raise InvalidOption(f"RetryPolicy({name}={getattr(self, name)!r}): must be {rule}")

    def delay(self, attempt: int, rng: random.Random | None = None) -> float:
        """Seconds to wait after failed attempt number ``attempt`` (the first is 1)."""
        try:
            exact = min(self.cap, self.base * self.factor ** (attempt - 1))
        except OverflowError:
            exact = self.cap
        if not self.jitter:
            return exact
        spread = (rng or random).uniform(-self.jitter, self.jitter)
        return exact * (1 + spread)
