"""What people ask of a court: each is an event, so that it is durable, and done whether the court runs or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.court.models import Event, timestamp
from kingdom.court.queues import put, read
from kingdom.journal.catalog import EventDetected, MessageHumanResponse

if TYPE_CHECKING:
    from kingdom.court.loop import Services

CONSOLE: Final = "console"


async def inject(services: Services, document: dict[str, Any]) -> bool:
    """Put an event into the queue; False when one with its id was there before.

    Raises :class:`~kingdom.court.errors.InvalidDocument` when it does not follow the schema.
    """
    event = read(Event, {"created_at": timestamp(services.clock()), **document}, "the event")
    accepted = bool(await put(services.bus, [event]))
    if accepted:
        services.journal.emit(EventDetected(event.id, event.source, event.type), "envoy")
    return accepted


async def answer(services: Services, task_id: str, text: str, user: str) -> str:
    """Answer the question of a task; returns the id of the event."""
    event_id = await _command(services, "response", "human_response", task_id, {"text": text, "user": user})
    services.journal.emit(MessageHumanResponse(task_id, CONSOLE), "envoy")
    return event_id


async def cancel(services: Services, task_id: str, user: str) -> str:
    """Have a task ended; returns the id of the event."""
    return await _command(services, "cancel", "task_cancel", task_id, {"user": user})


async def retry(services: Services, task_id: str, user: str) -> str:
    """Have a task that ended done once more; returns the id of the event."""
    return await _command(services, "retry", "task_retry", task_id, {"user": user})


async def _command(services: Services, word: str, kind: str, task_id: str, payload: dict[str, Any]) -> str:
    event_id = f"evt-{CONSOLE}-{word}-{task_id}-{int(services.clock())}"
    document = {
        "id": event_id,
        "type": f"{CONSOLE}.{kind}",
        "source": CONSOLE,
        "payload": {"task_id": task_id, **payload},
        "priority": "high",
    }
    await inject(services, document)
    return event_id
