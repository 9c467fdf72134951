"""What is known about a task besides itself: its event, the tasks it goes on from, its repository, its subject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kingdom.court.general.lineage import Lineage, lineage
from kingdom.court.subjects import subject_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.bus import EventBus
    from kingdom.court.home import Home
    from kingdom.court.models import Task


@dataclass(frozen=True, slots=True)
class Errand:
    """A task and where it comes from."""

    task: Task
    line: Lineage
    event: Mapping[str, Any] | None = None  # None for a schedule, and for an event that was cleaned away

    @property
    def repo(self) -> Any:
        """The repository that the task names, or the tasks before it did, or its event does. Not checked."""
        if named := (self.task.model_extra or {}).get("repo") or self.line.repo:
            return named
        # A schedule has its repository in the payload that its manifest gives it.
        return self.task.payload.get("repo") if self.event is None else self.event.get("repo")

    @property
    def type(self) -> Any:
        """The type of what happened, also for a task that goes on after an answer. Not checked."""
        return self.line.task_type or self.task.type

    @property
    def subject(self) -> str | None:
        """What the task is about, the same for all tasks about it."""
        return subject_of({"repo": self.repo, "payload": self.task.payload})


async def learn(home: Home, bus: EventBus, task: Task) -> Errand:
    """Find out what a task comes from. Raises :class:`~kingdom.court.general.errors.TaskRefused`."""
    line = lineage(home, task)
    event = (task.model_extra or {}).get("event")
    if not isinstance(event, dict) or event.get("id") != task.event_id:  # a resume, or somebody made it by hand
        record = await bus.find(task.event_id)
        event = None if record is None else record.envelope.payload
    return Errand(task, line, event if isinstance(event, dict) else None)
