"""Which claim statement to run: behind the watermark, or the full one.

The watermark is a hint kept per process and stream: how far this process has claimed, for each priority. Claims behind
it stay fast whatever dead entries the index holds. What may lie before it (retries, expired leases, transactions that
committed late) is found by a full claim, which runs

* whenever there is no sustained backlog (a full claim then costs nothing extra),
* after a claim behind the mark that came back short, and
* from time to time under load: at least every half second, unless full claims have become so slow that this would
  take more than a twentieth of the time.
"""

from __future__ import annotations

import time
from collections import deque
from datetime import UTC, datetime
from typing import Any, Final

_START: Final = (datetime(1970, 1, 1, tzinfo=UTC), 0)
_SLOW: Final = 0.05  # seconds: full claims this slow, three in a row, walk over dead entries: they are run sparingly
_SUSTAINED: Final = 2  # filled claims in a row, of at least so many events each:
_LARGE: Final = 20
_PRIORITIES: Final = 3


class Watermark:
    """How far one process has claimed one stream."""

    def __init__(self) -> None:
        self._marks = [_START] * _PRIORITIES
        self._filled = 0  # large claims in a row that were filled to their limit
        self._costs = deque([0.0] * 3, maxlen=3)  # seconds the last full claims took
        self._next_full = 0.0

    def usable(self) -> bool:
        """Whether a claim behind the mark is worth trying first."""
        return (self._filled >= _SUSTAINED or min(self._costs) > _SLOW) and time.monotonic() < self._next_full

    def must_look_before(self, found: int, limit: int) -> bool:
        """Whether a claim behind the mark that found this much must be followed by a full one."""
        return found == 0 or (found < limit and min(self._costs) <= _SLOW)

    def arrays(self) -> tuple[list[datetime], list[int]]:
        """The mark as the parameters of claim_fast.sql."""
        return [mark[0] for mark in self._marks], [mark[1] for mark in self._marks]

    def claimed(self, rows: list[Any], limit: int) -> None:
        """Note what a claim returned."""
        self._filled = self._filled + 1 if limit >= _LARGE and len(rows) >= limit else 0
        for row in rows:
            position = (row["next_retry_at"], row["id"])
            if position > self._marks[row["priority"]]:
                self._marks[row["priority"]] = position

    def full_claim_took(self, seconds: float) -> None:
        """Note the cost of a full claim, and when the next one is due at the latest."""
        self._costs.append(seconds)
        self._next_full = time.monotonic() + max(0.5, 20 * seconds)
