"""AgentStarted: the agent of a Work runs."""

from __future__ import annotations

from kingdom.workflow.domain.events import AgentStarted, WorkStatusChanged
from kingdom.workflow.domain.statuses import AgentStatus
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.parts import Step


class AgentStartedHandler(Handler):
    """Notes that the agent runs."""

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """The agent is RUNNING, unless it has ended since."""
        event = news.event
        assert isinstance(event, AgentStarted)
        work = await self.work_of(step, news, event.work_id)
        if work is None or work.agent_status is not AgentStatus.STARTING:
            return
        work.agent_started()
        await step.tx.works.save(work)
        step.tell(work.workflow_id, WorkStatusChanged(work.id, work.workflow_id, work.status), work.attempt)
