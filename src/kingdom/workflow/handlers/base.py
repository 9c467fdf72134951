"""The base of all handlers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kingdom.workflow.context import UnitOfWork, WorkflowContext, log
from kingdom.workflow.domain.events import DomainEvent, ReportFailed, ReportGenerated, WorkStatusChanged
from kingdom.workflow.domain.statuses import ReportStatus, WorkflowStatus, WorkStatus
from kingdom.workflow.domain.work import Report, Task, Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.usecases.steps import continue_task, halt_after_failure


@dataclass(frozen=True, slots=True)
class IncomingEvent:
    """An event as a handler gets it."""

    event_id: str
    event: DomainEvent
    aggregate_id: str
    attempt: int | None


class EventSubject(NamedTuple):
    """The workflow, Work and task an event is about."""

    workflow: Workflow
    work: Work
    task: Task


class Handler:
    """Handles one type of event at least once, in the transaction that also consumes the event.

    ``has_prelude``: :meth:`before` must run outside that transaction first. ``view``: the handler only brings rows
    into line with what the event says, so it runs in the transaction that records the event.
    """

    has_prelude: ClassVar[bool] = False
    view: ClassVar[bool] = False

    def __init__(self, context: WorkflowContext) -> None:
        self.context = context

    async def before(self, incoming: IncomingEvent) -> object:
        """Do what must happen before the transaction. May be repeated; the result is passed to :meth:`handle`."""
        return None

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        """Apply the event."""
        raise NotImplementedError

    def refuse(self, incoming: IncomingEvent, reason: str) -> None:
        """Count and log an event that comes too late. Not an error: it is consumed and changes nothing."""
        self.context.counters.refused += 1
        name = type(incoming.event).__name__
        log.warning("%s of %s (attempt %s) is refused: %s", name, incoming.aggregate_id, incoming.attempt, reason)

    async def work_of(self, unit: UnitOfWork, incoming: IncomingEvent, work_id: str) -> Work | None:
        """Return the Work of an event, or None (refused) if it is gone or at another attempt."""
        work = await unit.tx.works.find_at_work(work_id)
        if work is None:
            self.refuse(incoming, f"there is no work {work_id} any more")
            return None
        if incoming.attempt is not None and incoming.attempt != work.attempt:
            self.refuse(incoming, f"work {work_id} is at attempt {work.attempt}")
            return None
        return work

    async def subject_of(
        self, unit: UnitOfWork, incoming: IncomingEvent, work_id: str, task_id: str
    ) -> EventSubject | None:
        """Return the subject of an event, or None (refused) if it does not run or the task is at another attempt."""
        workflow = await unit.tx.workflows.find_alone(incoming.aggregate_id)
        work = await unit.tx.works.find_at_work(work_id, task_id)
        if workflow is None or work is None:
            self.refuse(incoming, f"there is no work {work_id} any more")
            return None
        task = next((item for item in work.tasks if item.id == task_id), None)
        if task is None or (incoming.attempt is not None and incoming.attempt != task.attempt):
            self.refuse(incoming, f"task {task_id} is " + (f"at attempt {task.attempt}" if task else "gone"))
            return None
        if workflow.status is not WorkflowStatus.RUNNING or work.status is not WorkStatus.RUNNING:
            self.refuse(incoming, f"the workflow is {workflow.status}, the work {work.status}")
            return None
        return EventSubject(workflow, work, task)

    async def report_subject(
        self, unit: UnitOfWork, incoming: IncomingEvent, event: ReportGenerated | ReportFailed
    ) -> tuple[Report, EventSubject] | None:
        """Return the report of an event and its subject, or None (refused) if it is not being written."""
        report = await unit.tx.reports.find(event.report_id)
        if report is None:
            self.refuse(incoming, f"there is no report {event.report_id} any more")
            return None
        subject = await self.subject_of(unit, incoming, report.work_id, event.task_id)
        if subject is None:
            return None
        if report.status is not ReportStatus.GENERATING or subject.task.report_status is not ReportStatus.GENERATING:
            self.refuse(incoming, f"report {report.id} is {report.status}")
            return None
        return report, subject

    async def task_failed(self, unit: UnitOfWork, subject: EventSubject, error: str) -> None:
        """Retry the task while it has retries; otherwise fail the Work, and pause or fail the workflow.

        A retry sends the query again, or asks only for the report if that is what failed.
        """
        workflow, work, task = subject
        if task.retry():
            unit.record(workflow.id, WorkStatusChanged(work.id, workflow.id, work.status), work.attempt)
            await continue_task(self.context, unit, workflow, work, task)
            return
        reason = f"task {task.name} of work {work.name} failed after {task.tries + 1} tries: {error}"
        work.fail(reason)
        await unit.tx.works.save(work)
        fail = workflow.on_failure == "fail"
        await halt_after_failure(self.context, unit, workflow, work, reason, fail=fail)
