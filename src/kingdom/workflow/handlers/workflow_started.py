"""WorkflowStarted and WorkflowResumed: the next Work starts."""

from __future__ import annotations

from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.usecases.start_next_work import StartNextWork


class WorkflowStartedHandler(Handler):
    """Starts what may start."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._start_next_work = StartNextWork(parts)

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """Start the next Work."""
        workflow = await step.tx.workflows.find(news.aggregate_id)
        if workflow is None:
            return self.refuse(news, "it is gone")
        return await self._start_next_work.execute(step, workflow)
