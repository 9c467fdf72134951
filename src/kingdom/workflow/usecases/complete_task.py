"""CompleteTask: everything a task asked for is there; the next one follows, or the Work is done."""

from __future__ import annotations

from kingdom.workflow.domain.events import TaskCompleted, WorkCompleted, WorkStatusChanged
from kingdom.workflow.domain.task import Task
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.usecases.send_query import SendQuery


class CompleteTask:
    """A step of a running workflow."""

    def __init__(self, parts: Parts) -> None:
        self._send_query = SendQuery(parts)

    async def execute(self, step: Step, workflow: Workflow, work: Work, task: Task) -> None:
        """Complete a task, and send the next one's query or complete the Work."""
        task.complete()
        following = work.current_task
        if following is None:
            work.complete()
        step.tell(workflow.id, TaskCompleted(work.id, task.id), task.attempt)
        step.tell(workflow.id, WorkStatusChanged(work.id, workflow.id, work.status), work.attempt)
        if following is None:
            step.tell(workflow.id, WorkCompleted(work.id, workflow.id), work.attempt)
        else:
            self._send_query.execute(step, workflow, work, following)
        await step.tx.works.save(work)
