"""ReportFailed: the task is tried again, or a person decides."""

from __future__ import annotations

from kingdom.workflow.domain.events import ReportFailed
from kingdom.workflow.handlers._base import News
from kingdom.workflow.handlers._failed_task import FailedTaskHandler
from kingdom.workflow.handlers._report import report_scene
from kingdom.workflow.parts import Step


class ReportFailedHandler(FailedTaskHandler):
    """Notes the failure."""

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """The report is FAILED; then the whole task once more, or the Work fails."""
        event = news.event
        assert isinstance(event, ReportFailed)
        found = await report_scene(self, step, news, event)
        if found is None:
            return
        report, scene = found
        report.fail(event.error)
        await step.tx.reports.save(report)
        scene.task.fail_report(event.error)
        await self.failed(step, scene, event.error)
