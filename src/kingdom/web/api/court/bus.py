"""``/api/bus``: the streams of both buses, how full they are, and what failed for good."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field, StringConstraints

from kingdom.web.api.court.parameters import BusName, EventIdPath, StreamName, Type, Word
from kingdom.web.context import Context
from kingdom.web.envelope import ApiModel, Ok, Page, ok, page
from kingdom.web.paging import Cursor, Limit
from kingdom.web.views.bus import (
    DeadLetterState,
    EventState,
    Requeued,
    StreamState,
    list_dead,
    list_streams,
    read_bus_event,
    requeue_dead,
    throughput,
)
from kingdom.web.views.sampling import Sample

router = APIRouter(prefix="/api/bus/{bus}", tags=["bus"])


class Requeue(ApiModel):
    """Which dead letters get another chance."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": ["evt-github-12345"]}]})

    ids: list[Annotated[str, StringConstraints(min_length=1, max_length=200)]] = Field(min_length=1, max_length=100)


@router.get("/streams", operation_id="listStreams", summary="How full the streams of a bus are")
async def get_streams(context: Context, bus: BusName) -> Ok[Page[StreamState]]:
    """`bus` is `court` or `workflow`."""
    return page(await list_streams(context, bus))


@router.get(
    "/streams/{stream}/throughput",
    operation_id="getThroughput",
    summary="A stream over the last half hour, for a chart",
)
async def get_throughput(context: Context, bus: BusName, stream: StreamName) -> Ok[Page[Sample]]:
    """A sample every few seconds, the oldest first: how full it was, what came and what went since the one before."""
    return page(await throughput(context, bus, stream))


@router.get("/streams/{stream}/dead", operation_id="listDeadLetters", summary="What failed for good, the latest first")
async def get_dead(
    context: Context,
    bus: BusName,
    stream: StreamName,
    kind: Type = None,
    code: Word = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[Page[DeadLetterState]]:
    """Each with its error and its payload, as far as that is not too long."""
    letters, following = await list_dead(context, bus, stream, limit, cursor, event_type=kind, code=code)
    return page(letters, following)


@router.post("/streams/{stream}/dead/requeue", operation_id="requeueDeadLetters", summary="Give dead letters a chance")
async def requeue(context: Context, bus: BusName, stream: StreamName, wanted: Requeue) -> Ok[Requeued]:
    """They are pending again, with a fresh count of attempts. Those that are not dead are left as they are."""
    return ok(await requeue_dead(context, bus, stream, wanted.ids))


@router.get("/events/{eventId}", operation_id="getBusEvent", summary="Everything a bus knows of one event")
async def get_event(context: Context, bus: BusName, event_id: EventIdPath) -> Ok[EventState]:
    """Its state, its errors and its payload."""
    return ok(await read_bus_event(context, bus, event_id))
