"""Answers to the questions of tasks: what was answered, by whom, when, and the task that goes on with it.

The document of a task that asked stays ``needs_human`` for ever. What people are shown is ``answered`` or
``cancelled`` once it is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import read_object
from kingdom.court.queues import EVENTS, TASKS, command_events, is_cancelled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kingdom.court.loop import Services
    from kingdom.court.queues import StoredDocument

NEEDS_HUMAN: Final = "needs_human"
ANSWERED: Final = "answered"
CANCELLED: Final = "cancelled"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the question of a task."""

    task_id: str
    text: str
    user: str
    at: str
    resumed_as: str | None  # the task that goes on; None while the king has not created it

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        goes_on = f" (goes on as {self.resumed_as})" if self.resumed_as else ""
        return f"{self.user or 'somebody'} answered: {self.text}{goes_on}"


def answers_in(documents: Iterable[StoredDocument]) -> dict[str, Answer]:
    """Return the answers that some tasks and events hold, by the task that asked. A task counts before an event."""
    found: dict[str, Answer] = {}
    for stored in sorted(documents, key=lambda one: one.stream != EVENTS):
        document, payload = stored.document, stored.document.get("payload")
        if not isinstance(payload, dict):
            continue
        resume = stored.stream == TASKS and document.get("type") == "resume"
        if not resume and not (stored.stream == EVENTS and str(document.get("type")).endswith(".human_response")):
            continue
        asked = payload.get("original_task_id" if resume else "task_id")
        if isinstance(asked, str) and (resume or asked not in found):
            said = payload.get("answer" if resume else "text")
            at, user = str(document.get("created_at") or ""), str(payload.get("user") or "")
            found[asked] = Answer(asked, str(said or ""), user, at, stored.id if resume else None)
    return found


async def with_answers(services: Services, tasks: list[StoredDocument]) -> dict[str, Answer]:
    """Return the answers to the questions of ``tasks``, which must be all tasks of the court."""
    found = answers_in(tasks)
    for task in tasks:
        if task.document.get("status") == NEEDS_HUMAN and task.id not in found:
            found |= answers_in(await command_events(services, task.id, "response"))
    return found


async def shown_status(services: Services, task: StoredDocument, answers: dict[str, Answer]) -> str:
    """Return the status of a task as people are shown it."""
    status = str(task.document.get("status") or task.state)
    if status == "pending" and read_object(services.home.result(task.id)).get("status") == CANCELLED:
        return CANCELLED  # it was cancelled while it was held back, and is settled when it is due
    if status != NEEDS_HUMAN:
        return status
    if task.id in answers:
        return ANSWERED
    return CANCELLED if await is_cancelled(services, task.id) else status
