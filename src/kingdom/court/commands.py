"""Commands from people: inject an event, answer, cancel, retry, wait for the outcome.

Each command is an event. So it is durable, and takes effect whether the court runs or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import read_object
from kingdom.bus import NotPermitted
from kingdom.court.activity import recent_entries
from kingdom.court.cancellations import NOTE_FIELD
from kingdom.court.errors import CourtError
from kingdom.court.home import check_name
from kingdom.court.machines.capacity import refuse_joined
from kingdom.court.models import DETECTED_BY, Event, timestamp
from kingdom.court.packages.installed import load_generals
from kingdom.court.patterns import NOBODY_SUBSCRIBES
from kingdom.court.queues import (
    EVENTS,
    TASKS,
    all_documents,
    document_from_record,
    find_document,
    is_answered,
    is_cancelled,
    parse_document,
    put_documents,
)
from kingdom.journal.catalog import EventDetected, EventDiscarded, MessageHumanResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.queues import StoredDocument


# What people ask of a court: each is an event, so that it is durable, and done whether the court runs or not.


CONSOLE_SOURCE: Final = "console"
_PEOPLES_SOURCES: Final = (CONSOLE_SOURCE, "slack", "web", "mcp")  # through which people speak to the court
OPEN_STATUSES: Final = ("pending", "in_progress")
NEEDS_HUMAN: Final = "needs_human"


class UnknownTask(CourtError):
    """There is no task with this id."""

    code = "NOT_FOUND"


class InvalidTaskState(CourtError):
    """The state of the task does not allow the command."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def inject_event(services: Services, document: dict[str, Any]) -> bool:
    """Put an event into the queue; return False when its id is already known.

    Raises :class:`~kingdom.court.errors.InvalidDocument` when it does not follow the schema, and
    :class:`~kingdom.court.errors.JoinedMachine` where the role of the database only runs generals.
    """
    actor = "envoy" if document.get("source") in _PEOPLES_SOURCES else "sentinel"
    defaults = {"created_at": timestamp(services.clock()), DETECTED_BY: actor}
    event = parse_document(Event, {**defaults, **document}, "the event")
    try:
        accepted = bool(await put_documents(services.bus, [event]))
    except NotPermitted:
        refuse_joined(services.home)
        raise
    if accepted:
        services.journal.emit(EventDetected(event.id, event.source, event.type), actor)
    return accepted


async def find_task(services: Services, task_id: str) -> StoredDocument:
    """Return the task with this id. Raises :class:`UnknownTask`."""
    found = await find_document(services, check_name("task", task_id))
    if found is None or found.stream != TASKS:
        raise UnknownTask(f"no task {task_id} here: kingdom task ls lists all tasks")
    return found


async def allowed_actions(services: Services, task: StoredDocument) -> list[str]:
    """Return the commands that the state of a task allows: ``cancel``, ``retry``, ``answer``."""
    state = _state_of(services, task)
    if state in OPEN_STATUSES:
        return ["cancel"]
    if state == NEEDS_HUMAN and not await is_answered(services, task.id) and not await is_cancelled(services, task.id):
        return ["answer", "cancel"]
    return ["retry"]


def _state_of(services: Services, task: StoredDocument) -> str:
    """Return the status of a task. One that has asked counts as that before its general has settled it."""
    state = str(task.document.get("status"))
    if state in OPEN_STATUSES and read_object(services.home.result(task.id)).get("status") == NEEDS_HUMAN:
        return NEEDS_HUMAN
    return state


async def answer_question(services: Services, task_id: str, text: str, user: str, source: str = CONSOLE_SOURCE) -> str:
    """Answer the open question of a task; return the id of the event.

    Raises :class:`UnknownTask`, and :class:`InvalidTaskState` when the task has no open question.
    """
    task = await find_task(services, task_id)
    state = _state_of(services, task)
    if state != NEEDS_HUMAN:
        raise InvalidTaskState("NO_QUESTION", f"{task_id} is {state} and asks nothing: kingdom status lists questions")
    if await is_answered(services, task_id):
        raise InvalidTaskState("ANSWERED", f"{task_id} is answered already: kingdom trace {task_id} shows by whom")
    if await is_cancelled(services, task_id):
        raise InvalidTaskState("CANCELLED", f"{task_id} is cancelled, and asks nothing any more")
    return await submit_answer(services, task_id, text, user, source)


async def cancel_task(
    services: Services, task_id: str, user: str, source: str = CONSOLE_SOURCE, note: str | None = None
) -> str:
    """Cancel a task; return the id of the event. Raises :class:`UnknownTask` and :class:`InvalidTaskState`.

    ``note`` is the reason that is posted for the requester.
    """
    state = (await find_task(services, task_id)).document.get("status")
    if state not in (*OPEN_STATUSES, NEEDS_HUMAN):
        raise InvalidTaskState("ALREADY_ENDED", f"{task_id} has ended already ({state}): there is nothing to cancel")
    return await submit_cancel(services, task_id, user, source, note)


async def retry_task(services: Services, task_id: str, user: str, source: str = CONSOLE_SOURCE) -> str:
    """Run a task that has ended again; return the id of the event. Raises as :func:`cancel_task` does."""
    state = (await find_task(services, task_id)).document.get("status")
    if state in OPEN_STATUSES:
        raise InvalidTaskState("NOT_ENDED", f"{task_id} is {state}: kingdom task cancel {task_id} ends it first")
    return await submit_retry(services, task_id, user, source)


