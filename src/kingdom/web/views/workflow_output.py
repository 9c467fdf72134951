"""What a workflow produces: reports, agent output, usage."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field

from kingdom.web.envelope import ApiError, ApiModel, cursor_of, cursor_position, invalid_cursor, not_found
from kingdom.web.views.workflow_state import find_workflow, workflow_state
from kingdom.workflow.adapters.workspaces import read_report as read_file
from kingdom.workflow.agent_records import WorkflowCost
from kingdom.workflow.domain.statuses import ReportStatus
from kingdom.workflow.overview import names_by_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.web.context import WebContext
    from kingdom.workflow.domain import work as domain


# ── Reports ──


class ReportSummary(ApiModel):
    """A report of a task."""

    id: str = Field(examples=["report-0198c2d6"])
    work_id: str = Field(examples=["work-0198c2d4"])
    task_id: str = Field(examples=["task-0198c2d5"])
    work: str | None = Field(description="Name of its work.", examples=["fix"])
    task: str | None = Field(description="Name of its task.", examples=["task-1"])
    outline: list[str] = Field(examples=[["Cause", "Change", "Tests"]])
    status: ReportStatus
    error: str | None = None


class ReportInfo(ReportSummary):
    """A report with its text: untrusted Markdown, written by an agent."""

    text: str = Field(examples=["## Cause\n\nThe timeout was never set.\n"])


async def list_reports(context: WebContext, workflow_id: str) -> list[ReportSummary]:
    """Return the reports of a workflow, finished or not."""
    found, names = await _read_reports(context, workflow_id)
    return [ReportSummary(**_report_fields(report, names)) for report in found]


async def read_report(context: WebContext, workflow_id: str, report_id: str) -> ReportInfo:
    """Return a report with its text; 409 until it is written."""
    reports, names = await _read_reports(context, workflow_id)
    found = next((report for report in reports if report.id == report_id), None)
    if found is None:
        raise not_found("WFL", "report", report_id)
    if found.file_path is None:
        raise ApiError(409, "WFL_REPORT_NOT_WRITTEN", f"report {report_id} is {found.status}: it has no text yet")
    path = Path(found.file_path)
    if not path.is_relative_to(context.place.workspaces) or ".." in path.parts:
        raise ApiError(409, "WFL_REPORT_LOST", f"report {report_id} is outside of the workspaces")
    try:
        text = await asyncio.to_thread(read_file, path)
    except OSError as error:
        raise ApiError(409, "WFL_REPORT_LOST", f"cannot read the file of report {report_id}: {error}") from error
    return ReportInfo(**_report_fields(found, names), text=text)


async def _read_reports(context: WebContext, workflow_id: str) -> tuple[list[domain.Report], Mapping[str, str]]:
    """Read the reports, and the names of works and tasks by id."""
    async with context.parts.store.reading() as tx:
        await find_workflow(tx, workflow_id)
        reports = await tx.reports.of_workflow(workflow_id)
        works = await tx.works.of_workflow(workflow_id)
    return reports, names_by_id(works)


def _report_fields(report: domain.Report, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": report.id,
        "work_id": report.work_id,
        "task_id": report.task_id,
        "work": names.get(report.work_id),
        "task": names.get(report.task_id),
        "outline": list(report.outline),
        "status": report.status,
        "error": report.error,
    }


# ── Usage ──


class TokenCounts(ApiModel):
    """Token counts by kind."""

    total: int = Field(examples=[18210])
    input: int = Field(examples=[9100])
    output: int = Field(examples=[2110])
    cache_read: int = Field(examples=[7000])
    cache_write: int = Field(examples=[0])


class WorkflowUsage(ApiModel):
    """Usage of the ended runs of a workflow."""

    cost_usd: float = Field(examples=[0.42])
    tokens: TokenCounts
    runs: int = Field(examples=[3])
    by_work: dict[str, float] = Field(description="Cost in US dollars by work name.", examples=[{"fix": 0.42}])


async def read_usage(context: WebContext, workflow_id: str) -> WorkflowUsage:
    """Return the usage of a workflow so far."""
    async with context.parts.store.reading() as tx:
        await find_workflow(tx, workflow_id)
    spent = (await workflow_state(context).spent(fresh=True)).get(workflow_id, WorkflowCost())
    kinds = spent.by_class
    return WorkflowUsage(
        cost_usd=round(spent.cost_usd, 6),
        tokens=TokenCounts(
            total=spent.tokens,
            input=kinds.input,
            output=kinds.output,
            cache_read=kinds.cache_read,
            cache_write=kinds.cache_write,
        ),
        runs=spent.runs,
        by_work={name: round(cost, 6) for name, cost in spent.by_work.items()},
    )


# ── Agent output ──


class AgentOutputItem(ApiModel):
    """One line of agent output."""

    run_id: str = Field(examples=["work-0198c2d4.task-0198c2d5.1"])
    work: str = Field(examples=["fix"])
    task: str = Field(examples=["task-1"])
    number: int = Field(description="Number within the run.", examples=[7])
    text: str = Field(examples=["I found the cause: the timeout is never set."])


class AgentOutput(ApiModel):
    """A part of the agent output. ``cursor`` reads what follows."""

    model_config = ConfigDict(json_schema_extra={"required": ["items", "cursor"]})

    items: list[AgentOutputItem]
    cursor: str


async def read_output(
    context: WebContext, workflow_id: str, *, work_id: str | None = None, cursor: str | None = None, limit: int = 200
) -> AgentOutput:
    """Return the latest agent output, or with a cursor what followed, oldest first. Always includes a cursor."""
    async with context.parts.store.reading() as tx:
        await find_workflow(tx, workflow_id)
        works = await tx.works.of_workflow(workflow_id)
    if work_id is not None and all(work.id != work_id for work in works):
        raise not_found("WFL", "work", work_id)
    counts = _counts(cursor_position(cursor))
    reader = workflow_state(context).output_reader(workflow_id)
    await reader.read_on(work.id for work in works)
    found = reader.after(counts, "" if work_id is None else f"{work_id}.")
    shown = found[-limit:] if cursor is None else found[:limit]
    for one in found if cursor is None else shown:  # lines before the latest are not returned later
        counts[one.said.run_id] = one.number
    items = [
        AgentOutputItem(
            run_id=one.said.run_id, work=one.said.work, task=one.said.task, number=one.number, text=one.said.text
        )
        for one in shown
    ]
    return AgentOutput(items=items, cursor=cursor_of(counts))


def _counts(position: Any) -> dict[str, int]:
    if position is None:
        return {}
    if not isinstance(position, dict) or not all(isinstance(count, int) for count in position.values()):
        raise invalid_cursor()
    return dict(position)
