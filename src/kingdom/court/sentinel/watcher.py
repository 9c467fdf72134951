"""The shape of a source, and one look at it: ``fetch → parse → emit → post_emit``.

A new source is one module with a :class:`Watcher` and a section of the configuration.

The order is what makes it safe to be killed anywhere: events are durable before they are marked as seen, seen before
the cursor moves, and the cursor has moved before the source is told anything. Whatever is done twice has the same id.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from kingdom.court.models import timestamp
from kingdom.court.sentinel.errors import Busy, Refused, SourceError

if TYPE_CHECKING:
    from kingdom.court.models import Event
    from kingdom.court.sentinel.emitting import Emitter
    from kingdom.court.sentinel.state import SourceState

_BACK_OFF: Final = (10.0, 1800.0)  # seconds: at first, at most
_REFUSED: Final = 300.0  # a person has to do something first
log = logging.getLogger("kingdom.court.sentinel")


@dataclass(slots=True)
class Batch:
    """A part of what a source has to tell."""

    items: list[Any]
    cursor: Mapping[str, Any]
    """What to remember once everything the items tell is durable."""
    done: list[Any] = field(default_factory=list)
    """What the source is told afterwards."""


class Watcher(Protocol):
    """One source."""

    name: str
    """Names its state file, and stands in its events as ``source``."""

    @property
    def interval(self) -> float:
        """Seconds between two looks; a source may ask for more than was configured."""

    def fetch(self, cursor: Mapping[str, Any]) -> AsyncIterator[Batch]:
        """Read what is new, in parts. Raises :class:`~kingdom.court.sentinel.errors.SourceError`."""

    def parse(self, batch: Batch) -> list[Event]:
        """The events a part tells of. An item that makes no sense is logged and left out."""

    async def post_emit(self, batch: Batch) -> None:
        """Tell the source, now that everything is durable."""

    def urgent(self) -> bool:
        """Whether there is a reason to look before it is time."""

    async def close(self) -> None:
        """Let go of connections."""


class Watch:
    """A source that is looked at when it is time, and left alone when it fails."""

    def __init__(
        self,
        watcher: Watcher,
        emitter: Emitter,
        state: SourceState,
        clock: Callable[[], float],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.watcher = watcher
        self._emitter = emitter
        self._state = state
        self._clock = clock
        self._jitter = jitter
        self._last: float | None = None
        self._polls = self._events = 0
        self._problem: str | None = None

    def wait(self) -> float:
        """Seconds until it is time to look; 0 when it is."""
        now = self._clock()
        if self._state.paused_until > now:
            return self._state.paused_until - now
        if self._last is None or now < self._last or self.watcher.urgent():  # before: the clock was set back
            return 0.0
        return max(self._last + self.watcher.interval - now, 0.0)

    async def poll(self) -> None:
        """Look once. What goes wrong is told in :meth:`report` and tried again later; it never raises."""
        self._last = self._clock()
        self._polls += 1
        try:
            await self._look()
        except Busy as error:
            self._pause(error.wait, self._state.failures, error)
        except Refused as error:
            self._pause(_REFUSED, self._state.failures + 1, error)
        except Exception as error:
            if not isinstance(error, SourceError):
                log.exception("%s: a look failed", self.watcher.name)
            failures = self._state.failures + 1
            wait = min(_BACK_OFF[0] * 2.0 ** min(failures - 1, 20), _BACK_OFF[1])
            self._pause(wait * (1 + self._jitter() / 4), failures, error)
        else:
            if self._problem is not None:
                log.info("%s: works again", self.watcher.name)
            self._problem = None
            self._state.pause(0.0, 0)

    async def _look(self) -> None:
        async with contextlib.aclosing(self.watcher.fetch(self._state.cursor)) as batches:  # type: ignore[type-var]
            async for batch in batches:
                self._events += len(await self._emitter.emit(self.watcher.parse(batch)))
                self._state.save(batch.cursor)
                await self.watcher.post_emit(batch)

    def _pause(self, seconds: float, failures: int, error: Exception) -> None:
        problem = str(error) or type(error).__name__
        if problem.split(":")[:2] != (self._problem or "").split(":")[:2]:  # not again every few seconds
            log.warning("%s (next try in %.0f s)", problem, seconds)
        self._problem = problem
        self._state.pause(self._clock() + seconds, failures)

    def report(self) -> dict[str, Any]:
        """What the heartbeat tells about it."""
        told: dict[str, Any] = {"polls": self._polls, "events": self._events}
        if self._last is not None:
            told["last"] = timestamp(self._last)
        if self._problem is not None:
            told |= {"problem": self._problem[:500], "paused_until": timestamp(self._state.paused_until)}
        return told
