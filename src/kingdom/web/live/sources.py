"""Where the events of the feed come from: the workflows of a store, and the journal of a court."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from kingdom.bus.connecting import shown_url
from kingdom.journal import Cursor, InvalidCursor, Problem, Reader
from kingdom.web.live.event import Happened
from kingdom.workflow.last_number import last_number

if TYPE_CHECKING:
    from kingdom.workflow.ports import SeenEvent, Store

log = logging.getLogger("kingdom.web.live")
_WORKFLOW: Final = "wf-"  # what the id of a workflow begins with; repositories and templates have events as well


class Missed(Exception):
    """What a source was to go on with is not there any more."""


class Source(Protocol):
    """Has events, in an order of its own, and remembers where it stands."""

    name: str
    place: str
    """Up to where it was read; to be kept with what was made of it."""

    async def begin(self, place: str | None) -> None:
        """Go on at a place; without one, behind the last event. Raises :class:`Missed`, and stands there as well."""

    async def read(self, limit: int) -> list[Happened]:
        """What is new."""

    async def close(self) -> None:
        """Let go of it."""


class WorkflowSource:
    """The events of a store, by their position."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._url = shown_url(store.bus.url)  # without its password
        self.name = f"workflow {self._url}"
        self.place = "0"

    async def begin(self, place: str | None) -> None:
        """Go on at a place; without one, behind the last event."""
        last = await last_number(self._store, None)
        self.place = str(last) if place is None else str(min(last, int(place)))
        if place is not None and last < int(place):
            raise Missed(f"the store at {self._url} has {last} events, {place} were read: it is another one")

    async def read(self, limit: int) -> list[Happened]:
        """What is new."""
        seen = await self._store.events(None, int(self.place), limit)
        if seen:
            self.place = str(seen[-1].position)
        return [happened(event) for event in seen]

    async def close(self) -> None:
        """Nothing is held."""


class JournalSource:
    """The lines of a journal, read ``in_thread``: it touches files."""

    def __init__(self, path: Path, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._path = path
        self._in_thread = in_thread
        self._reader: Reader | None = None
        self._gone = False
        self.name = "journal"
        self.place = ""

    async def begin(self, place: str | None) -> None:
        """Go on at a place; without one, behind the last line."""
        await self._in_thread(lambda: self._begin(place))

    async def read(self, limit: int) -> list[Happened]:
        """What is new."""
        found: list[Happened] = await self._in_thread(lambda: self._read(limit))
        return found

    async def close(self) -> None:
        """Let go of the files."""
        await self._in_thread(self._close)

    def _begin(self, place: str | None) -> None:
        self._close()
        cursor, self._gone = _cursor(place), False
        self._reader = Reader(self._path, cursor=cursor, start="newest", report=self._report)
        if self._gone:  # where the reader would go on now is the start of some file, days ago maybe
            self._close()
            self._reader = Reader(self._path, start="newest", report=self._report)
        self._remember()
        if self._gone or (place is not None and cursor is None):
            raise Missed(f"the journal at {self._path} has lost what was being read")

    def _read(self, limit: int) -> list[Happened]:
        assert self._reader is not None
        found = [
            Happened("journal", entry.type, entry.ts, dict(entry.fields), actor=entry.actor)
            for entry in itertools.islice(self._reader.read(), limit)
        ]
        self._remember()
        return found

    def _close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _remember(self) -> None:
        assert self._reader is not None
        self.place = json.dumps(self._reader.cursor.to_dict(), separators=(",", ":"))

    def _report(self, problem: Problem) -> None:
        self._gone = self._gone or problem.kind == "gone"
        log.warning("journal: %s", problem)


def happened(event: SeenEvent) -> Happened:
    """An event of a store."""
    owner = event.workflow_id if event.workflow_id.startswith(_WORKFLOW) else None
    return Happened(
        "workflow",
        event.type,
        event.occurred_at.isoformat(),
        dict(event.payload),
        owner,
        None if owner is None else event.sequence,
    )


def _cursor(place: str | None) -> Cursor | None:
    if not place:
        return None
    try:
        return Cursor.from_dict(json.loads(place))
    except (ValueError, InvalidCursor) as error:
        log.warning("the place in the journal that was kept is not one (%s): going on at its end", error)
        return None
