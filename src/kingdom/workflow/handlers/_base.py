"""What handlers have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kingdom.workflow.domain.events import DomainEvent
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkStatus
from kingdom.workflow.domain.task import Task
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.parts import Parts, Step, log


@dataclass(frozen=True, slots=True)
class News:
    """An event as a handler gets it."""

    event_id: str
    event: DomainEvent
    aggregate_id: str
    attempt: int | None


class Scene(NamedTuple):
    """Whom an event is about."""

    workflow: Workflow
    work: Work
    task: Task


class Handler:
    """Handles one kind of event, at least once: in one transaction, which ends the event as well.

    ``outside`` says that :meth:`before` has something to do outside of that transaction first. ``view`` says that it
    only brings what the workflow knows of its parts up to date: then it is handled with the change itself.
    """

    outside: ClassVar[bool] = False
    view: ClassVar[bool] = False

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    async def before(self, news: News) -> object:
        """What must be done before the transaction, and may be repeated; the result is passed on."""
        return None

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """Change what the event changes."""
        raise NotImplementedError

    def refuse(self, news: News, why: str) -> None:
        """Leave an event alone that comes too late; not an error, but worth knowing."""
        self.parts.counts.refused += 1
        name = type(news.event).__name__
        log.warning("%s of %s (attempt %s) is refused: %s", name, news.aggregate_id, news.attempt, why)

    async def work_of(self, step: Step, news: News, work_id: str) -> Work | None:
        """The Work an event is about, if the event is of its present attempt."""
        work = await step.tx.works.find(work_id)
        if work is None:
            self.refuse(news, f"there is no work {work_id} any more")
            return None
        if news.attempt is not None and news.attempt != work.attempt:
            self.refuse(news, f"work {work_id} is at attempt {work.attempt}")
            return None
        return work

    async def scene_of(self, step: Step, news: News, work_id: str, task_id: str) -> Scene | None:
        """Workflow, Work and task of an event, if the workflow runs and the event is of the task's present attempt."""
        workflow = await step.tx.workflows.find(news.aggregate_id)
        work = await step.tx.works.find(work_id)
        if workflow is None or work is None:
            self.refuse(news, f"there is no work {work_id} any more")
            return None
        task = next((item for item in work.tasks if item.id == task_id), None)
        if task is None or (news.attempt is not None and news.attempt != task.attempt):
            self.refuse(news, f"task {task_id} is " + (f"at attempt {task.attempt}" if task else "gone"))
            return None
        if workflow.status is not WorkflowStatus.RUNNING or work.status is not WorkStatus.RUNNING:
            self.refuse(news, f"the workflow is {workflow.status}, the work {work.status}")
            return None
        return Scene(workflow, work, task)
