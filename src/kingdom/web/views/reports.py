"""Reports that agents wrote."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from kingdom.web.envelope import ApiError, ApiModel, not_found
from kingdom.web.views.finding import find_workflow
from kingdom.workflow.adapters.reports import read_report as read_file
from kingdom.workflow.domain.statuses import ReportStatus
from kingdom.workflow.telling import names_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.web.context import WebContext
    from kingdom.workflow.domain import task as domain


class ReportSummary(ApiModel):
    """A report of a task."""

    id: str = Field(examples=["report-0198c2d6"])
    work_id: str = Field(examples=["work-0198c2d4"])
    task_id: str = Field(examples=["task-0198c2d5"])
    work: str | None = Field(description="The name of its work.", examples=["fix"])
    task: str | None = Field(description="The name of its task.", examples=["task-1"])
    outline: list[str] = Field(examples=[["Cause", "Change", "Tests"]])
    status: ReportStatus
    error: str | None = None


class Report(ReportSummary):
    """A report with its text: Markdown that an agent wrote, not to be trusted."""

    text: str = Field(examples=["## Cause\n\nThe timeout was never set.\n"])


async def list_reports(context: WebContext, workflow_id: str) -> list[ReportSummary]:
    """The reports of a workflow, finished or not."""
    found, names = await _read(context, workflow_id)
    return [ReportSummary(**_fields(report, names)) for report in found]


async def read_report(context: WebContext, workflow_id: str, report_id: str) -> Report:
    """A report with its text; 409 while it is not written."""
    reports, names = await _read(context, workflow_id)
    found = next((report for report in reports if report.id == report_id), None)
    if found is None:
        raise not_found("WFL", "report", report_id)
    if found.file_path is None:
        raise ApiError(409, "WFL_REPORT_NOT_WRITTEN", f"report {report_id} is {found.status}: there is no text yet")
    path = Path(found.file_path)
    if not path.is_relative_to(context.place.workspaces) or ".." in path.parts:
        raise ApiError(409, "WFL_REPORT_LOST", f"report {report_id} lies outside of the workspaces: it is not read")
    try:
        text = await asyncio.to_thread(read_file, path)
    except OSError as error:
        raise ApiError(409, "WFL_REPORT_LOST", f"the file of report {report_id} cannot be read: {error}") from error
    return Report(**_fields(found, names), text=text)


async def _read(context: WebContext, workflow_id: str) -> tuple[list[domain.Report], Mapping[str, str]]:
    """The reports, and the names of works and tasks by id."""
    async with context.parts.store.reading() as tx:
        await find_workflow(tx, workflow_id)
        reports = await tx.reports.of_workflow(workflow_id)
        works = await tx.works.of_workflow(workflow_id)
    return reports, names_of(works)


def _fields(report: domain.Report, names: Mapping[str, str]) -> dict[str, Any]:
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
