"""Exponential back-off."""

from __future__ import annotations

import random


def backoff(
    attempt: int,
    first: float,
    longest: float,
    *,
    factor: float = 2.0,
    jitter: float = 0.0,
    rng: random.Random | None = None,
) -> float:
    """Return the pause in seconds after failed attempt number ``attempt``, counted from 0.

    The pause is ``first × factor^attempt``, at most ``longest``. ``jitter`` is a fraction that is added or taken away
    at random after the limit, so that callers which failed together do not come back together.
    """
    try:
        pause = min(longest, first * factor**attempt)
    except OverflowError:
        pause = longest
    return pause * (1 + (rng or random).uniform(-jitter, jitter)) if jitter else pause
