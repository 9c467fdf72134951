"""When a role that died is started again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

FIRST: Final = 0.5  # seconds before the first restart; doubled with each death in a row
LONGEST: Final = 60.0
LIMIT: Final = 8  # deaths in a row after which a role counts as failed
FAILED_EVERY: Final = 600.0  # how often a failed one is tried all the same: a disk may have been full for an hour
STEADY: Final = 60.0  # whoever lived this long did not die in a row


@dataclass(slots=True)
class Restarts:
    """The deaths of one role, and what follows from them. All times are of a clock that nobody sets."""

    deaths: int = 0
    why: str = ""
    due: float = field(default=0.0)

    def died(self, now: float, lived: float, why: str) -> float:
        """Note a death; returns the seconds until the next start."""
        self.deaths = 1 if lived >= STEADY else self.deaths + 1
        self.why = why
        delay = FAILED_EVERY if self.failed else min(FIRST * 2.0 ** (self.deaths - 1), LONGEST)
        self.due = now + delay
        return delay

    @property
    def failed(self) -> bool:
        """Whether it died so often that a person must look at it."""
        return self.deaths >= LIMIT
