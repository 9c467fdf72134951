"""Works and their tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kingdom.workflow.domain.resources import McpServerRef
from kingdom.workflow.domain.statuses import (
    AGENT_TRANSITIONS,
    QUERY_TRANSITIONS,
    REPORT_TRANSITIONS,
    TASK_TRANSITIONS,
    WORK_TRANSITIONS,
    AgentStatus,
    QueryStatus,
    ReportStatus,
    TaskStatus,
    WorkStatus,
    check_transition,
)
from kingdom.workflow.errors import IllegalTransition, NotFound

# A Task: one query to the agent of a Work, and the report it asks for.


@dataclass(slots=True)
class Task:
    """One step of a Work."""

    id: str
    order: int
    name: str
    query: str  # may have variables: {{ issue.key }}
    outline: tuple[str, ...] = ()  # the sections of its report; none: no report
    retries: int = 1  # how often a failed query or report is tried again before somebody has to decide
    status: TaskStatus = TaskStatus.PENDING
    query_status: QueryStatus = QueryStatus.PENDING
    report_status: ReportStatus = ReportStatus.NOT_REQUIRED
    attempt: int = 1
    tries: int = 0  # failures of this attempt so far that were tried again
    response: str | None = None
    error: str | None = None
    report_id: str | None = None
    heard: str | None = None  # the run whose end was told last: it is told once

    def __post_init__(self) -> None:
        if self.outline and self.report_status is ReportStatus.NOT_REQUIRED:
            self.report_status = ReportStatus.PENDING

    def send(self) -> None:
        """The query goes out."""
        self._to(TaskStatus.RUNNING)
        self._query(QueryStatus.SENT)

    def process(self) -> None:
        """The agent works on the query."""
        self._query(QueryStatus.PROCESSING)

    def respond(self, response: str) -> None:
        """The agent answered."""
        self._query(QueryStatus.RESPONDED)
        self.response, self.error = response, None

    def fail_query(self, error: str) -> None:
        """The query failed."""
        self._query(QueryStatus.FAILED)
        self._to(TaskStatus.FAILED)
        self.error = error

    def start_report(self, report_id: str) -> None:
        """The report is being written."""
        if self.query_status is not QueryStatus.RESPONDED:
            raise IllegalTransition(
                "the report of task", self.id, f"{self.report_status} before the answer", "GENERATING"
            )
        self._report(ReportStatus.GENERATING)
        self.report_id = report_id

    def finish_report(self) -> None:
        """The report is there."""
        self._report(ReportStatus.COMPLETED)

    def fail_report(self, error: str) -> None:
        """The report could not be made."""
        self._report(ReportStatus.FAILED)
        self._to(TaskStatus.FAILED)
        self.error = error

    def complete(self) -> None:
        """Everything that was asked for is there."""
        answered = self.query_status is QueryStatus.RESPONDED
        reported = self.report_status in (ReportStatus.NOT_REQUIRED, ReportStatus.COMPLETED)
        if not (answered and reported):
            open_parts = f"{self.status} (query {self.query_status}, report {self.report_status})"
            raise IllegalTransition("task", self.id, open_parts, TaskStatus.COMPLETED)
        self._to(TaskStatus.COMPLETED)

    def cancel(self) -> None:
        """It will not be done; what is done stays so."""
        if self.status in (TaskStatus.COMPLETED, TaskStatus.CANCELLED):
            return
        self._to(TaskStatus.CANCELLED)
        if self.query_status not in (QueryStatus.RESPONDED, QueryStatus.CANCELLED):
            self._query(QueryStatus.CANCELLED)
        if self.report_status not in (ReportStatus.NOT_REQUIRED, ReportStatus.COMPLETED, ReportStatus.CANCELLED):
            self._report(ReportStatus.CANCELLED)

    def retry(self) -> bool:
        """Try a failed one again, as a new attempt; False when its retries are spent."""
        if self.tries >= self.retries:
            return False
        tries = self.tries + 1
        self.reset()
        self.tries = tries
        return True

    def give_up(self) -> None:
        """Trying again would not help: the next failure is for a person to decide."""
        self.tries = max(self.tries, self.retries)

    def uncancel(self) -> None:
        """Take back that it will not be done."""
        if self.status is TaskStatus.CANCELLED:
            self.status = TaskStatus.PENDING

    def reset(self) -> None:
        """As if it had never been tried; late news of what was tried is told by the attempt."""
        if self.status is TaskStatus.CANCELLED:
            raise IllegalTransition("task", self.id, self.status, TaskStatus.PENDING)
        self.status, self.query_status = TaskStatus.PENDING, QueryStatus.PENDING
        self.report_status = ReportStatus.PENDING if self.outline else ReportStatus.NOT_REQUIRED
        self.attempt += 1
        self.tries = 0
        self.response = self.error = self.report_id = None

    def _to(self, wanted: TaskStatus) -> None:
        self.status = check_transition("task", self.id, TASK_TRANSITIONS, self.status, wanted)

    def _query(self, wanted: QueryStatus) -> None:
        self.query_status = check_transition("the query of task", self.id, QUERY_TRANSITIONS, self.query_status, wanted)

    def _report(self, wanted: ReportStatus) -> None:
        self.report_status = check_transition(
            "the report of task", self.id, REPORT_TRANSITIONS, self.report_status, wanted
        )


@dataclass(slots=True)
class Report:
    """A report of a Task, as a Markdown file in the workspace of its Work."""

    id: str
    workflow_id: str
    work_id: str
    task_id: str
    outline: tuple[str, ...] = field(default_factory=tuple)
    status: ReportStatus = ReportStatus.PENDING
    file_path: str | None = None
    error: str | None = None
    version: int = 0

    def start(self) -> None:
        """It is being written."""
        self.status = check_transition("report", self.id, REPORT_TRANSITIONS, self.status, ReportStatus.GENERATING)

    def complete(self, file_path: str) -> None:
        """It lies in a file."""
        self.status = check_transition("report", self.id, REPORT_TRANSITIONS, self.status, ReportStatus.COMPLETED)
        self.file_path, self.error = file_path, None

    def fail(self, error: str) -> None:
        """It could not be made."""
        self.status = check_transition("report", self.id, REPORT_TRANSITIONS, self.status, ReportStatus.FAILED)
        self.error = error

    def reset(self) -> None:
        """As if it had never been begun."""
        self.status, self.file_path, self.error = ReportStatus.PENDING, None, None


# A Work: a conversation with one agent, task after task, that ends in a checkpoint.


@dataclass(slots=True)
class Work:
    """One part of a workflow."""

    id: str
    workflow_id: str
    sequence: int
    name: str
    tasks: list[Task]
    engine: str = "claude"
    model: str | None = None
    engine_options: Mapping[str, object] = field(default_factory=dict)
    mcp_server_refs: tuple[McpServerRef, ...] = ()
    after: tuple[str, ...] = ()  # names of works it waits for, "start": nobody; none: all with a lower sequence
    merge: bool = False  # it merges what the works it waits for did
    pause_after: bool = False  # a person looks before the next one starts
    apart: bool = False  # others may run beside it: it has worktrees of its own; known once it starts
    status: WorkStatus = WorkStatus.PENDING
    agent_status: AgentStatus = AgentStatus.IDLE
    attempt: int = 1
    session_id: str | None = None  # the conversation its tasks share
    error: str | None = None
    version: int = 0

    @property
    def current_task(self) -> Task | None:
        """The task that is under way, or else the next one; None when all are done."""
        return next((task for task in self.tasks if task.status is not TaskStatus.COMPLETED), None)

    def task(self, task_id: str) -> Task:
        """One of its tasks."""
        found = next((task for task in self.tasks if task.id == task_id), None)
        if found is None:
            raise NotFound(f"work {self.id} has no task {task_id}")
        return found

    # ── its own state ─────────────────────────────────────────────────────────────────────────────────────────

    def start(self, *, apart: bool = False) -> None:
        """It begins, and so does its agent."""
        self._to(WorkStatus.RUNNING)
        self.apart = apart
        self._agent(AgentStatus.STARTING)
        self.error = None

    def complete(self) -> None:
        """All its tasks are done."""
        if unfinished := self.current_task:
            raise IllegalTransition(
                "work", self.id, f"{self.status} with task {unfinished.id} {unfinished.status}", WorkStatus.COMPLETED
            )
        self._to(WorkStatus.COMPLETED)

    def pause(self) -> None:
        """It stops where it is."""
        self._to(WorkStatus.PAUSED)

    def fail(self, error: str) -> None:
        """It cannot go on."""
        self._to(WorkStatus.FAILED)
        self.error = error

    def cancel(self) -> None:
        """It will not be finished; neither will its unfinished tasks."""
        if self.status in (WorkStatus.COMPLETED, WorkStatus.CANCELLED):
            return
        self._to(WorkStatus.CANCELLED)
        for task in self.tasks:
            task.cancel()

    def reset(self) -> None:
        """As if it had never begun. What its former agent still says is told by the attempt."""
        if self.status is WorkStatus.CANCELLED:
            raise IllegalTransition("work", self.id, self.status, WorkStatus.PENDING)
        self.status, self.agent_status = WorkStatus.PENDING, AgentStatus.IDLE
        self.attempt += 1
        self.session_id = self.error = None
        for task in self.tasks:
            task.reset()

    def restart(self) -> None:
        """As a Work of another workflow, that does it once more whatever became of it here."""
        if self.status is WorkStatus.CANCELLED:
            self.status = WorkStatus.PENDING
        for task in self.tasks:
            task.uncancel()
        self.reset()

    def requeue(self) -> None:
        """It will go on where it stopped: what is done stays, the task it stopped at is tried anew.

        The conversation stays as well. Late news of the former agent are told by the attempt.
        """
        self._to(WorkStatus.PENDING)
        self.agent_status, self.error = AgentStatus.IDLE, None
        self.attempt += 1
        for task in self.tasks:
            if task.status in (TaskStatus.RUNNING, TaskStatus.FAILED):  # one, which need not be the next any more
                task.reset()

    # ── its agent ─────────────────────────────────────────────────────────────────────────────────────────────

    def agent_started(self) -> None:
        """The agent runs."""
        self._agent(AgentStatus.RUNNING)

    def agent_stopped(self) -> None:
        """The agent ended."""
        if self.agent_status is not AgentStatus.STOPPED:
            self._agent(AgentStatus.STOPPED)

    def agent_start_failed(self) -> None:
        """The agent has nowhere to work. The Work fails when that news of it is handled."""
        self._agent(AgentStatus.ERROR)

    def agent_failed(self, error: str) -> None:
        """The agent broke, and the Work with it."""
        if self.agent_status is not AgentStatus.ERROR:
            self._agent(AgentStatus.ERROR)
        if self.status is WorkStatus.RUNNING:
            self.fail(error)

    def _to(self, wanted: WorkStatus) -> None:
        self.status = check_transition("work", self.id, WORK_TRANSITIONS, self.status, wanted)

    def _agent(self, wanted: AgentStatus) -> None:
        self.agent_status = check_transition("the agent of work", self.id, AGENT_TRANSITIONS, self.agent_status, wanted)
