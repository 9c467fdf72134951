"""`/api/court`, `/api/stats`, `/api/report`, `/api/budget`, `/api/generals`, `/api/bus`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field, StringConstraints

from kingdom.web.api.court_models import (
    BusName,
    EventIdPath,
    ReportDocument,
    StatsDocument,
    StreamName,
    TypeQuery,
    WordQuery,
)
from kingdom.web.context import Context
from kingdom.web.envelope import ApiModel, Cursor, Limit, Ok, Page, ok, page
from kingdom.web.views.bus import (
    DeadLetterState,
    EventState,
    Requeued,
    StreamInfo,
    list_dead,
    list_streams,
    read_bus_event,
    requeue_dead,
    throughput,
)
from kingdom.web.views.court import (
    BudgetState,
    CourtState,
    GeneralState,
    JournalLine,
    budget,
    court_overview,
    daily_report,
    list_generals,
    read_general,
    recent_journal,
    stats,
)
from kingdom.web.views.court_state import StreamSample

# ``/api/court``: the court at a glance.


court_router = APIRouter(prefix="/api/court", tags=["court"])


@court_router.get(
    "", operation_id="getCourt", summary="Who runs, what waits and why, who works, who is asked, what it costs"
)
async def get_court(context: Context) -> Ok[CourtState]:
    """The whole court at a glance. It is looked at a few times a second at most, however many ask."""
    return ok(await court_overview(context))


@court_router.get("/journal", operation_id="listJournal", summary="The last lines of the journal, the newest first")
async def list_journal(context: Context, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Ok[Page[JournalLine]]:
    """What happened lately. For everything as it happens, there are `/ws/events` and `/api/stream`."""
    return page(await recent_journal(context, limit))


# ``/api/stats``, ``/api/report``, ``/api/budget``: how much was done, and what it cost.


figures_router = APIRouter(prefix="/api", tags=["court"])
ReportDay = Annotated[
    str,
    Query(
        pattern=r"^(today|yesterday|\d{4}-\d{2}-\d{2})$",
        description="2026-02-07, yesterday, or today for what there is so far.",
        examples=["yesterday"],
    ),
]


@figures_router.get("/stats", operation_id="getStats", summary="How much was done, by hour, by day and by general")
async def get_stats(context: Context) -> Ok[StatsDocument]:
    """The chamberlain's own document, or the same counted from the journal where none runs."""
    return ok(StatsDocument(await stats(context)))


@figures_router.get("/report", operation_id="getReport", summary="The report of a day")
async def get_report(context: Context, date: ReportDay = "yesterday") -> Ok[ReportDocument]:
    """The one that was sent, or one made from the journal as far as it is still there."""
    return ok(ReportDocument(await daily_report(context, date)))


@figures_router.get("/budget", operation_id="getBudget", summary="What was spent, and what may be")
async def get_budget(context: Context) -> Ok[BudgetState]:
    """Today and this month, by general, and how full every limit is."""
    return ok(await budget(context))


# ``/api/generals``: who does the work.


generals_router = APIRouter(prefix="/api/generals", tags=["court"])
GeneralName = Annotated[str, Path(max_length=60, pattern=r"^[a-z0-9][a-z0-9_\-]*$", examples=["gen-pr"])]


@generals_router.get("", operation_id="listGenerals", summary="The generals, and what is wrong with them")
async def get_generals(context: Context) -> Ok[Page[GeneralState]]:
    """Every installed one, also those that cannot be used."""
    return page(await list_generals(context))


@generals_router.get("/{name}", operation_id="getGeneral", summary="One general")
async def get_general(context: Context, name: GeneralName) -> Ok[GeneralState]:
    """Its manifest and its problems."""
    return ok(await read_general(context, name))


# ``/api/bus``: the streams of both buses, how full they are, and what failed for good.


bus_router = APIRouter(prefix="/api/bus/{bus}", tags=["bus"])


class RequeueBody(ApiModel):
    """Which dead letters get another chance."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": ["evt-github-12345"]}]})

    ids: list[Annotated[str, StringConstraints(min_length=1, max_length=200)]] = Field(min_length=1, max_length=100)


@bus_router.get("/streams", operation_id="listStreams", summary="How full the streams of a bus are")
async def get_streams(context: Context, bus: BusName) -> Ok[Page[StreamInfo]]:
    """`bus` is `court` or `workflow`."""
    return page(await list_streams(context, bus))


@bus_router.get(
    "/streams/{stream}/throughput",
    operation_id="getThroughput",
    summary="A stream over the last half hour, for a chart",
)
async def get_throughput(context: Context, bus: BusName, stream: StreamName) -> Ok[Page[StreamSample]]:
    """A sample every few seconds, the oldest first: how full it was, what came and what went since the one before."""
    return page(await throughput(context, bus, stream))


@bus_router.get(
    "/streams/{stream}/dead", operation_id="listDeadLetters", summary="What failed for good, the latest first"
)
async def get_dead(
    context: Context,
    bus: BusName,
    stream: StreamName,
    kind: TypeQuery = None,
    code: WordQuery = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[Page[DeadLetterState]]:
    """Each with its error and its payload, as far as that is not too long."""
    letters, following = await list_dead(context, bus, stream, limit, cursor, event_type=kind, code=code)
    return page(letters, following)


@bus_router.post(
    "/streams/{stream}/dead/requeue", operation_id="requeueDeadLetters", summary="Give dead letters a chance"
)
async def post_requeue(context: Context, bus: BusName, stream: StreamName, wanted: RequeueBody) -> Ok[Requeued]:
    """They are pending again, with a fresh count of attempts. Those that are not dead are left as they are."""
    return ok(await requeue_dead(context, bus, stream, wanted.ids))


@bus_router.get("/events/{eventId}", operation_id="getBusEvent", summary="Everything a bus knows of one event")
async def get_bus_event(context: Context, bus: BusName, event_id: EventIdPath) -> Ok[EventState]:
    """Its state, its errors and its payload."""
    return ok(await read_bus_event(context, bus, event_id))
