"""``/api/stats``, ``/api/report``, ``/api/budget``: how much was done, and what it cost."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from kingdom.web.api.court.documents import ReportDocument, StatsDocument
from kingdom.web.context import Context
from kingdom.web.envelope import Ok, ok
from kingdom.web.views.generals import BudgetState, budget, daily_report, stats

router = APIRouter(prefix="/api", tags=["court"])
Day = Annotated[
    str,
    Query(
        pattern=r"^(today|yesterday|\d{4}-\d{2}-\d{2})$",
        description="2026-02-07, yesterday, or today for what there is so far.",
        examples=["yesterday"],
    ),
]


@router.get("/stats", operation_id="getStats", summary="How much was done, by hour, by day and by general")
async def get_stats(context: Context) -> Ok[StatsDocument]:
    """The chamberlain's own document, or the same counted from the journal where none runs."""
    return ok(StatsDocument(await stats(context)))


@router.get("/report", operation_id="getReport", summary="The report of a day")
async def get_report(context: Context, date: Day = "yesterday") -> Ok[ReportDocument]:
    """The one that was sent, or one made from the journal as far as it is still there."""
    return ok(ReportDocument(await daily_report(context, date)))


@router.get("/budget", operation_id="getBudget", summary="What was spent, and what may be")
async def get_budget(context: Context) -> Ok[BudgetState]:
    """Today and this month, by general, and how full every limit is."""
    return ok(await budget(context))
