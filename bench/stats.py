"""The arithmetic of the report: medians with their spread, ratios within one repetition, percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

Values = Sequence[float | None]  # one per repetition; None where nothing was measured


class Spread(NamedTuple):
    """The median of some repetitions, and how far they reach."""

    median: float
    low: float
    high: float


def spread(values: Values) -> Spread | None:
    """The median, minimum and maximum of what was measured; None when nothing was."""
    measured = [value for value in values if value is not None]
    return Spread(median(measured), min(measured), max(measured)) if measured else None


def ratios(mine: Values, reference: Values) -> list[float | None]:
    """``mine / reference``, repetition by repetition.

    Two figures are compared only when they were measured next to each other: the machine may be twice as fast a minute
    later, while the ratio stays.
    """
    return [None if a is None or b is None or b == 0 else a / b for a, b in zip(mine, reference, strict=True)]


def best(several: Sequence[Values], *, higher: bool) -> list[float | None]:
    """In each repetition the best of several contestants."""
    choose = max if higher else min
    columns = zip(*several, strict=True)
    return [choose(known) if (known := [v for v in column if v is not None]) else None for column in columns]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that ``percent`` of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]
