"""The three queues of a court, as streams of the bus.

============  =========  ============  ==================
stream        waiting    held          finished
============  =========  ============  ==================
``events``    pending    dispatched    completed
``tasks``     pending    in_progress   completed
``messages``  pending    (pending)     sent, failed
============  =========  ============  ==================

The documents are the court's own (:mod:`kingdom.court.models`), one file each; the ``status`` in a document and the
directory it lies in always agree. What cannot be read or is not valid lies in ``invalid/`` with its reason beside it.

A claimed document is ``delivery.envelope.payload``; ``read`` turns it into its model. Tasks are claimed by the name of
the general (``claim(TASKS, types=[name])``), events and messages by their type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError

from kingdom.bus import DocumentForm, Envelope, connect
from kingdom.court.errors import InvalidDocument
from kingdom.court.models import Document, Event, Message, Task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kingdom.bus import EventBus
    from kingdom.bus.delivery import Status

EVENTS: Final = "events"
TASKS: Final = "tasks"
MESSAGES: Final = "messages"
MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024

STATES: Final[dict[str, dict[Status, str]]] = {
    EVENTS: {"PENDING": "pending", "PROCESSING": "dispatched", "DONE": "completed", "DEAD": "invalid"},
    TASKS: {"PENDING": "pending", "PROCESSING": "in_progress", "DONE": "completed", "DEAD": "invalid"},
    MESSAGES: {"PENDING": "pending", "PROCESSING": "pending", "DONE": "sent", "DEAD": "failed"},
}
_FORMS: Final = {
    EVENTS: DocumentForm(outcomes=("failed",)),
    TASKS: DocumentForm(type="target_general", outcomes=("failed", "needs_human")),
    MESSAGES: DocumentForm(priority=None),
}
_MODELS: Final[dict[str, type[Document]]] = {EVENTS: Event, TASKS: Task, MESSAGES: Message}
D = TypeVar("D", bound=Document)


def open_queues(url: str) -> EventBus:
    """The bus the queues are on: ``async with open_queues(url) as bus``. :func:`declare_queues` comes first, once."""
    return connect(url, max_bytes=MAX_DOCUMENT_BYTES)


async def declare_queues(bus: EventBus) -> None:
    """Make the queues. Safe to repeat."""
    await bus.setup()
    for stream, states in STATES.items():
        await bus.declare(stream, states=states, document=_FORMS[stream])


async def put(bus: EventBus, documents: Iterable[Event | Task | Message]) -> list[str]:
    """Put new documents into their queues, durably; return the ids accepted. One that is known is left out."""
    accepted: list[str] = []
    batches: dict[str, list[Envelope]] = {EVENTS: [], TASKS: [], MESSAGES: []}
    for document in documents:
        stream = queue_of(document)
        batches[stream].append(envelope_of(stream, document))
    for stream, envelopes in batches.items():
        if envelopes:
            accepted += await bus.publish(stream, envelopes)
    return accepted


def queue_of(document: Document) -> str:
    """The queue a document belongs to."""
    return next(stream for stream, model in _MODELS.items() if isinstance(document, model))


def envelope_of(stream: str, document: Document) -> Envelope:
    """The envelope a document travels in."""
    payload = document.document()
    return _FORMS[stream].envelope(payload)


def read(model: type[D], payload: Any, where: str) -> D:
    """The model of a claimed document, or :class:`InvalidDocument` that names what is wrong and where."""
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'the document'}: {item['msg']}" for item in error.errors()
        )
        raise InvalidDocument(f"{where}: {problems}") from None
