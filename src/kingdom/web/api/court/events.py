"""``/api/events``: what happened outside, and making something happen."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field, StringConstraints

from kingdom.bus.ids import new_event_id
from kingdom.court.commands import inject
from kingdom.court.models import EventId, EventType, Priority
from kingdom.web.api.court.documents import EventDocument
from kingdom.web.api.court.parameters import (
    SOURCE,
    Counted,
    EventIdPath,
    Search,
    Since,
    Type,
    Until,
    Word,
    counted,
)
from kingdom.web.context import Context
from kingdom.web.envelope import ApiModel, Ok, Page, ok, page
from kingdom.web.paging import Cursor, Limit
from kingdom.web.views.documents import EventSummary, Filter, list_events
from kingdom.web.views.plain import check_payload
from kingdom.web.views.tasks import StoryLine, read_event, trace

router = APIRouter(prefix="/api/events", tags=["court"])


class NewEvent(ApiModel):
    """Something that happened, told by whoever calls."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "github.pr.review_requested",
                    "repo": "acme/shop",
                    "payload": {"pr_number": 7, "title": "Discounts"},
                    "priority": "normal",
                }
            ]
        }
    )

    type: EventType
    payload: dict[str, Any] = Field(default_factory=dict)
    source: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=100)] = SOURCE
    repo: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    priority: Priority = "normal"
    id: EventId | None = Field(default=None, description="One that was seen before changes nothing.")


class Injected(ApiModel):
    """The event is durable."""

    id: str = Field(examples=["evt-web-0199a7c2"])
    accepted: bool = Field(description="False: one with this id was there before, and nothing changed.")


@router.get("", operation_id="listEvents", summary="Events, the newest first")
async def list_all(
    context: Context,
    status: Word = None,
    kind: Type = None,
    source: Word = None,
    since: Since = None,
    until: Until = None,
    q: Search = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[Counted[EventSummary]]:
    """Events from outside, filtered and searched. `type` may end with `*`; `status=invalid` are those put aside."""
    wanted = Filter(status=status, type=kind, source=source, since=since, until=until, text=q)
    return counted(await list_events(context, wanted, limit, cursor))


@router.post("", operation_id="injectEvent", summary="Put an event into the court", status_code=201)
async def post(context: Context, event: NewEvent, response: Response) -> Ok[Injected]:
    """It is durable when this answers, and taken up at once when the court is up. 200: its id was known before."""
    check_payload(event.payload)
    event_id = event.id or f"evt-{SOURCE}-{new_event_id()}"
    accepted = await inject(context.court, {**event.model_dump(exclude={"id"}), "id": event_id})
    if not accepted:
        response.status_code = 200
    return ok(Injected(id=event_id, accepted=accepted))


@router.get("/{eventId}", operation_id="getEvent", summary="One event as it lies in its file")
async def get(context: Context, event_id: EventIdPath) -> Ok[EventDocument]:
    """The document, whatever state it is in."""
    return ok(EventDocument(await read_event(context, event_id)))


@router.get("/{eventId}/trace", operation_id="traceEvent", summary="The whole story of an event")
async def get_trace(context: Context, event_id: EventIdPath) -> Ok[Page[StoryLine]]:
    """Event, tasks, soldiers, results, messages: in time order, from every file that knows of it."""
    return page(await trace(context, event_id))
