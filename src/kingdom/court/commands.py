"""What people ask of a court: each is an event, so that it is durable, and done whether the court runs or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.court.documents import answered, cancelled, find_document
from kingdom.court.errors import CourtError
from kingdom.court.home import checked
from kingdom.court.models import Event, timestamp
from kingdom.court.queues import TASKS, put, read
from kingdom.journal.catalog import EventDetected, MessageHumanResponse

if TYPE_CHECKING:
    from kingdom.court.documents import Stored
    from kingdom.court.loop import Services

CONSOLE: Final = "console"
OPEN: Final = ("pending", "in_progress")
ASKING: Final = "needs_human"


class UnknownTask(CourtError):
    """There is no task of that id."""

    code = "NOT_FOUND"


class NotNow(CourtError):
    """The task is not in a state in which that can be asked of it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def inject(services: Services, document: dict[str, Any]) -> bool:
    """Put an event into the queue; False when one with its id was there before.

    Raises :class:`~kingdom.court.errors.InvalidDocument` when it does not follow the schema.
    """
    event = read(Event, {"created_at": timestamp(services.clock()), **document}, "the event")
    accepted = bool(await put(services.bus, [event]))
    if accepted:
        services.journal.emit(EventDetected(event.id, event.source, event.type), "envoy")
    return accepted


async def find_task(services: Services, task_id: str) -> Stored:
    """The task of that id. Raises :class:`UnknownTask`."""
    found = await find_document(services, checked("task", task_id))
    if found is None or found.stream != TASKS:
        raise UnknownTask(f"no task {task_id} here: kingdom task ls lists those there are")
    return found


async def allowed_now(services: Services, task: Stored) -> list[str]:
    """What can be asked of a task as it is: ``cancel``, ``retry``, ``answer``."""
    state = task.document.get("status")
    if state in OPEN:
        return ["cancel"]
    if state == ASKING and not await answered(services, task.id) and not await cancelled(services, task.id):
        return ["answer", "cancel"]
    return ["retry"]


async def answer_question(services: Services, task_id: str, text: str, user: str, source: str = CONSOLE) -> str:
    """Answer the question of a task, as the first one to do so; returns the id of the event.

    Raises :class:`UnknownTask`, and :class:`NotNow` when it asks nothing, or not any more.
    """
    task = await find_task(services, task_id)
    state = task.document.get("status")
    if state != ASKING:
        raise NotNow("NO_QUESTION", f"{task_id} is {state} and asks nothing: kingdom status lists questions")
    if await answered(services, task_id):
        raise NotNow("ANSWERED", f"{task_id} is answered already: kingdom trace {task_id} tells by whom")
    if await cancelled(services, task_id):
        raise NotNow("CANCELLED", f"{task_id} is cancelled, and asks nothing any more")
    return await answer(services, task_id, text, user, source)


async def cancel_task(services: Services, task_id: str, user: str, source: str = CONSOLE) -> str:
    """Have a task ended; returns the id of the event. Raises :class:`UnknownTask` and :class:`NotNow`."""
    state = (await find_task(services, task_id)).document.get("status")
    if state not in (*OPEN, ASKING):
        raise NotNow("ALREADY_ENDED", f"{task_id} has ended already ({state}): there is nothing to cancel")
    return await cancel(services, task_id, user, source)


async def retry_task(services: Services, task_id: str, user: str, source: str = CONSOLE) -> str:
    """Have a task that ended done once more; returns the id of the event. Raises as :func:`cancel_task` does."""
    state = (await find_task(services, task_id)).document.get("status")
    if state in OPEN:
        raise NotNow("NOT_ENDED", f"{task_id} is {state}: kingdom task cancel {task_id} ends it first")
    return await retry(services, task_id, user, source)


async def answer(services: Services, task_id: str, text: str, user: str, source: str = CONSOLE) -> str:
    """Pass an answer on, whatever the task is up to; returns the id of the event.

    Raises :class:`NotNow` when there was one in this very second.
    """
    event_id, accepted = await _command(
        services, source, "response", "human_response", task_id, {"text": text, "user": user}
    )
    if not accepted:
        raise NotNow("ANSWERED", f"{task_id} is answered already: kingdom trace {task_id} tells by whom")
    services.journal.emit(MessageHumanResponse(task_id, source), "envoy")
    return event_id


async def cancel(services: Services, task_id: str, user: str, source: str = CONSOLE) -> str:
    """Have a task ended, whatever it is up to; returns the id of the event."""
    return (await _command(services, source, "cancel", "task_cancel", task_id, {"user": user}))[0]


async def retry(services: Services, task_id: str, user: str, source: str = CONSOLE) -> str:
    """Have a task done once more, whatever it is up to; returns the id of the event."""
    return (await _command(services, source, "retry", "task_retry", task_id, {"user": user}))[0]


async def _command(
    services: Services, source: str, word: str, kind: str, task_id: str, payload: dict[str, Any]
) -> tuple[str, bool]:
    """Put a command into the queue; False when the same was asked in the same second."""
    event_id = f"evt-{source}-{word}-{task_id}-{int(services.clock())}"
    document = {
        "id": event_id,
        "type": f"{source}.{kind}",
        "source": source,
        "payload": {"task_id": task_id, **payload},
        "priority": "high",
    }
    return event_id, await inject(services, document)
