"""A histogram of durations that can be merged, with a bounded relative error.

A duration is counted in a slot; the bounds of the slots grow by a constant factor. The histogram of a longer period is
the sum of those of its parts, so a percentile of any period is as exact as that of one minute: it differs from the
duration of the task with that rank by 2 % at most. docs/explanation/roll-ups.md has the arithmetic.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

RELATIVE_ERROR: Final = 0.02
_FACTOR: Final = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_FACTOR: Final = math.log(_FACTOR)
MIN_SECONDS: Final = 0.001
"""Shorter durations are counted as 0."""
MAX_SECONDS: Final = 10.0 * 366 * 86400
"""Longer durations are counted as this."""
ZERO_SLOT: Final = -1_000_000


def slot_of(seconds: float) -> int:
    """Return the slot in which a duration is counted: slot ``n`` ends at ``factor ** n`` and contains its end."""
    if seconds < MIN_SECONDS:
        return ZERO_SLOT
    return math.ceil(math.log(min(seconds, MAX_SECONDS)) / _LOG_FACTOR)


def seconds_of(slot: int) -> float:
    """Return the duration that stands for a slot: within 2 % of every duration in it."""
    if slot == ZERO_SLOT:
        return 0.0
    return 2 * math.exp(slot * _LOG_FACTOR) / (_FACTOR + 1)


def slots_text(counts: Mapping[int, int]) -> str:
    """Return a histogram as it is stored, two lists: ``[[12,40],[3,1]]`` is 3 in slot 12 and 1 in slot 40."""
    slots = sorted(counts)
    return json.dumps([slots, [counts[slot] for slot in slots]], separators=(",", ":"))


def add_slots(stored: str, *histograms: Counter[int]) -> None:
    """Add a stored histogram to others."""
    slots, numbers = json.loads(stored)
    for counts in histograms:
        for slot, number in zip(slots, numbers, strict=True):
            counts[slot] += number


def percentile(counts: Mapping[int, int], percent: float) -> float | None:
    """Return a percentile (nearest rank) of the durations counted by slot; None when there are none."""
    total = sum(counts.values())
    if not total:
        return None
    rank = max(math.ceil(total * percent / 100), 1)
    for slot in sorted(counts):
        rank -= counts[slot]
        if rank <= 0:
            return seconds_of(slot)
    raise AssertionError("a rank is at most the total")
