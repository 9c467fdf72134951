"""When to clean: every day at its time, made up when it was missed, and a stretch at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kingdom.court.chamberlain.cleaning import Cleaning
from kingdom.court.days import last_due
from kingdom.journal.catalog import RecoveryFilesCleaned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from zoneinfo import ZoneInfo

    from kingdom.court.chamberlain.config import RetentionSection
    from kingdom.court.chamberlain.memory import Memory
    from kingdom.court.chamberlain.retention import Warn
    from kingdom.court.chamberlain.soldiers import Barracks
    from kingdom.court.loop import Services
    from kingdom.journal import EventData

_AT_ONCE: Final = 1.0  # seconds of cleaning before something else is looked at


class Housekeeping:
    """Runs the cleanings."""

    def __init__(self, services: Services, barracks: Barracks, memory: Memory, zone: ZoneInfo, warn: Warn) -> None:
        self._services = services
        self._barracks = barracks
        self._memory = memory
        self._zone = zone
        self._warn = warn
        self._steps: AsyncIterator[int] | None = None
        self._day = ""  # for which the cleaning under way is
        self._removed = 0

    async def step(
        self, section: RetentionSection, now: float, emit: Callable[[EventData], None], *, with_journal: bool
    ) -> bool:
        """Clean for a moment, if it is time; returns whether there is more to do."""
        if self._steps is None:
            self._day = last_due(now, section.at, self._zone).isoformat()
            if self._day <= (self._memory.cleaned or ""):
                return False
            services = self._services
            cleaning = Cleaning(services.home, services.bus, self._barracks, section, now, self._warn)
            self._steps, self._removed = cleaning.run(with_journal=with_journal), 0
        until = time.monotonic() + _AT_ONCE
        try:
            async for removed in self._steps:
                self._removed += removed
                if time.monotonic() > until:
                    return True
        except BaseException:
            self._steps = None  # begun anew with the next look
            raise
        self._steps = None
        self._memory.cleaned = self._day
        if self._removed:
            emit(RecoveryFilesCleaned(deleted_count=self._removed))
        return False
