"""Simulated faults of the exchange: every way in which a real one can fail its clients."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """What the exchange does with a request that places an order."""

    NONE = "takes it"  # 201
    REJECT = "refuses it (422)"
    THROTTLE = "is too busy (429)"
    ERROR_BEFORE = "fails before placing it (503)"
    ERROR_AFTER = "fails after placing it (500)"
    SILENT_BEFORE = "never answers, not placed"
    SILENT_AFTER = "never answers, placed"
    LOST_AFTER = "places it, then the connection breaks"
    LATE = "places it after the client gave up"


Script = Callable[[str, int], Fault]
"""Chooses the fault of a request from the client's tag and the number of earlier requests with that tag."""

_WEIGHTS: Final = {
    Fault.NONE: 8,
    Fault.REJECT: 2,
    Fault.THROTTLE: 2,
    Fault.ERROR_BEFORE: 1,
    Fault.ERROR_AFTER: 1,
    Fault.SILENT_BEFORE: 1,
    Fault.SILENT_AFTER: 1,
    Fault.LOST_AFTER: 1,
    Fault.LATE: 2,
}


def seeded(seed: int) -> Script:
    """Return a pseudo-random script that depends only on the seed, not on the order of the requests."""

    def fault(tag: str, number: int) -> Fault:
        rng = random.Random(f"{seed}:{tag}:{number}")
        return rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]

    return fault


def scripted(plan: Mapping[str, Sequence[Fault]]) -> Script:
    """Return a script that follows a plan: for each tag the faults of its requests in turn, then none."""

    def fault(tag: str, number: int) -> Fault:
        steps = plan.get(tag, ())
        return steps[number] if number < len(steps) else Fault.NONE

    return fault
