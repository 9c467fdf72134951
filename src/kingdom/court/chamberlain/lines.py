"""Reading the journal into the counts, a bounded stretch at a time."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from kingdom.court.chamberlain.scan import count
from kingdom.journal import Problem, Reader

if TYPE_CHECKING:
    from kingdom.court.chamberlain.memory import Memory
    from kingdom.court.home import Home

_AT_ONCE: Final = 1.0  # seconds of reading before something else is looked at
_PROBLEMS_TOLD: Final = 5  # in one reading: a broken file has very many
log = logging.getLogger("kingdom.court.chamberlain")


class JournalLines:
    """The reader of one chamberlain. Its place is kept in the memory, with the counts."""

    def __init__(self, home: Home, memory: Memory) -> None:
        self._home = home
        self._memory = memory
        self._problems = 0
        self._reader: Reader | None = None

    def read(self) -> bool:
        """Count what is new; returns whether the end was reached. Raises :class:`kingdom.journal.JournalError`."""
        if self._reader is None:
            self._reader = Reader(self._home.journal, cursor=self._memory.cursor, report=self._report)
        until = time.monotonic() + _AT_ONCE
        self._problems = 0
        try:
            for block in self._reader.read_blocks():
                count(self._memory.tally, block)
                if time.monotonic() > until:
                    return False
        except BaseException:
            self.close()
            raise
        finally:
            self._remember()
            if self._problems > _PROBLEMS_TOLD:
                log.warning("journal: %d more lines could not be taken", self._problems - _PROBLEMS_TOLD)
        return True

    @property
    def reading(self) -> bool:
        """Whether the last reading ended in good order."""
        return self._reader is not None

    def close(self) -> None:
        """Let go of the files."""
        self._remember()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _remember(self) -> None:
        """Keep the place behind what was counted, however the reading ended."""
        if self._reader is not None:
            self._memory.cursor = self._reader.cursor

    def _report(self, problem: Problem) -> None:
        self._problems += 1
        self._memory.tally.skipped += 1
        if self._problems <= _PROBLEMS_TOLD:
            log.warning("journal: %s", problem)
