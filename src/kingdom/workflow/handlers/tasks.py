"""Handlers of what agents report: agents, queries and reports."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

from kingdom.workflow.commands import COMMAND_STREAM, default_answer
from kingdom.workflow.context import UnitOfWork
from kingdom.workflow.domain.events import (
    AgentError,
    AgentStarted,
    AgentStopped,
    QueryFailed,
    QueryResponded,
    QuestionAsked,
    ReportFailed,
    ReportGenerated,
    WorkStatusChanged,
)
from kingdom.workflow.domain.statuses import AgentStatus, QueryStatus, ReportStatus, WorkflowStatus, WorkStatus
from kingdom.workflow.handlers.base import Handler, IncomingEvent
from kingdom.workflow.usecases.steps import complete_task, finish_or_report, halt_after_failure

# ── agents ────────────────────────────────────────────────────────────────────────────────────────────────────────


class AgentStartedHandler(Handler):
    """Marks the agent as RUNNING, unless it is marked already or ended meanwhile."""

    view: ClassVar[bool] = True  # it is recorded with the mark

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, AgentStarted)
        work = await self.work_of(unit, incoming, event.work_id)
        if work is None or work.agent_status is not AgentStatus.STARTING:
            return
        work.agent_started()
        await unit.tx.works.save(work)
        unit.record(work.workflow_id, WorkStatusChanged(work.id, work.workflow_id, work.status), work.attempt)


class AgentStoppedHandler(Handler):
    """Marks the agent as STOPPED."""

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, AgentStopped)
        work = await self.work_of(unit, incoming, event.work_id)
        if work is None or work.agent_status in (AgentStatus.STOPPED, AgentStatus.ERROR):
            return
        work.agent_stopped()
        await unit.tx.works.save(work)
        unit.record(work.workflow_id, WorkStatusChanged(work.id, work.workflow_id, work.status), work.attempt)


class AgentErrorHandler(Handler):
    """Fails the Work and its workflow; a person resumes or cancels it."""

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, AgentError)
        workflow = await unit.tx.workflows.find_alone(incoming.aggregate_id)
        work = await self.work_of(unit, incoming, event.work_id)
        if workflow is None or work is None:
            return None
        if workflow.status is not WorkflowStatus.RUNNING or work.status is not WorkStatus.RUNNING:
            return self.refuse(incoming, f"the workflow is {workflow.status}, the work {work.status}")
        begun = work.agent_status is AgentStatus.RUNNING
        work.agent_failed(event.error)
        await unit.tx.works.save(work)
        what = f"the agent of work {work.name} broke" if begun else f"work {work.name} could not begin"
        return await halt_after_failure(self.context, unit, workflow, work, f"{what}: {event.error}", fail=True)


# ── queries and reports ───────────────────────────────────────────────────────────────────────────────────────────


class QueryRespondedHandler(Handler):
    """Stores the answer, then starts the report or completes the task."""

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, QueryResponded)
        subject = await self.subject_of(unit, incoming, event.work_id, event.task_id)
        if subject is None:
            return None
        workflow, work, task = subject
        if task.query_status not in (QueryStatus.SENT, QueryStatus.PROCESSING):
            return self.refuse(incoming, f"the query of task {task.id} is {task.query_status}")
        task.respond(event.response)
        return await finish_or_report(self.context, unit, workflow, work, task)


class QueryFailedHandler(Handler):
    """Marks the query as FAILED, then retries the task or fails the Work."""

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, QueryFailed)
        subject = await self.subject_of(unit, incoming, event.work_id, event.task_id)
        if subject is None:
            return None
        if subject.task.query_status not in (QueryStatus.SENT, QueryStatus.PROCESSING):
            return self.refuse(incoming, f"the query of task {subject.task.id} is {subject.task.query_status}")
        subject.task.fail_query(event.error)
        return await self.task_failed(unit, subject, event.error)


class QuestionAskedHandler(Handler):
    """Has the Work wait for a person's answer, and pauses the workflow.

    A question with a default is answered by a command that becomes due at its deadline.
    """

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, QuestionAsked)
        subject = await self.subject_of(unit, incoming, event.work_id, event.task_id)
        if subject is None:
            return None
        workflow, work, task = subject
        asking = task.query_status in (QueryStatus.SENT, QueryStatus.PROCESSING)
        if not asking and task.report_status is not ReportStatus.GENERATING:
            return self.refuse(incoming, f"the query of task {task.id} is {task.query_status}")
        deadline = self._deadline(event)
        task.ask(event.question, event.choices, event.default, None if deadline is None else deadline.isoformat())
        work.wait()
        await unit.tx.works.save(work)
        if event.default is not None and deadline is not None:
            command = default_answer(workflow.id, task.id, task.attempt, event.default, deadline)
            await unit.tx.publish(COMMAND_STREAM, command)
        choices = f" (choices: {', '.join(event.choices)})" if event.choices else ""
        reason = f"work {work.name} asks: {event.question}{choices}"
        return await halt_after_failure(self.context, unit, workflow, work, reason, fail=False)

    def _deadline(self, event: QuestionAsked) -> datetime | None:
        if event.deadline is not None:
            return datetime.fromisoformat(event.deadline)
        hours = self.context.question_hours
        return None if event.default is None or hours is None else self.context.clock() + timedelta(hours=hours)


class ReportGeneratedHandler(Handler):
    """Stores the report's path and completes the task."""

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, ReportGenerated)
        found = await self.report_subject(unit, incoming, event)
        if found is None:
            return
        report, (workflow, work, task) = found
        report.complete(event.file_path)
        if self.context.store.holds is not None:
            report.text = await self.context.files.read_report(event.file_path)
        await unit.tx.reports.save(report)
        task.finish_report()
        await complete_task(self.context, unit, workflow, work, task)


class ReportFailedHandler(Handler):
    """Marks the report as FAILED, then asks for it again or fails the Work."""

    async def handle(self, unit: UnitOfWork, incoming: IncomingEvent, prelude: object = None) -> None:
        event = incoming.event
        assert isinstance(event, ReportFailed)
        found = await self.report_subject(unit, incoming, event)
        if found is None:
            return
        report, subject = found
        report.fail(event.error)
        await unit.tx.reports.save(report)
        subject.task.fail_report(event.error)
        await self.task_failed(unit, subject, event.error)
