"""The watcher interface, its errors and stored state, and the poller that runs one watcher.

One poll of a source is ``fetch → parse → emit → post_emit``. The order makes it safe to be killed at any point: events
are durable before they are marked as seen, marked as seen before the cursor moves, and the cursor has moved before the
source is notified. A step that is repeated produces the same ids.

A new source needs a module with a :class:`Watcher` and a section in the configuration.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from kingdom.base.backoff import backoff
from kingdom.base.files import read_json, write_json
from kingdom.court.errors import CourtError
from kingdom.court.home import check_name
from kingdom.court.models import timestamp

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.court.models import Event
    from kingdom.court.sentinel.events import EventEmitter


log = logging.getLogger("kingdom.court.sentinel")
_MAX_HINTS_PER_POLL: Final = 200
_MAX_PROBLEMS: Final = 20  # of parts of one source, in the heartbeat
_BACK_OFF_SECONDS: Final = (10.0, 1800.0)  # first pause after a failure, longest pause
_REFUSED_PAUSE_SECONDS: Final = 300.0  # somebody has to fix the token or the configuration first


class SourceError(CourtError):
    """Base class of the errors of a source."""

    code = "SOURCE"


class SourceBusy(SourceError):
    """The source asks to wait ``wait`` seconds before the next request."""

    code = "SOURCE_BUSY"

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message)
        self.wait = wait


class SourceRefused(SourceError):
    """The source rejects the request: the token is wrong or lacks a permission. Somebody has to fix that."""

    code = "SOURCE_REFUSED"

    def __init__(self, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.headers: Mapping[str, str] = headers or {}
        """The headers of the response, with names in lower case."""


class SourceUnauthorized(SourceRefused):
    """The source does not accept the token at all."""

    code = "SOURCE_UNAUTHORIZED"


class SourceElsewhere(SourceRefused):
    """The source sends us to another host. The token is not sent there; the configured address has to be corrected."""

    code = "SOURCE_ELSEWHERE"


class SourceNotFound(SourceError):
    """The resource does not exist, or the token may not see it."""

    code = "SOURCE_MISSING"


class SourceGone(SourceNotFound):
    """The source says that the resource was deleted for good."""

    code = "SOURCE_GONE"


class SourceUnavailable(SourceError):
    """The source cannot be reached, fails, or sends a response that makes no sense."""

    code = "SOURCE_UNAVAILABLE"


class CircuitOpen(SourceUnavailable):
    """The source failed several times in a row, so requests are suspended for a while."""

    code = "SOURCE_CIRCUIT_OPEN"


class SourceState:
    """The cursor and the pause of one source, in ``state/sentinel/<source>.json``. Each write is atomic."""

    def __init__(self, folder: Path, source: str) -> None:
        self._path = folder / f"{check_name('source', source)}.json"
        found = read_json(self._path)
        if found is None and self._path.exists():
            broken = self._path.with_suffix(".broken")
            self._path.rename(broken)
            log.error("%s: the state file is unreadable; moved it to %s and starting from scratch", source, broken)
        document = found if isinstance(found, dict) else {}
        cursor, paused = document.get("cursor"), document.get("paused_until")
        self.cursor: Mapping[str, Any] = cursor if isinstance(cursor, dict) else {}
        self.paused_until: float = paused if isinstance(paused, int | float) else 0.0
        failures = document.get("failures")
        self.failures: int = failures if isinstance(failures, int) else 0
        self._refused = document.get("refused") is True
        if self._refused:  # a new process may have another token
            self.paused_until = 0.0

    def save(self, cursor: Mapping[str, Any]) -> None:
        """Store the cursor. Call it only when all events before it are durable."""
        if cursor != self.cursor:
            self.cursor = cursor
            self._write()

    def pause(self, until: float, failures: int, *, refused: bool = False) -> None:
        """Pause the source until ``until``, also across restarts unless it refused us; 0 ends the pause."""
        if (until, failures, refused) != (self.paused_until, self.failures, self._refused):
            self.paused_until, self.failures, self._refused = until, failures, refused
            self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        document: dict[str, Any] = {"cursor": self.cursor, "paused_until": self.paused_until, "failures": self.failures}
        if self._refused:
            document["refused"] = True
        write_json(self._path, document)


def hints_folder(home: Home) -> Path:
    return home.role("sentinel") / "hints"


def write_hint(home: Home, source: str, delivery: str, what: dict[str, Any]) -> None:
    """Make the sentinel poll a source now. Durable on return; a repeated delivery leaves one hint.

    Two webhooks with the same delivery id but different content are two hints.
    """
    folder = hints_folder(home)
    folder.mkdir(parents=True, exist_ok=True)
    content = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
    name = f"{check_name('source', source)}-{check_name('delivery', delivery)}-{content}.json"
    write_json(folder / name, what)


class Hints:
    """Hints that webhooks left for one source, in ``state/sentinel/hints/``: "poll this now".

    A webhook may be lost, repeated, or forged by somebody who knows its secret. So it only triggers a poll. The source
    itself says what happened, under the same ids as without a webhook. A hint is removed when its poll is done.
    """

    def __init__(self, home: Home, source: str) -> None:
        self._folder = hints_folder(home)
        self._prefix = f"{source}-"

    def any(self) -> bool:
        return bool(self._names())

    def read(self) -> dict[str, Any]:
        """Return the hints by file name, at most ``_MAX_HINTS_PER_POLL``."""
        return {name: read_json(self._folder / name) for name in self._names()[:_MAX_HINTS_PER_POLL]}

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._folder / name).unlink()

    def _names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(path.name for path in self._folder.iterdir() if path.name.startswith(self._prefix))
        return []


@dataclass(slots=True)
class FetchedBatch:
    """A part of what a poll read from a source."""

    items: list[Any]
    cursor: Mapping[str, Any]
    """The cursor to store once the events of all items are durable."""
    done: list[Any] = field(default_factory=list)
    """What :meth:`Watcher.post_emit` acknowledges afterwards."""


class Watcher(Protocol):
    """Reads one source."""

    name: str
    """The name of the state file, and the ``source`` of its events."""

    @property
    def interval(self) -> float:
        """Seconds between two polls; a source may ask for more than was configured."""

    def fetch(self, cursor: Mapping[str, Any]) -> AsyncIterator[FetchedBatch]:
        """Read what is new, in batches. Raises :class:`SourceError`."""

    def parse(self, batch: FetchedBatch) -> list[Event]:
        """Turn a batch into events. Items that make no sense are logged and skipped."""

    async def post_emit(self, batch: FetchedBatch) -> None:
        """Acknowledge a batch at the source; its events are durable by now."""

    def urgent(self) -> bool:
        """Return whether to poll before the interval is over."""

    def problems(self) -> Mapping[str, str]:
        """Return what keeps a part of the source from being read while the rest goes on: a sentence for each part."""

    async def close(self) -> None: ...


class SourcePoller:
    """Polls one source when it is due, and pauses it after failures."""

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
        self._polled = False  # a poll of this process has ended
        self._problem: str | None = None
        self._refused = False
        self._failing_since = 0.0
        self._partial: Mapping[str, str] = {}

    def wait(self) -> float:
        """Return the seconds until the next poll is due; 0 if it is due now."""
        now = self._clock()
        if self._state.paused_until > now:
            return self._state.paused_until - now
        if self._last is None or now < self._last or self.watcher.urgent():  # now < last: the clock was set back
            return 0.0
        return max(self._last + self.watcher.interval - now, 0.0)

    async def poll(self) -> None:
        """Poll once. Never raises: errors appear in :meth:`report`, and the poll is repeated later."""
        self._last = self._clock()
        self._polls += 1
        try:
            await self._fetch_and_emit()
        except SourceBusy as error:
            self._pause(error.wait, self._state.failures, error)
        except SourceRefused as error:
            self._pause(_REFUSED_PAUSE_SECONDS, self._state.failures + 1, error)
        except Exception as error:
            if not isinstance(error, SourceError):
                log.exception("%s: polling failed", self.watcher.name)
            failures = self._state.failures + 1
            self._pause(backoff(failures - 1, *_BACK_OFF_SECONDS) * (1 + self._jitter() / 4), failures, error)
        else:
            if self._problem is not None:
                log.info("%s: works again", self.watcher.name)
            self._problem = None
            self._state.pause(0.0, 0)
        self._polled = True
        self._note_partial_problems()

    async def _fetch_and_emit(self) -> None:
        async with contextlib.aclosing(self.watcher.fetch(self._state.cursor)) as batches:  # type: ignore[type-var]
            async for batch in batches:
                self._events += len(await self._emitter.emit(self.watcher.parse(batch)))
                self._state.save(batch.cursor)
                await self.watcher.post_emit(batch)

    def _pause(self, seconds: float, failures: int, error: Exception) -> None:
        problem = str(error) or type(error).__name__
        if problem.split(":")[:2] != (self._problem or "").split(":")[:2]:  # log a lasting problem once
            log.warning("%s (next attempt in %.0f s)", problem, seconds)
        if self._problem is None:
            self._failing_since = self._clock()
        self._problem, self._refused = problem, isinstance(error, SourceRefused)
        self._state.pause(self._clock() + seconds, failures, refused=self._refused)

    def _note_partial_problems(self) -> None:
        """Log problems of parts of the source when they begin and end."""
        before, self._partial = self._partial, dict(self.watcher.problems())
        for key in self._partial.keys() - before.keys():
            log.warning("%s", self._partial[key])
        for key in before.keys() - self._partial.keys():
            log.info("%s: %s works again", self.watcher.name, key)

    def report(self) -> dict[str, Any]:
        """Return this source's part of the heartbeat."""
        report: dict[str, Any] = {"polls": self._polls, "events": self._events}
        if self._last is not None:
            report["last"] = timestamp(self._last)
        if not self._polled:
            report["unknown"] = True
        if self._problem is not None:
            report |= {
                "problem": self._problem[:500],
                "failing_since": timestamp(self._failing_since),
                "paused_until": timestamp(self._state.paused_until),
                "refused": self._refused,
            }
        if self._partial:
            report["problems"] = {key: text[:500] for key, text in sorted(self._partial.items())[:_MAX_PROBLEMS]}
        return report
