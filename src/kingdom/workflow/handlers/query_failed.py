"""QueryFailed: the query is sent again, or a person decides."""

from __future__ import annotations

from kingdom.workflow.domain.events import QueryFailed
from kingdom.workflow.domain.statuses import QueryStatus
from kingdom.workflow.handlers._base import News
from kingdom.workflow.handlers._failed_task import FailedTaskHandler
from kingdom.workflow.parts import Step


class QueryFailedHandler(FailedTaskHandler):
    """Notes the failure."""

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """The query is FAILED; then once more, or the Work fails."""
        event = news.event
        assert isinstance(event, QueryFailed)
        scene = await self.scene_of(step, news, event.work_id, event.task_id)
        if scene is None:
            return None
        if scene.task.query_status not in (QueryStatus.SENT, QueryStatus.PROCESSING):
            return self.refuse(news, f"the query of task {scene.task.id} is {scene.task.query_status}")
        scene.task.fail_query(event.error)
        return await self.failed(step, scene, event.error)
