"""What one look at the court leads to. It is collected first, then written into the book, then done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kingdom.court.king.book import Entry
from kingdom.journal.catalog import EventDiscarded, TaskCreated

if TYPE_CHECKING:
    from kingdom.court.king.cases import Case
    from kingdom.court.king.messages import Draft
    from kingdom.court.models import Event, Message, Task
    from kingdom.journal.registry import EventData


@dataclass(slots=True)
class Plan:
    """Everything to be done together."""

    cases: dict[str, Case | None] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    done: dict[str, str | None] = field(default_factory=dict)
    invalid: dict[str, str] = field(default_factory=dict)  # events that are none, and why; the book need not know
    slots: dict[str, dict[str, Any]] = field(default_factory=dict)
    journal: list[EventData] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any((self.cases, self.tasks, self.drafts, self.events, self.done, self.slots))

    def new_task(self, task: Task) -> None:
        """A task is to be made."""
        self.tasks.append(task)
        self.journal.append(TaskCreated(task.id, task.type, task.target_general, task.priority))

    def discard(self, event_id: str, event_type: str, reason: str) -> None:
        """An event is completed without anything being done for it."""
        self.done[event_id] = None
        self.journal.append(EventDiscarded(event_id, event_type, reason))

    def entry(self, messages: list[Message]) -> Entry:
        """The entry in the book."""
        return Entry(
            cases={root: None if case is None else case.to_dict() for root, case in self.cases.items()},
            tasks=[task.document() for task in self.tasks],
            messages=[message.document() for message in messages],
            events=[event.document() for event in self.events],
            done=dict(self.done),
            slots=dict(self.slots),
            journal=[(line.spec.name, _data(line)) for line in self.journal],
        )


def _data(line: EventData) -> dict[str, Any]:
    return {item.key: getattr(line, item.name) for item in line.spec.fields}
