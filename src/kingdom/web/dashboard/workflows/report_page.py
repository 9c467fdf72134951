"""The page of one report."""

from __future__ import annotations

from kingdom.web.dashboard.building import code, tag, text
from kingdom.web.dashboard.registry import page
from kingdom.web.dashboard.shell import head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.reports import show_report
from kingdom.web.dashboard.workflows.saying import address
from kingdom.web.views.reports import read_report
from kingdom.web.views.workflows import read_workflow


@page("/workflows/{workflow_id}/reports/{report_id}", title="report.title", nav="workflows")
async def report(visit: Visit, workflow_id: str, report_id: str) -> None:
    """A report as its agent wrote it."""
    full = await read_workflow(visit.context, workflow_id)
    found = await read_report(visit.context, workflow_id, report_id)
    head(f"{found.work} / {found.task}", above=(full.name, address("workflows", workflow_id)))
    text(visit.words("report.written"), "k-muted k-small", name="div")
    with tag("div", "k-card k-pad k-report-card"):
        show_report(found.text)
    with tag("details", "k-source"):
        text(visit.words("report.source"), name="summary")
        code(found.text)
