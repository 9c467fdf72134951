"""AgentStopped: the agent of a Work ended."""

from __future__ import annotations

from kingdom.workflow.domain.events import AgentStopped, WorkStatusChanged
from kingdom.workflow.domain.statuses import AgentStatus
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.parts import Step


class AgentStoppedHandler(Handler):
    """Notes that the agent ended."""

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """The agent is STOPPED."""
        event = news.event
        assert isinstance(event, AgentStopped)
        work = await self.work_of(step, news, event.work_id)
        if work is None or work.agent_status in (AgentStatus.STOPPED, AgentStatus.ERROR):
            return
        work.agent_stopped()
        await step.tx.works.save(work)
        step.tell(work.workflow_id, WorkStatusChanged(work.id, work.workflow_id, work.status), work.attempt)
