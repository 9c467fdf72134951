"""How long a test looks for a counterexample: shortly in ``make test``, ten times as long in ``make walks``."""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("KINGDOM_SEARCH_FACTOR", "1"))


def examples(count: int) -> int:
    """How many random examples to try where ``make test`` tries ``count``."""
    return count * FACTOR
