"""Handlers of what agents report: agents, queries and reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kingdom.workflow.context import UnitOfWork, WorkflowContext, log, workflow_event
from kingdom.workflow.domain.events import (
    AgentError,
    AgentStarted,
    AgentStopped,
    DomainEvent,
    QueryFailed,
    QueryResponded,
    ReportFailed,
    ReportGenerated,
    ReportGenerationStarted,
    WorkStatusChanged,
)
from kingdom.workflow.domain.statuses import AgentStatus, QueryStatus, ReportStatus, WorkflowStatus, WorkStatus
from kingdom.workflow.domain.work import Report, Task, Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.usecases.steps import CompleteTask, SendQuery, StopService

# What handlers have in common.


@dataclass(frozen=True, slots=True)
class IncomingEvent:
    """An event as a handler gets it."""

    event_id: str
    event: DomainEvent
    aggregate_id: str
    attempt: int | None


class EventSubject(NamedTuple):
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

    def __init__(self, parts: WorkflowContext) -> None:
        self.parts = parts

    async def before(self, news: IncomingEvent) -> object:
        """What must be done before the transaction, and may be repeated; the result is passed on."""
        return None

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """Change what the event changes."""
        raise NotImplementedError

    def refuse(self, news: IncomingEvent, why: str) -> None:
        """Leave an event alone that comes too late; not an error, but worth knowing."""
        self.parts.counts.refused += 1
        name = type(news.event).__name__
        log.warning("%s of %s (attempt %s) is refused: %s", name, news.aggregate_id, news.attempt, why)

    async def work_of(self, step: UnitOfWork, news: IncomingEvent, work_id: str) -> Work | None:
        """The Work an event is about, if the event is of its present attempt."""
        work = await step.tx.works.find(work_id)
        if work is None:
            self.refuse(news, f"there is no work {work_id} any more")
            return None
        if news.attempt is not None and news.attempt != work.attempt:
            self.refuse(news, f"work {work_id} is at attempt {work.attempt}")
            return None
        return work

    async def subject_of(
        self, step: UnitOfWork, news: IncomingEvent, work_id: str, task_id: str
    ) -> EventSubject | None:
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
        return EventSubject(workflow, work, task)


# A query or report that failed: once more, or a person decides.


class FailedTaskHandler(Handler):
    """What ``QueryFailed`` and ``ReportFailed`` have in common."""

    def __init__(self, parts: WorkflowContext) -> None:
        super().__init__(parts)
        self._send_query = SendQuery(parts)
        self._halting = StopService(parts)

    async def failed(self, step: UnitOfWork, scene: EventSubject, error: str) -> None:
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


# Finding whom news of a report is about: its payload names the report and the task only.


async def report_subject(
    handler: Handler, step: UnitOfWork, news: IncomingEvent, event: ReportGenerated | ReportFailed
) -> tuple[Report, EventSubject] | None:
    """The report and its scene, if it is being written in the task's present attempt."""
    report = await step.tx.reports.find(event.report_id)
    if report is None:
        handler.refuse(news, f"there is no report {event.report_id} any more")
        return None
    scene = await handler.subject_of(step, news, report.work_id, event.task_id)
    if scene is None:
        return None
    if report.status is not ReportStatus.GENERATING or scene.task.report_status is not ReportStatus.GENERATING:
        handler.refuse(news, f"report {report.id} is {report.status}")
        return None
    return report, scene


# AgentStarted: the agent of a Work runs.


class AgentStartedHandler(Handler):
    """Notes that the agent runs."""

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """The agent is RUNNING, unless it has ended since."""
        event = news.event
        assert isinstance(event, AgentStarted)
        work = await self.work_of(step, news, event.work_id)
        if work is None or work.agent_status is not AgentStatus.STARTING:
            return
        work.agent_started()
        await step.tx.works.save(work)
        step.tell(work.workflow_id, WorkStatusChanged(work.id, work.workflow_id, work.status), work.attempt)


# AgentStopped: the agent of a Work ended.


class AgentStoppedHandler(Handler):
    """Notes that the agent ended."""

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """The agent is STOPPED."""
        event = news.event
        assert isinstance(event, AgentStopped)
        work = await self.work_of(step, news, event.work_id)
        if work is None or work.agent_status in (AgentStatus.STOPPED, AgentStatus.ERROR):
            return
        work.agent_stopped()
        await step.tx.works.save(work)
        step.tell(work.workflow_id, WorkStatusChanged(work.id, work.workflow_id, work.status), work.attempt)


