"""Writing down what happened: to the journal, which may be away, and to the log, each warning once."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from kingdom.journal import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.journal import EventData, Journal

log = logging.getLogger("kingdom.court.chamberlain")

ACTOR: Final = "chamberlain"
_KEPT: Final = 1_000  # events that wait for the journal to be writable again


class Warnings:
    """Logs what is wrong when it begins or changes, not every time it is seen."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def __call__(self, about: str, message: str) -> None:
        """Say what is wrong with something; an empty message says that it is well again."""
        if message and self._said.get(about) != message:
            log.warning("%s: %s", about, message)
        if message:
            self._said[about] = message
        else:
            self._said.pop(about, None)

    @contextlib.contextmanager
    def around(self, about: str) -> Iterator[None]:
        """Do one part of a look: whatever goes wrong in it is said, and the other parts go on."""
        try:
            yield
        except OSError as error:
            self(about, f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        except Exception as error:
            if str(error) != self._said.get(about):
                log.exception("%s failed; the rest goes on", about)
                self._said[about] = str(error)
        else:
            self(about, "")


class Emitter:
    """Emits internal events in the chamberlain's name. What the journal does not take now, it gets later."""

    def __init__(self, journal: Journal, warn: Warnings) -> None:
        self._journal = journal
        self._warn = warn
        self._waiting: deque[EventData] = deque(maxlen=_KEPT)

    def __call__(self, event: EventData) -> None:
        """Write an event, after those that still wait."""
        self._waiting.append(event)
        self.flush()

    def flush(self) -> None:
        """Write what waits, as far as the journal takes it."""
        while self._waiting:
            try:
                self._journal.emit(self._waiting[0], ACTOR)
            except JournalError as error:
                self._warn("journal", str(error))
                return
            self._waiting.popleft()
        self._warn("journal", "")
