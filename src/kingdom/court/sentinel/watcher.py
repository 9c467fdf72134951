"""The watcher interface, its errors and stored state, and the poller that runs one watcher."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from kingdom.base.files import read_json, write_json
from kingdom.court.errors import CourtError
from kingdom.court.home import check_name
from kingdom.court.models import timestamp

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.court.models import Event
    from kingdom.court.sentinel.events import EventEmitter


# What a source can answer instead of what was asked for.


class SourceError(CourtError):
    """The root of what goes wrong with a source."""

    code = "SOURCE"


class SourceBusy(SourceError):
    """The source wants to be left alone for ``wait`` seconds."""

    code = "SOURCE_BUSY"

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message)
        self.wait = wait


class SourceRefused(SourceError):
    """The source knows us and says no: a wrong token, or one that may not do this. A person has to mend it."""

    code = "SOURCE_REFUSED"


class SourceUnauthorized(SourceRefused):
    """The token itself is not accepted, for anything."""

    code = "SOURCE_UNAUTHORIZED"


class SourceNotFound(SourceError):
    """What was asked for is not there, or not for us."""

    code = "SOURCE_MISSING"


class SourceUnavailable(SourceError):
    """The source cannot be reached, or does not work, or makes no sense."""

    code = "SOURCE_UNAVAILABLE"


class CircuitOpen(SourceUnavailable):
    """The source failed several times in a row: it is not asked for a while."""

    code = "SOURCE_CIRCUIT_OPEN"


# What a source remembers between two looks, in ``state/sentinel/<source>.json``.


log = logging.getLogger("kingdom.court.sentinel")


class SourceState:
    """The cursor of one source, and until when it must be left alone. Written as a whole, then renamed."""

    def __init__(self, folder: Path, source: str) -> None:
        self._path = folder / f"{check_name('source', source)}.json"
        found = read_json(self._path)
        if found is None and self._path.exists():
            broken = self._path.with_suffix(".broken")
            self._path.rename(broken)
            log.error("%s: cannot be read, now %s: the source is looked at as if for the first time", source, broken)
        document = found if isinstance(found, dict) else {}
        cursor, paused = document.get("cursor"), document.get("paused_until")
        self.cursor: Mapping[str, Any] = cursor if isinstance(cursor, dict) else {}
        self.paused_until: float = paused if isinstance(paused, int | float) else 0.0
        failures = document.get("failures")
        self.failures: int = failures if isinstance(failures, int) else 0

    def save(self, cursor: Mapping[str, Any]) -> None:
        """Go on from here: everything before it is durable."""
        if cursor != self.cursor:
            self.cursor = cursor
            self._write()

    def pause(self, until: float, failures: int) -> None:
        """Leave the source alone for a while, across restarts. Zero: it may be asked again."""
        if (until, failures) != (self.paused_until, self.failures):
            self.paused_until, self.failures = until, failures
            self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        document = {"cursor": self.cursor, "paused_until": self.paused_until, "failures": self.failures}
        write_json(self._path, document)


# Hints from webhooks: "look at this now". They lie in ``state/sentinel/hints/`` until the look they caused is done.
#
# A webhook may be lost, doubled or forged by whoever knows its secret. So it only makes the sentinel look, and the
# source itself says what happened, under the same ids as without a webhook.


_MAX_HINTS_PER_POLL: Final = 200  # taken at once


def hints_folder(home: Home) -> Path:
    """Where they lie."""
    return home.role("sentinel") / "hints"


def write_hint(home: Home, source: str, delivery: str, what: dict[str, Any]) -> None:
    """Have a source looked at now. Durable when it returns; the same delivery twice is one hint."""
    folder = hints_folder(home)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{check_name('source', source)}-{check_name('delivery', delivery)}.json"
    write_json(folder / name, what)


class Hints:
    """Those for one source."""

    def __init__(self, home: Home, source: str) -> None:
        self._folder = hints_folder(home)
        self._prefix = f"{source}-"

    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._names())

    def read(self) -> dict[str, Any]:
        """Those there are, by name; at most a few hundred at once."""
        return {name: read_json(self._folder / name) for name in self._names()[:_MAX_HINTS_PER_POLL]}

    def remove(self, name: str) -> None:
        """Done with it."""
        with contextlib.suppress(FileNotFoundError):
            (self._folder / name).unlink()

    def _names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(path.name for path in self._folder.iterdir() if path.name.startswith(self._prefix))
        return []


# The shape of a source, and one look at it: ``fetch → parse → emit → post_emit``.
#
# A new source is one module with a :class:`Watcher` and a section of the configuration.
#
# The order is what makes it safe to be killed anywhere: events are durable before they are marked as seen, seen before
# the cursor moves, and the cursor has moved before the source is told anything. Whatever is done twice has the same id.


_BACK_OFF_SECONDS: Final = (10.0, 1800.0)  # seconds: at first, at most
_REFUSED_PAUSE_SECONDS: Final = 300.0  # a person has to do something first


@dataclass(slots=True)
class FetchedBatch:
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

    def fetch(self, cursor: Mapping[str, Any]) -> AsyncIterator[FetchedBatch]:
        """Read what is new, in parts. Raises :class:`~kingdom.court.sentinel.watcher.SourceError`."""

    def parse(self, batch: FetchedBatch) -> list[Event]:
        """The events a part tells of. An item that makes no sense is logged and left out."""

    async def post_emit(self, batch: FetchedBatch) -> None:
        """Tell the source, now that everything is durable."""

    def urgent(self) -> bool:
        """Whether there is a reason to look before it is time."""

    async def close(self) -> None:
        """Let go of connections."""


class SourcePoller:
    """A source that is looked at when it is time, and left alone when it fails."""

    def __init__(
        self,
        watcher: Watcher,
        emitter: EventEmitter,
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
        except SourceBusy as error:
            self._pause(error.wait, self._state.failures, error)
        except SourceRefused as error:
            self._pause(_REFUSED_PAUSE_SECONDS, self._state.failures + 1, error)
        except Exception as error:
            if not isinstance(error, SourceError):
                log.exception("%s: a look failed", self.watcher.name)
            failures = self._state.failures + 1
            wait = min(_BACK_OFF_SECONDS[0] * 2.0 ** min(failures - 1, 20), _BACK_OFF_SECONDS[1])
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