# AgentError: the agent of a Work broke, and the workflow fails.


class AgentErrorHandler(Handler):
    """The Work and its workflow fail; a person resumes or cancels."""

    def __init__(self, parts: WorkflowContext) -> None:
        super().__init__(parts)
        self._halting = StopService(parts)

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
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


# QueryResponded: the report is begun, or the task is done.


class QueryRespondedHandler(Handler):
    """Takes the answer."""

    def __init__(self, parts: WorkflowContext) -> None:
        super().__init__(parts)
        self._complete_task = CompleteTask(parts)

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """Keep the answer; then the report, or the next task."""
        event = news.event
        assert isinstance(event, QueryResponded)
        scene = await self.subject_of(step, news, event.work_id, event.task_id)
        if scene is None:
            return None
        workflow, work, task = scene
        if task.query_status not in (QueryStatus.SENT, QueryStatus.PROCESSING):
            return self.refuse(news, f"the query of task {task.id} is {task.query_status}")
        task.respond(event.response)
        if not task.outline:
            return await self._complete_task.execute(step, workflow, work, task)
        report = await self._report_of(step, work, task)
        report.start()
        await step.tx.reports.save(report)
        task.start_report(report.id)
        await step.tx.works.save(work)
        step.tell(workflow.id, ReportGenerationStarted(report.id, task.id), task.attempt)
        return step.then(lambda: self.write(work, task, report))

    async def _report_of(self, step: UnitOfWork, work: Work, task: Task) -> Report:
        """The report of the task, as if never begun: one of an earlier attempt is written anew."""
        reports = await step.tx.reports.of_workflow(work.workflow_id)
        found = next((report for report in reports if report.task_id == task.id), None)
        if found is None:
            return Report(self.parts.ids.new("report"), work.workflow_id, work.id, task.id, task.outline)
        found.reset()
        found.outline = task.outline
        return found

    async def write(self, work: Work, task: Task, report: Report) -> None:
        """Have the report written; may be repeated. What goes wrong is told as ``ReportFailed``."""
        if self.parts.delivered is not None:
            self.parts.delivered.add((task.id, task.attempt))
        attempt = task.attempt
        await self.parts.outside(
            f"the report of task {task.id} could not be begun",
            lambda: self.parts.agents.write_report(work, task, report),
            lambda why: workflow_event(work.workflow_id, ReportFailed(report.id, task.id, why), attempt),
        )


# QueryFailed: the query is sent again, or a person decides.


class QueryFailedHandler(FailedTaskHandler):
    """Notes the failure."""

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """The query is FAILED; then once more, or the Work fails."""
        event = news.event
        assert isinstance(event, QueryFailed)
        scene = await self.subject_of(step, news, event.work_id, event.task_id)
        if scene is None:
            return None
        if scene.task.query_status not in (QueryStatus.SENT, QueryStatus.PROCESSING):
            return self.refuse(news, f"the query of task {scene.task.id} is {scene.task.query_status}")
        scene.task.fail_query(event.error)
        return await self.failed(step, scene, event.error)


# ReportGenerated: the task is done, the next query is sent.


class ReportGeneratedHandler(Handler):
    """Takes the report."""

    def __init__(self, parts: WorkflowContext) -> None:
        super().__init__(parts)
        self._complete_task = CompleteTask(parts)

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """The report is there: complete the task."""
        event = news.event
        assert isinstance(event, ReportGenerated)
        found = await report_subject(self, step, news, event)
        if found is None:
            return
        report, (workflow, work, task) = found
        report.complete(event.file_path)
        await step.tx.reports.save(report)
        task.finish_report()
        await self._complete_task.execute(step, workflow, work, task)


# ReportFailed: the task is tried again, or a person decides.


class ReportFailedHandler(FailedTaskHandler):
    """Notes the failure."""

    async def handle(self, step: UnitOfWork, news: IncomingEvent, made: object = None) -> None:
        """The report is FAILED; then the whole task once more, or the Work fails."""
        event = news.event
        assert isinstance(event, ReportFailed)
        found = await report_subject(self, step, news, event)
        if found is None:
            return
        report, scene = found
        report.fail(event.error)
        await step.tx.reports.save(report)
        scene.task.fail_report(event.error)
        await self.failed(step, scene, event.error)
