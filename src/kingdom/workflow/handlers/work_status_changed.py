"""WorkStatusChanged: the workflow knows the states of its works."""

from __future__ import annotations

from typing import ClassVar

from kingdom.workflow.domain.events import WorkStatusChanged
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.parts import Step


class WorkStatusChangedHandler(Handler):
    """Updates the workflow's ``work_statuses``, to what the Work is now: an older event cannot undo a newer one."""

    view: ClassVar[bool] = True

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """Note the state of the Work."""
        event = news.event
        assert isinstance(event, WorkStatusChanged)
        workflow = await step.tx.workflows.find(event.workflow_id)
        work = await step.tx.works.find(event.work_id)
        if workflow is None or work is None:
            return self.refuse(news, "it is gone")
        if workflow.work_statuses.get(work.id) is not work.status:
            workflow.work_changed(work.id, work.status)
            await step.tx.workflows.save(workflow)
        return None
