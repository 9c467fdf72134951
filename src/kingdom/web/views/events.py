"""Events and messages: lists, one document with what belongs to it, types of events, events that people emit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from kingdom.bus.envelope import new_event_id
from kingdom.court.commands import inject_event
from kingdom.court.document_index import COMMAND_EVENT_SUFFIXES, INVALID, full_document, index_fields, stub_document
from kingdom.court.event_types import event_schema, known_event_types
from kingdom.court.home import check_name
from kingdom.court.queues import EVENTS, MESSAGES, TASKS, find_document
from kingdom.web.acting import acting_person, acts_on
from kingdom.web.envelope import ApiError, ApiModel, not_found
from kingdom.web.views.court_state import court_state
from kingdom.web.views.document_links import DocumentLink, linked_documents
from kingdom.web.views.documents import (
    DocumentFilter,
    DocumentPage,
    EventSummary,
    MessageSummary,
    list_documents,
)
from kingdom.web.views.redaction import check_payload, json_safe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kingdom.court.document_index import EntryFilter, IndexEntry
    from kingdom.court.event_types import KnownEventType
    from kingdom.court.queues import StoredDocument
    from kingdom.web.context import WebContext

WEB_SOURCE: Final = "web"
"""Source of events and commands that come through the web."""
DISCARDED: Final = "discarded"
"""The status that people are shown for an event of which the king made no task."""
_COMPLETED: Final = "completed"


class CourtEventState(ApiModel):
    """An event. ``event`` is the document as stored."""

    event: dict[str, Any]
    shown_status: str = Field(description="The status for people: an event without a task is `discarded`.")
    reason: str | None = Field(description="Why it was discarded, or is invalid.")
    subject: str | None = Field(description="Subject, such as a pull request.", examples=["acme/shop#7"])
    title: str | None = Field(description="Title in the payload.", examples=["Discounts"])
    linked: list[DocumentLink] = Field(description="Its tasks and messages; for an answer, the event it belongs to.")


class MessageState(ApiModel):
    """A message. ``message`` is the document as stored."""

    message: dict[str, Any]
    status: str = Field(examples=["sent"])
    reason: str | None = Field(description="Why it could not be sent, or is invalid.")
    linked: list[DocumentLink] = Field(description="Its task and event.")


# ── Events ──


async def list_events(
    context: WebContext, wanted: DocumentFilter | None = None, limit: int = 50, cursor: str | None = None
) -> DocumentPage[EventSummary]:
    """List external events, newest first. A status in ``wanted`` is one that people are shown: ``discarded``."""
    state = court_state(context)
    reasons = await asyncio.to_thread(state.discarded.read)
    first = None
    if wanted is not None and wanted.status in (DISCARDED, _COMPLETED):
        first, wanted = _with_shown_status(wanted.status, reasons), replace(wanted, status=None)
    listing = await list_documents(context, EVENTS, EventSummary, wanted, limit, cursor, first)
    tasks = await _tasks_of(context, [event.id for event in listing.items])
    for event in listing.items:
        event.shown_status = _shown_status(event.id, event.status, reasons)
        event.reason = await _reason(context, EVENTS, event.id, event.shown_status, reasons)
        event.tasks = tasks.get(event.id, [])
    return listing


async def read_event(context: WebContext, event_id: str) -> dict[str, Any]:
    """Return an event as stored."""
    return json_safe((await _find(context, EVENTS, "event", event_id)).document)  # type: ignore[no-any-return]


async def read_event_state(context: WebContext, event_id: str) -> CourtEventState:
    """Return an event with its reason, tasks and messages."""
    state, found = court_state(context), await _find(context, EVENTS, "event", event_id)
    reasons = await asyncio.to_thread(state.discarded.read)
    shown = _shown_status(event_id, _status(found), reasons)
    fields = index_fields(found.document)
    return CourtEventState(
        event=json_safe(found.document),
        shown_status=shown,
        reason=await _reason(context, EVENTS, event_id, shown, reasons),
        subject=json_safe(fields["subject"]),
        title=json_safe(fields["title"]),
        linked=await linked_documents(state, EVENTS, event_id),
    )


def _with_shown_status(status: str, reasons: Mapping[str, str]) -> EntryFilter:
    wanted = status == DISCARDED

    def keep(entries: list[IndexEntry]) -> list[IndexEntry]:
        return [entry for entry in entries if entry.status == _COMPLETED and (entry.id in reasons) is wanted]

    return keep


def _shown_status(event_id: str, status: str, reasons: Mapping[str, str]) -> str:
    return DISCARDED if status == _COMPLETED and event_id in reasons else status


async def _tasks_of(context: WebContext, event_ids: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in reversed(await court_state(context).indexes[TASKS].linking_to(event_ids)):
        if entry.state != INVALID:
            found.setdefault(str(entry.fields.get("event_id")), []).append(entry.id)
    return found


# ── Messages ──


async def list_messages(
    context: WebContext, wanted: DocumentFilter | None = None, limit: int = 50, cursor: str | None = None
) -> DocumentPage[MessageSummary]:
    """List messages to people, newest first."""
    listing = await list_documents(context, MESSAGES, MessageSummary, wanted, limit, cursor)
    index = court_state(context).indexes[MESSAGES]
    for message in listing.items:
        message.reason = await _reason(context, MESSAGES, message.id, message.status, {})
        entry = await index.get(message.id)
        links = () if entry is None else entry.links
        message.task_id = next((one for one in sorted(links) if one.startswith("task-")), None)
    return listing


async def read_message(context: WebContext, message_id: str) -> dict[str, Any]:
    """Return a message as stored."""
    return json_safe((await _find(context, MESSAGES, "message", message_id)).document)  # type: ignore[no-any-return]


async def read_message_state(context: WebContext, message_id: str) -> MessageState:
    """Return a message with its reason, task and event."""
    found = await _find(context, MESSAGES, "message", message_id)
    return MessageState(
        message=json_safe(found.document),
        status=_status(found),
        reason=await _reason(context, MESSAGES, message_id, _status(found), {}),
        linked=await linked_documents(court_state(context), MESSAGES, message_id),
    )


# ── Both ──


async def _find(context: WebContext, stream: str, what: str, document_id: str) -> StoredDocument:
    found = await find_document(context.court, check_name(what, document_id))
    if found is None or found.stream != stream:
        raise not_found("SYS", what, document_id)
    return found


def _status(stored: StoredDocument) -> str:
    return stored.state if stored.state == INVALID else str(stored.document.get("status") or stored.state)


async def _reason(
    context: WebContext, stream: str, document_id: str, status: str, reasons: Mapping[str, str]
) -> str | None:
    """Return why an event was discarded, a message failed, or a document is invalid."""
    reason: str | None = None
    if status == DISCARDED:
        reason = reasons.get(document_id)
    elif status in (INVALID, "failed") and stream == MESSAGES:
        record = await context.court.bus.find(document_id)
        reason = None if record is None else record.error_message
    if reason is None and status == INVALID:
        entry = await court_state(context).indexes[stream].get(document_id)
        stored = None if entry is None else await full_document(context.court, stub_document(entry, stream))
        reason = None if stored is None else stored.problem
    return None if reason is None else json_safe(reason)


# ── Types ──


async def list_event_types(context: WebContext) -> list[KnownEventType]:
    """Return the types that sources emit, generals subscribe to, or the queue holds."""
    state = court_state(context)
    entries = await state.indexes[EVENTS].newest()

    def read() -> list[KnownEventType]:
        return known_event_types(state.services.home, {entry.type for entry in entries if entry.state != INVALID})

    return await asyncio.to_thread(read)


async def read_event_schema(context: WebContext, kind: str) -> dict[str, Any]:
    """Return the JSON Schema of an event of a type."""
    state = court_state(context)
    return json_safe(await event_schema(state.services, state.indexes[EVENTS], kind))  # type: ignore[no-any-return]


async def emit_event(context: WebContext, fields: dict[str, Any], event_id: str | None = None) -> tuple[str, bool]:
    """Store an event durably. Returns its id, and whether the id was new."""
    check_payload(fields["payload"])
    if str(fields["type"]).endswith(COMMAND_EVENT_SUFFIXES) and not acting_person().is_owner:
        # such an event names who asked: only its own operation signs it
        raise ApiError(403, "SYS_SIGNATURE", f"{fields['type']} is a command: use its operation of the API")
    chosen = event_id or f"evt-{WEB_SOURCE}-{new_event_id()}"
    acts_on(chosen)
    return chosen, await inject_event(context.court, {**fields, "id": chosen})
