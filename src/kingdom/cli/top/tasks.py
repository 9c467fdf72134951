"""The latest tasks, as the journal tells of them: cheap to keep, however many lie in the queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.journal import Entry

_KEPT: Final = 200
_STATES: Final = {
    "task.created": "pending",
    "task.started": "in progress",
    "task.completed": "completed",
    "task.failed": "failed",
    "task.needs_human": "needs human",
}


@dataclass(slots=True)
class TaskLine:
    """One task."""

    id: str
    state: str
    since: float
    general: str = ""
    kind: str = ""
    note: str = ""


class TaskBook:
    """Tasks in the order in which something happened to them."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskLine] = {}

    def feed(self, entry: Entry) -> None:
        """Take note of a line of the journal."""
        fields, when = entry.fields, entry.at.timestamp()
        if entry.type == "task.resumed":
            self._note(fields.get("original_task_id"), "answered", when, note=f"goes on as {fields.get('task_id')}")
        elif (state := _STATES.get(entry.type)) is not None:
            task = self._note(fields.get("task_id"), state, when, note=_note(fields))
            if task is not None and entry.type == "task.created":
                task.general, task.kind = str(fields.get("target_general")), str(fields.get("event_type"))
            elif task is not None:
                task.general = task.general or entry.actor

    def lines(self) -> list[TaskLine]:
        """The last one to whom something happened first."""
        return list(reversed(self._tasks.values()))

    def _note(self, task_id: object, state: str, when: float, *, note: str) -> TaskLine | None:
        if not isinstance(task_id, str):
            return None
        task = self._tasks.pop(task_id, None) or TaskLine(task_id, state, when)
        task.state, task.since, task.note = state, when, note
        self._tasks[task_id] = task
        if len(self._tasks) > _KEPT:
            del self._tasks[next(iter(self._tasks))]
        return task


def _note(fields: Mapping[str, Any]) -> str:
    if "duration_seconds" in fields:
        return f"{fields.get('status')} after {fields['duration_seconds']} s"
    return str(fields.get("error") or fields.get("question") or "")
