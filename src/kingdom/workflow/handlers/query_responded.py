"""QueryResponded: the report is begun, or the task is done."""

from __future__ import annotations

from kingdom.workflow.domain.events import QueryResponded, ReportFailed, ReportGenerationStarted
from kingdom.workflow.domain.statuses import QueryStatus
from kingdom.workflow.domain.task import Report, Task
from kingdom.workflow.domain.work import Work
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.parts import Parts, Step, told
from kingdom.workflow.usecases.complete_task import CompleteTask


class QueryRespondedHandler(Handler):
    """Takes the answer."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._complete_task = CompleteTask(parts)

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """Keep the answer; then the report, or the next task."""
        event = news.event
        assert isinstance(event, QueryResponded)
        scene = await self.scene_of(step, news, event.work_id, event.task_id)
        if scene is None:
            return None
        workflow, work, task = scene
        if task.query_status not in (QueryStatus.SENT, QueryStatus.PROCESSING):
            return self.refuse(news, f"the query of task {task.id} is {task.query_status}")
        task.respond(event.response)
        if not task.outline:
            return await self._complete_task.execute(step, workflow, work, task)
        report = await self._report_of(step, work, task)
        report.start()
        await step.tx.reports.save(report)
        task.start_report(report.id)
        await step.tx.works.save(work)
        step.tell(workflow.id, ReportGenerationStarted(report.id, task.id), task.attempt)
        return step.then(lambda: self.write(work, task, report))

    async def _report_of(self, step: Step, work: Work, task: Task) -> Report:
        """The report of the task, as if never begun: one of an earlier attempt is written anew."""
        reports = await step.tx.reports.of_workflow(work.workflow_id)
        found = next((report for report in reports if report.task_id == task.id), None)
        if found is None:
            return Report(self.parts.ids.new("report"), work.workflow_id, work.id, task.id, task.outline)
        found.reset()
        found.outline = task.outline
        return found

    async def write(self, work: Work, task: Task, report: Report) -> None:
        """Have the report written; may be repeated. What goes wrong is told as ``ReportFailed``."""
        if self.parts.delivered is not None:
            self.parts.delivered.add((task.id, task.attempt))
        attempt = task.attempt
        await self.parts.outside(
            f"the report of task {task.id} could not be begun",
            lambda: self.parts.agents.write_report(work, task, report),
            lambda why: told(work.workflow_id, ReportFailed(report.id, task.id, why), attempt),
        )
