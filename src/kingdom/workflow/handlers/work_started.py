"""WorkStarted: the first query is sent."""

from __future__ import annotations

from kingdom.workflow.domain.events import WorkStarted
from kingdom.workflow.domain.statuses import AgentStatus, TaskStatus, WorkflowStatus, WorkStatus
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.usecases.send_query import SendQuery


class WorkStartedHandler(Handler):
    """Sends the query of the Work's first task, or of the first that is not done yet."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._send_query = SendQuery(parts)

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """Send the query, unless it is sent already."""
        event = news.event
        assert isinstance(event, WorkStarted)
        work = await self.work_of(step, news, event.work_id)
        workflow = await step.tx.workflows.find(event.workflow_id)
        if work is None or workflow is None:
            return None
        if workflow.status is not WorkflowStatus.RUNNING or work.status is not WorkStatus.RUNNING:
            return self.refuse(news, f"the workflow is {workflow.status}, the work {work.status}")
        if work.agent_status is AgentStatus.ERROR:
            return None  # it could not begin, and what comes behind this says why
        task = work.current_task
        if task is not None and task.status is TaskStatus.PENDING:
            self._send_query.execute(step, workflow, work, task)
            await step.tx.works.save(work)
        return None
