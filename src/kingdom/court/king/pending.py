"""The events that wait, as far as deciding about them needs: not their payloads, of which there may be very much."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.errors import InvalidDocument
from kingdom.court.models import Event, subject_of
from kingdom.court.patterns import RoutingTable, author_of
from kingdom.court.queues import parse_document
from kingdom.court.trust.policy import People, Person, people_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kingdom.bus.delivery import Record
    from kingdom.court.patterns import Route

PRIORITY_RANKS: Final = {"high": 0, "normal": 1, "low": 2}
COMMAND_WORDS: Final = {"human_response": "answer", "task_cancel": "cancel", "task_retry": "retry"}


_NOBODY: Final = People(Person(""))


@dataclass(frozen=True, slots=True)
class PendingEvent:
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
class PendingGroup:
    """The events of one priority that wait for one general, the first in line first."""

    general: str
    priority: str
    problem: str | None
    events: dict[str, PendingEvent] = field(default_factory=dict)


class PendingEvents:
    """All events that wait, by whom they wait for."""

    def __init__(self) -> None:
        self._events: dict[str, PendingEvent] = {}
        self._groups: dict[tuple[str, str, str | None], PendingGroup] = {}
        self._group_of: dict[str, PendingGroup] = {}
        self._places = 0
        self.direct: dict[str, PendingEvent] = {}  # what the king does himself: commands, what is invalid or unwanted

    def __contains__(self, event_id: object) -> bool:
        return event_id in self._events

    def __len__(self) -> int:
        return len(self._events)

    def groups(self) -> list[PendingGroup]:
        """The lines that are not empty, the more urgent first."""
        return sorted(
            (group for group in self._groups.values() if group.events),
            key=lambda group: (PRIORITY_RANKS[group.priority], group.general),
        )

    def add(self, records: Iterable[Record], routing: RoutingTable) -> None:
        """Take in events that were found."""
        for record in records:
            self._places += 1
            pending = _pending_event(
                record.envelope.payload, record.envelope.event_id, record.envelope.type, self._places
            )
            self._events[pending.id] = pending
            self._enqueue(pending, routing)

    def remove(self, event_id: str) -> None:
        """Forget one: it was taken up, or it is gone."""
        if self._events.pop(event_id, None) is not None:
            self.direct.pop(event_id, None)
            group = self._group_of.pop(event_id, None)
            if group is not None:
                del group.events[event_id]

    def clear(self) -> None:
        """Forget all of them, to look again."""
        for event_id in list(self._events):
            self.remove(event_id)

    def reroute(self, routing: RoutingTable) -> None:
        """The manifests changed: line all up anew."""
        self._groups.clear()
        self._group_of.clear()
        self.direct.clear()
        for pending in self._events.values():
            self._enqueue(pending, routing)

    def __iter__(self) -> Iterator[PendingEvent]:
        return iter(self._events.values())

    def _enqueue(self, pending: PendingEvent, routing: RoutingTable) -> None:
        route: Route | None = None
        if not (pending.command or pending.invalid):
            route = routing.match(pending.type, pending.repo, pending.author, pending.people)
        if route is None:
            self.direct[pending.id] = pending
            return
        priority = route.priority or pending.priority
        key = route.general, priority, route.problem
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = PendingGroup(route.general, priority, route.problem)
        group.events[pending.id] = pending
        self._group_of[pending.id] = group


def _pending_event(document: Any, event_id: str, event_type: str, place: int) -> PendingEvent:
    try:
        event = parse_document(Event, document, event_id)
    except InvalidDocument as error:
        return PendingEvent(event_id, event_type, place, invalid=str(error))
    words = event.type.split(".")
    command = COMMAND_WORDS.get(words[1]) if len(words) == 2 else None
    task = event.payload.get("task_id") if command else None
    return PendingEvent(
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
