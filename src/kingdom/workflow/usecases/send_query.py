"""SendQuery: the query of a task goes to the agent of its Work."""

from __future__ import annotations

from kingdom.workflow.domain.events import QueryFailed, QuerySent, TaskStarted
from kingdom.workflow.domain.task import Task
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.parts import Parts, Step, told


class SendQuery:
    """A step of a running workflow."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def execute(self, step: Step, workflow: Workflow, work: Work, task: Task) -> None:
        """Note that the query is sent, and send it once that is committed. The caller saves the Work."""
        task.send()
        step.tell(workflow.id, TaskStarted(work.id, task.id), task.attempt)
        step.tell(workflow.id, QuerySent(work.id, task.id), task.attempt)
        step.then(lambda: self.deliver(workflow, work, task))

    async def deliver(self, workflow: Workflow, work: Work, task: Task) -> None:
        """Give the agent what was noted as sent; may be repeated. What goes wrong is told as ``QueryFailed``."""
        if self._parts.delivered is not None:
            self._parts.delivered.add((task.id, task.attempt))
        attempt = task.attempt

        async def send() -> None:
            text = await self._parts.queries.text(workflow, work, task)
            await self._parts.agents.send_query(work, task, text)

        await self._parts.outside(
            f"the query of task {task.id} could not be sent",
            send,
            lambda why: told(workflow.id, QueryFailed(work.id, task.id, why), attempt),
        )