async def submit_answer(services: Services, task_id: str, text: str, user: str, source: str = CONSOLE_SOURCE) -> str:
    """Submit an answer without checking the state of the task; return the id of the event.

    Raises :class:`InvalidTaskState` when another answer was submitted in the same second.
    """
    event_id, accepted = await _submit_command(
        services, source, "response", "human_response", task_id, {"text": text, "user": user}
    )
    if not accepted:
        raise InvalidTaskState("ANSWERED", f"{task_id} is answered already: kingdom trace {task_id} shows by whom")
    services.journal.emit(MessageHumanResponse(task_id, source), "envoy")
    return event_id


async def submit_cancel(
    services: Services, task_id: str, user: str, source: str = CONSOLE_SOURCE, note: str | None = None
) -> str:
    """Submit a cancel without checking the state of the task; return the id of the event."""
    said = {"user": user} if note is None else {"user": user, NOTE_FIELD: note}
    return (await _submit_command(services, source, "cancel", "task_cancel", task_id, said))[0]


async def submit_retry(services: Services, task_id: str, user: str, source: str = CONSOLE_SOURCE) -> str:
    """Submit a retry without checking the state of the task; return the id of the event."""
    return (await _submit_command(services, source, "retry", "task_retry", task_id, {"user": user}))[0]


async def _submit_command(
    services: Services, source: str, word: str, kind: str, task_id: str, payload: dict[str, Any]
) -> tuple[str, bool]:
    """Put a command into the queue; return its id, and False when the same was submitted in the same second."""
    event_id = f"evt-{source}-{word}-{task_id}-{int(services.clock())}"
    document = {
        "id": event_id,
        "type": f"{source}.{kind}",
        "source": source,
        "payload": {"task_id": task_id, **payload},
        "priority": "high",
    }
    return event_id, await inject_event(services, document)


_MAX_NEAREST: Final = 5
_POLL_SECONDS: Final = 1.0  # between checks when no change is signalled


@dataclass(frozen=True, slots=True)
class EventOutcome:
    """The outcome of an event. ``status`` is the event's own, or ``needs_human``."""

    event_id: str
    status: str
    task_id: str | None = None
    result: str | None = None  # the status of the last task's result
    summary: str = ""
    discarded: str | None = None  # why the king made no task of it
    known_types: tuple[str, ...] = ()  # the nearest types that generals subscribe to, when nobody takes the event

    @property
    def succeeded(self) -> bool:
        """Whether the event succeeded."""
        return self.discarded is None and self.status == "completed" and self.result in (None, "success", "skipped")


async def wait_for_outcome(services: Services, event_id: str) -> EventOutcome:
    """Wait until an event has ended, or a question of its task is open."""
    woken = asyncio.Event()
    undo = services.bus.subscribe(EVENTS, woken.set)
    try:
        while True:
            woken.clear()
            if (known := await _find_outcome(services, event_id)) is not None:
                return known
            # Not wait_for: in Python 3.11 it swallows a cancellation that arrives together with the result.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await woken.wait()
    finally:
        undo()


async def _find_outcome(services: Services, event_id: str) -> EventOutcome | None:
    record = await services.bus.find(event_id)
    if record is None:
        return EventOutcome(event_id, "unknown")
    if record.status == "DEAD":
        return EventOutcome(event_id, "invalid", summary=record.error_message or "")
    if record.status == "PENDING":
        return None
    task_id = last_task(await all_documents(services, (TASKS,)), event_id)
    found = read_object(services.home.result(task_id)) if task_id else {}
    if record.status == "DONE" and task_id is None and (reason := await _discard_reason(services, event_id)):
        nearest = nearest_types(services.home, record.envelope.type) if reason == NOBODY_SUBSCRIBES else ()
        return EventOutcome(event_id, "discarded", discarded=reason, known_types=nearest)
    if record.status == "DONE":
        summary = found.get("summary") or found.get("error") or ""
        status = document_from_record(record).state  # a database keeps the document as published
        return EventOutcome(event_id, status, task_id, found.get("status"), str(summary))
    if found.get("status") == "needs_human":
        question = found.get("question")
        text = question.get("text") if isinstance(question, dict) else found.get("summary")
        return EventOutcome(event_id, "needs_human", task_id, "needs_human", str(text))
    return None


async def _discard_reason(services: Services, event_id: str) -> str | None:
    entries = await asyncio.to_thread(
        recent_entries, services.home.journal, services.clock(), [EventDiscarded.spec.name]
    )
    reasons = [str(entry.fields.get("reason")) for entry in entries if entry.fields.get("event_id") == event_id]
    return reasons[-1] if reasons else None


def nearest_types(home: Home, event_type: str) -> tuple[str, ...]:
    """Return the types and patterns that generals subscribe to, the most similar first, at most five."""
    known = {
        subscription.type
        for general in load_generals(home).by_name.values()
        for subscription in general.manifest.subscribes
    }
    return tuple(difflib.get_close_matches(event_type, sorted(known), n=_MAX_NEAREST, cutoff=0.0))


def last_task(tasks: Iterable[StoredDocument], event_id: str) -> str | None:
    """Return the last task of an event, including tasks that continued after an answer."""
    last: str | None = None
    for task in sorted(tasks, key=lambda item: item.id):
        payload = task.document.get("payload")
        continues = isinstance(payload, dict) and last is not None and payload.get("original_task_id") == last
        if continues or task.document.get("event_id") == event_id:
            last = task.id
    return last
