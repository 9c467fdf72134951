"""AgentError: the agent of a Work broke, and the workflow fails."""

from __future__ import annotations

from kingdom.workflow.domain.events import AgentError
from kingdom.workflow.domain.statuses import AgentStatus, WorkflowStatus, WorkStatus
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.services.halting import HaltingService


class AgentErrorHandler(Handler):
    """The Work and its workflow fail; a person resumes or cancels."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._halting = HaltingService(parts)

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """Fail, unless the Work does not run any more."""
        event = news.event
        assert isinstance(event, AgentError)
        workflow = await step.tx.workflows.find(news.aggregate_id)
        work = await self.work_of(step, news, event.work_id)
        if workflow is None or work is None:
            return None
        if workflow.status is not WorkflowStatus.RUNNING or work.status is not WorkStatus.RUNNING:
            return self.refuse(news, f"the workflow is {workflow.status}, the work {work.status}")
        begun = work.agent_status is not AgentStatus.ERROR
        work.agent_failed(event.error)
        await step.tx.works.save(work)
        what = f"the agent of work {work.name} broke" if begun else f"work {work.name} could not begin"
        return await self._halting.give_up(step, workflow, work, f"{what}: {event.error}", fail=True)
