"""``/api/court``: the court at a glance."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from kingdom.web.context import Context
from kingdom.web.envelope import Ok, Page, ok, page
from kingdom.web.views.court import CourtState, JournalLine, court_overview, recent_journal

router = APIRouter(prefix="/api/court", tags=["court"])


@router.get("", operation_id="getCourt", summary="Who runs, what waits and why, who works, who is asked, what it costs")
async def get_court(context: Context) -> Ok[CourtState]:
    """The whole court at a glance. It is looked at a few times a second at most, however many ask."""
    return ok(await court_overview(context))


@router.get("/journal", operation_id="listJournal", summary="The last lines of the journal, the newest first")
async def list_journal(context: Context, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Ok[Page[JournalLine]]:
    """What happened lately. For everything as it happens, there are `/ws/events` and `/api/stream`."""
    return page(await recent_journal(context, limit))
