"""Answers to the questions of tasks: what was answered, by whom, when, and the task that goes on with it.

The document of a task that asked stays ``needs_human`` for ever. What people are shown is ``answered`` or
``cancelled`` once it is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import read_object
from kingdom.base.times import epoch_seconds
from kingdom.court.document_index import full_document, stub_document
from kingdom.court.models import RESUME_TYPE, USER_NAME_FIELD
from kingdom.court.queues import EVENTS, TASKS, command_events, is_cancelled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kingdom.court.document_index import DocumentIndex, IndexEntry
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.queues import StoredDocument

NEEDS_HUMAN: Final = "needs_human"
ANSWERED: Final = "answered"
CANCELLED: Final = "cancelled"
_RESPONSE_SUFFIX: Final = ".human_response"
_CANCEL_SUFFIX: Final = ".task_cancel"


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


def asked_at(home: Home, task_id: str) -> float | None:
    """Return when the question of a task was posted where the task was asked for; None if it was not."""
    return asked_later(home, task_id) or epoch_seconds(read_object(home.result(task_id)).get("asked_at"))


def asked_later(home: Home, task_id: str) -> float | None:
    """Return when it was posted, if GitHub or Jira was away when the task ended; None otherwise."""
    path = home.asked(task_id)
    return epoch_seconds(path.read_text("utf-8", "replace")) if path.exists() else None


def answers_in(documents: Iterable[StoredDocument]) -> dict[str, Answer]:
    """Return the answers that some tasks and events hold, by the task that asked. A task counts before an event."""
    found: dict[str, Answer] = {}
    for stored in sorted(documents, key=lambda one: one.stream != EVENTS):
        document, payload = stored.document, stored.document.get("payload")
        if not isinstance(payload, dict):
            continue
        resume = stored.stream == TASKS and document.get("type") == RESUME_TYPE
        if not resume and not (stored.stream == EVENTS and str(document.get("type")).endswith(_RESPONSE_SUFFIX)):
            continue
        asked = payload.get("original_task_id" if resume else "task_id")
        if isinstance(asked, str) and (resume or asked not in found):
            said = payload.get("answer" if resume else "text")
            at = str(document.get("created_at") or "")
            user = str(payload.get(USER_NAME_FIELD) or payload.get("user") or "")
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
    if status != NEEDS_HUMAN:
        return _unasked_status(services.home, task.id, status)
    if task.id in answers:
        return ANSWERED
    return CANCELLED if await is_cancelled(services, task.id) else status


def _unasked_status(home: Home, task_id: str, status: str) -> str:
    if status == "pending" and read_object(home.result(task_id)).get("status") == CANCELLED:
        return CANCELLED  # it was cancelled while it was held back, and is settled when it is due
    return status


class QuestionIndex:
    """The same answers and statuses from the indexes of tasks and events, for many calls."""

    def __init__(self, services: Services, tasks: DocumentIndex, events: DocumentIndex) -> None:
        self._services = services
        self._indexes = (tasks, events)
        self._seen: tuple[Sequence[IndexEntry], ...] = ()
        self._replies: dict[str, list[StoredDocument]] = {}  # stubs of answers, by the task that asked
        self._cancelled: set[str] = set()

    async def refresh(self) -> dict[str, str]:
        """Read what is new. Returns the statuses of all questions that are no longer open, by task."""
        tasks, events = seen = tuple([await index.newest() for index in self._indexes])
        if len(self._seen) != len(seen) or any(old is not new for old, new in zip(self._seen, seen, strict=True)):
            self._seen, self._replies, self._cancelled = seen, {}, set()
            for stream, entries in ((TASKS, tasks), (EVENTS, events)):
                self._collect(stream, entries)
        return dict.fromkeys(self._cancelled, CANCELLED) | dict.fromkeys(self._replies, ANSWERED)

    def _collect(self, stream: str, entries: Sequence[IndexEntry]) -> None:
        for entry in entries:
            if stream == TASKS and entry.type == RESUME_TYPE:
                # Its other links come from the payload of an event, which could name any task.
                self._replies.setdefault(str(entry.fields.get("original_task_id")), []).append(
                    stub_document(entry, stream)
                )
            elif stream == EVENTS and entry.type.endswith(_RESPONSE_SUFFIX):
                for asked in entry.links:
                    self._replies.setdefault(asked, []).append(stub_document(entry, stream))
            elif stream == EVENTS and entry.type.endswith(_CANCEL_SUFFIX):
                self._cancelled |= entry.links

    async def answer(self, task_id: str) -> Answer | None:
        """Return the answer to the question of a task; None when there is none. Call :meth:`refresh` first."""
        read = [await full_document(self._services, one) for one in self._replies.get(task_id, ())]
        return answers_in([one for one in read if one is not None]).get(task_id)

    def shown_status(self, task_id: str, status: str, settled: dict[str, str]) -> str:
        """Return the status of a task as people are shown it. ``settled`` comes from :meth:`refresh`."""
        if status == NEEDS_HUMAN:
            return settled.get(task_id, status)
        return _unasked_status(self._services.home, task_id, status)
