"""The events that wait, as far as deciding about them needs: not their payloads, of which there may be very much."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.errors import InvalidDocument
from kingdom.court.king.routing import Routes, author_of
from kingdom.court.models import Event
from kingdom.court.queues import read
from kingdom.court.subjects import subject_of
from kingdom.court.trust.people import People, Person, people_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kingdom.bus.delivery import Record
    from kingdom.court.king.routing import Route

RANKS: Final = {"high": 0, "normal": 1, "low": 2}
COMMANDS: Final = {"human_response": "answer", "task_cancel": "cancel", "task_retry": "retry"}


_NOBODY: Final = People(Person(""))


@dataclass(frozen=True, slots=True)
class Waiting:
    """An event in ``pending/``."""

    id: str
    type: str
    place: int  # in the order they were found
    people: People = _NOBODY
    priority: str = "normal"
    repo: str | None = None
    author: str | None = None
    subject: str | None = None
    command: str | None = None  # answer, cancel or retry: a person speaks to the king
    task: str | None = None  # the task it speaks of
    invalid: str | None = None  # why it is no event


@dataclass(slots=True)
class Line:
    """The events of one priority that wait for one general, the first in line first."""

    general: str
    priority: str
    problem: str | None
    events: dict[str, Waiting] = field(default_factory=dict)


class WaitingRoom:
    """All events that wait, by whom they wait for."""

    def __init__(self) -> None:
        self._events: dict[str, Waiting] = {}
        self._lines: dict[tuple[str, str, str | None], Line] = {}
        self._where: dict[str, Line] = {}
        self._places = 0
        self.direct: dict[str, Waiting] = {}  # what the king does himself: commands, what is invalid or unwanted

    def __contains__(self, event_id: object) -> bool:
        return event_id in self._events

    def __len__(self) -> int:
        return len(self._events)

    def lines(self) -> list[Line]:
        """The lines that are not empty, the more urgent first."""
        return sorted(
            (line for line in self._lines.values() if line.events),
            key=lambda line: (RANKS[line.priority], line.general),
        )

    def add(self, records: Iterable[Record], routes: Routes) -> None:
        """Take in events that were found."""
        for record in records:
            self._places += 1
            waiting = _waiting(record.envelope.payload, record.envelope.event_id, record.envelope.type, self._places)
            self._events[waiting.id] = waiting
            self._line_up(waiting, routes)

    def remove(self, event_id: str) -> None:
        """Forget one: it was taken up, or it is gone."""
        if self._events.pop(event_id, None) is not None:
            self.direct.pop(event_id, None)
            line = self._where.pop(event_id, None)
            if line is not None:
                del line.events[event_id]

    def clear(self) -> None:
        """Forget all of them, to look again."""
        for event_id in list(self._events):
            self.remove(event_id)

    def reroute(self, routes: Routes) -> None:
        """The manifests changed: line all up anew."""
        self._lines.clear()
        self._where.clear()
        self.direct.clear()
        for waiting in self._events.values():
            self._line_up(waiting, routes)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._events.values())

    def _line_up(self, waiting: Waiting, routes: Routes) -> None:
        route: Route | None = None
        if not (waiting.command or waiting.invalid):
            route = routes.match(waiting.type, waiting.repo, waiting.author, waiting.people)
        if route is None:
            self.direct[waiting.id] = waiting
            return
        priority = route.priority or waiting.priority
        key = route.general, priority, route.problem
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(route.general, priority, route.problem)
        line.events[waiting.id] = waiting
        self._where[waiting.id] = line


def _waiting(document: Any, event_id: str, event_type: str, place: int) -> Waiting:
    try:
        event = read(Event, document, event_id)
    except InvalidDocument as error:
        return Waiting(event_id, event_type, place, invalid=str(error))
    words = event.type.split(".")
    command = COMMANDS.get(words[1]) if len(words) == 2 else None
    task = event.payload.get("task_id") if command else None
    return Waiting(
        id=event.id,
        type=event.type,
        place=place,
        people=people_of(document),
        priority=event.priority,
        repo=event.repo,
        author=author_of(event.payload),
        subject=subject_of(document),
        command=command,
        task=task if isinstance(task, str) else None,
    )
