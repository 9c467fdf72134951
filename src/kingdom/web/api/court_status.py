"""`/api/court`, `/api/stats`, `/api/report`, `/api/budget`, `/api/bus`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field, StringConstraints

from kingdom.court.journal_search import JournalFilter
from kingdom.court.rollups.queries import StatsHistory
from kingdom.web.api.court_models import (
    BusName,
    EventIdPath,
    Moment,
    ReportDocument,
    SearchQuery,
    SinceQuery,
    StatsDocument,
    StreamName,
    TypeQuery,
    UntilQuery,
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
    budget,
    court_overview,
    daily_report,
    stats,
    stats_history,
)
from kingdom.web.views.court_state import StreamSample
from kingdom.web.views.documents import epoch_seconds_of
from kingdom.web.views.journal import JournalLine, search_lines

# ── /api/court ──


court_router = APIRouter(prefix="/api/court", tags=["court"])


@court_router.get("", operation_id="getCourt", summary="Get the state of the court")
async def get_court(context: Context) -> Ok[CourtState]:
    """Roles, queues, holds, soldiers, open questions, problems, health, cost and recent journal lines.

    Cached for about half a second.
    """
    return ok(await court_overview(context))


@court_router.get("/journal", operation_id="listJournal", summary="List journal lines, newest first")
async def list_journal(
    context: Context,
    kind: TypeQuery = None,
    actor: WordQuery = None,
    since: SinceQuery = None,
    until: UntilQuery = None,
    q: SearchQuery = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Cursor = None,
) -> Ok[Page[JournalLine]]:
    """The journal, filtered and searched; an id is a word to search for. `type` may be a pattern such as `task.*`.

    One call reads 32 MiB of a long journal: with a `nextCursor` the search goes on there, also when there are no items.
    To follow events live, use `/ws/events` or `/api/stream`.
    """
    wanted = JournalFilter(
        types=() if kind is None else (kind,),
        actors=() if actor is None else (actor,),
        text=q or "",
        since=None if since is None else epoch_seconds_of(since),
        until=None if until is None else epoch_seconds_of(until),
    )
    found = await search_lines(context, wanted, limit, cursor)
    return page(found.items, found.next_cursor)


# ── /api/stats, /api/report, /api/budget ──


figures_router = APIRouter(prefix="/api", tags=["court"])
ReportDay = Annotated[
    str,
    Query(
        pattern=r"^(today|yesterday|\d{4}-\d{2}-\d{2})$",
        description="A date such as 2026-02-07, `yesterday`, or `today` for the day so far.",
        examples=["yesterday"],
    ),
]


PeriodStart: TypeAlias = Annotated[
    Moment | None, Query(description="The start of the period; without it, 24 hours before its end.")
]
PeriodEnd: TypeAlias = Annotated[Moment | None, Query(description="The end of the period; without it, now.")]


@figures_router.get("/stats", operation_id="getStats", summary="Get statistics by hour, day and general")
async def get_stats(context: Context) -> Ok[StatsDocument]:
    """The chamberlain's statistics, or the same counted from the journal if no chamberlain runs."""
    return ok(StatsDocument(await stats(context)))


@figures_router.get(
    "/stats/history", operation_id="getStatsHistory", summary="Get statistics of a period, in equal steps"
)
async def get_stats_history(
    context: Context,
    since: PeriodStart = None,
    until: PeriodEnd = None,
    general: WordQuery = None,
) -> Ok[StatsHistory]:
    """Tasks, success rate, durations, cost by general and model, and the age of the queues, over time.

    The data outlives the journal: minutes are kept for 6 hours, quarters of an hour for 3 days, hours for 35 days, days
    for 400 days. The answer uses the finest steps that are kept for the period, 400 at most. The period is widened to
    whole steps.
    """
    begin, end = (None if at is None else epoch_seconds_of(at) for at in (since, until))
    return ok(await stats_history(context, begin, end, general))


@figures_router.get("/report", operation_id="getReport", summary="Get a daily report")
async def get_report(context: Context, date: ReportDay = "yesterday") -> Ok[ReportDocument]:
    """The report that was sent, or one computed from what the journal still holds."""
    return ok(ReportDocument(await daily_report(context, date)))


@figures_router.get("/budget", operation_id="getBudget", summary="Get spending and budgets")
async def get_budget(context: Context) -> Ok[BudgetState]:
    """Spending of today and this month, by general, and the usage of every limit."""
    return ok(await budget(context))


# ── /api/bus ──


bus_router = APIRouter(prefix="/api/bus/{bus}", tags=["bus"])


class RequeueBody(ApiModel):
    """The dead letters to requeue."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": ["evt-github-12345"]}]})

    ids: list[Annotated[str, StringConstraints(min_length=1, max_length=200)]] = Field(min_length=1, max_length=100)


@bus_router.get("/streams", operation_id="listStreams", summary="List the streams of a bus")
async def get_streams(context: Context, bus: BusName) -> Ok[Page[StreamInfo]]:
    """Depth and throughput of every stream. `bus` is `court` or `workflow`."""
    return page(await list_streams(context, bus))


@bus_router.get(
    "/streams/{stream}/throughput",
    operation_id="getThroughput",
    summary="Get the throughput of a stream",
)
async def get_throughput(context: Context, bus: BusName, stream: StreamName) -> Ok[Page[StreamSample]]:
    """Samples of the last half hour, oldest first: depth, and the events that arrived and finished since the sample
    before.
    """
    return page(await throughput(context, bus, stream))


@bus_router.get("/streams/{stream}/dead", operation_id="listDeadLetters", summary="List dead letters, newest first")
async def get_dead(
    context: Context,
    bus: BusName,
    stream: StreamName,
    kind: TypeQuery = None,
    code: WordQuery = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[Page[DeadLetterState]]:
    """Events that failed permanently, each with its error and its payload. Long payloads are cut."""
    letters, following = await list_dead(context, bus, stream, limit, cursor, event_type=kind, code=code)
    return page(letters, following)


@bus_router.post("/streams/{stream}/dead/requeue", operation_id="requeueDeadLetters", summary="Requeue dead letters")
async def post_requeue(context: Context, bus: BusName, stream: StreamName, wanted: RequeueBody) -> Ok[Requeued]:
    """Make dead letters pending again and reset their attempts. Events that are not dead are skipped."""
    return ok(await requeue_dead(context, bus, stream, wanted.ids))


@bus_router.get("/events/{eventId}", operation_id="getBusEvent", summary="Get an event of a bus")
async def get_bus_event(context: Context, bus: BusName, event_id: EventIdPath) -> Ok[EventState]:
    """State, errors and payload of one event."""
    return ok(await read_bus_event(context, bus, event_id))
