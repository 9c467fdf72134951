"""`/api/event-types`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import ConfigDict, RootModel

from kingdom.court.event_types import KnownEventType
from kingdom.web.context import Context
from kingdom.web.envelope import Ok, Page, ok, page
from kingdom.web.views.events import list_event_types, read_event_schema

router = APIRouter(prefix="/api/event-types", tags=["court"])
EventTypePath = Annotated[
    str,
    Path(alias="type", max_length=200, pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)+$", examples=["github.pr.opened"]),
]


class EventSchemaDocument(RootModel[dict[str, Any]]):
    """A JSON Schema."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "title": "github.pr.opened",
                    "type": "object",
                    "properties": {"payload": {"type": "object", "properties": {"number": {"type": "integer"}}}},
                    "required": ["type"],
                }
            ]
        }
    )


@router.get("", operation_id="listEventTypes", summary="List the types of events")
async def get_event_types(context: Context) -> Ok[Page[KnownEventType]]:
    """Types that sources emit, generals subscribe to, or the queue holds, by name."""
    return page(await list_event_types(context))


@router.get("/{type}/schema", operation_id="getEventSchema", summary="Get the schema of a type of events")
async def get_event_schema(context: Context, kind: EventTypePath) -> Ok[EventSchemaDocument]:
    """The JSON Schema of an event to inject.

    The fields of its payload are those of its source and of the latest events of the type; others are allowed.
    """
    return ok(EventSchemaDocument(await read_event_schema(context, kind)))
