"""ReportGenerated: the task is done, the next query is sent."""

from __future__ import annotations

from kingdom.workflow.domain.events import ReportGenerated
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.handlers._report import report_scene
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.usecases.complete_task import CompleteTask


class ReportGeneratedHandler(Handler):
    """Takes the report."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._complete_task = CompleteTask(parts)

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """The report is there: complete the task."""
        event = news.event
        assert isinstance(event, ReportGenerated)
        found = await report_scene(self, step, news, event)
        if found is None:
            return
        report, (workflow, work, task) = found
        report.complete(event.file_path)
        await step.tx.reports.save(report)
        task.finish_report()
        await self._complete_task.execute(step, workflow, work, task)
