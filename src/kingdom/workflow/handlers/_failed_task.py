"""A query or report that failed: once more, or a person decides."""

from __future__ import annotations

from kingdom.workflow.domain.events import WorkStatusChanged
from kingdom.workflow.handlers._base import Handler, Scene
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.services.halting import HaltingService
from kingdom.workflow.usecases.send_query import SendQuery


class FailedTaskHandler(Handler):
    """What ``QueryFailed`` and ``ReportFailed`` have in common."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._send_query = SendQuery(parts)
        self._halting = HaltingService(parts)

    async def failed(self, step: Step, scene: Scene, error: str) -> None:
        """Send the query again while the task has retries; then the Work fails and the workflow pauses or fails."""
        workflow, work, task = scene
        if task.retry():
            step.tell(workflow.id, WorkStatusChanged(work.id, workflow.id, work.status), work.attempt)
            self._send_query.execute(step, workflow, work, task)
            await step.tx.works.save(work)
            return
        reason = f"task {task.name} of work {work.name} failed after {task.tries + 1} tries: {error}"
        work.fail(reason)
        await step.tx.works.save(work)
        await self._halting.give_up(step, workflow, work, reason, fail=workflow.on_failure == "fail")
