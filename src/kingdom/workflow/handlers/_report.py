"""Finding whom news of a report is about: its payload names the report and the task only."""

from __future__ import annotations

from kingdom.workflow.domain.events import ReportFailed, ReportGenerated
from kingdom.workflow.domain.statuses import ReportStatus
from kingdom.workflow.domain.task import Report
from kingdom.workflow.handlers._base import Handler, News, Scene
from kingdom.workflow.parts import Step


async def report_scene(
    handler: Handler, step: Step, news: News, event: ReportGenerated | ReportFailed
) -> tuple[Report, Scene] | None:
    """The report and its scene, if it is being written in the task's present attempt."""
    report = await step.tx.reports.find(event.report_id)
    if report is None:
        handler.refuse(news, f"there is no report {event.report_id} any more")
        return None
    scene = await handler.scene_of(step, news, report.work_id, event.task_id)
    if scene is None:
        return None
    if report.status is not ReportStatus.GENERATING or scene.task.report_status is not ReportStatus.GENERATING:
        handler.refuse(news, f"report {report.id} is {report.status}")
        return None
    return report, scene
