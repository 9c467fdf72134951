"""Works and their tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

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

DEFAULT_ENGINE: Final = "claude"
DEFAULT_RETRIES: Final = 1


@dataclass(slots=True)
class Task:
    """One step of a Work: a query to its agent, and the report it asks for."""

    id: str
    order: int
    name: str
    query: str  # may have variables: {{ issue.key }}
    outline: tuple[str, ...] = ()  # the sections of its report; none: no report
    retries: int = DEFAULT_RETRIES  # of a failed query or report, before a person has to decide
    status: TaskStatus = TaskStatus.PENDING
    query_status: QueryStatus = QueryStatus.PENDING
    report_status: ReportStatus = ReportStatus.NOT_REQUIRED
    attempt: int = 1
    tries: int = 0  # retries of this attempt so far
    response: str | None = None
    error: str | None = None
    report_id: str | None = None
    question: str | None = None  # what its agent asks a person, or asked
    choices: tuple[str, ...] = ()  # the answers it suggests
    default: str | None = None  # the answer when nobody has answered by the deadline
    deadline: str | None = None  # ISO 8601
    answer: str | None = None  # a person's answer, or what they say unasked, for the next attempt
    heard: str | None = None  # the last run whose end was recorded: each is recorded once

    def __post_init__(self) -> None:
        if self.outline and self.report_status is ReportStatus.NOT_REQUIRED:
            self.report_status = ReportStatus.PENDING

    def send(self) -> None:
        """Mark the query as sent."""
        self._to(TaskStatus.RUNNING)
        self._query(QueryStatus.SENT)

    def process(self) -> None:
        """Mark the query as being processed."""
        self._query(QueryStatus.PROCESSING)

    def respond(self, response: str) -> None:
        """Store the agent's answer."""
        self._query(QueryStatus.RESPONDED)
        self.response, self.error = response, None

    def ask(
        self, question: str, choices: Sequence[str] = (), default: str | None = None, deadline: str | None = None
    ) -> None:
        """Store the agent's question: it asks a person instead of answering or writing the report."""
        if self.report_status is ReportStatus.GENERATING:
            self._report(ReportStatus.PENDING)
        else:
            self._query(QueryStatus.RESPONDED)
        self.question, self.answer = question, None
        self.choices, self.default, self.deadline = tuple(choices), default, deadline

    def say(self, text: str) -> None:
        """Store what a person says for the next attempt, which sends the query again even if it was answered."""
        self.question, self.answer, self.response = None, text, None

    def fail_query(self, error: str) -> None:
        """Fail the query, and the task with it."""
        self._query(QueryStatus.FAILED)
        self._to(TaskStatus.FAILED)
        self.error = error

    def start_report(self, report_id: str) -> None:
        """Mark the report as being written. It needs the answer first."""
        if self.query_status is not QueryStatus.RESPONDED:
            raise IllegalTransition(
                "the report of task", self.id, f"{self.report_status} before the answer", "GENERATING"
            )
        self._report(ReportStatus.GENERATING)
        self.report_id = report_id

    def finish_report(self) -> None:
        """Mark the report as complete."""
        self._report(ReportStatus.COMPLETED)

    def fail_report(self, error: str) -> None:
        """Fail the report, and the task with it."""
        self._report(ReportStatus.FAILED)
        self._to(TaskStatus.FAILED)
        self.error = error

    def complete(self) -> None:
        """Complete the task; needs the answer, and the report if it has an outline."""
        answered = self.query_status is QueryStatus.RESPONDED
        reported = self.report_status in (ReportStatus.NOT_REQUIRED, ReportStatus.COMPLETED)
        if not (answered and reported):
            open_parts = f"{self.status} (query {self.query_status}, report {self.report_status})"
            raise IllegalTransition("task", self.id, open_parts, TaskStatus.COMPLETED)
        self._to(TaskStatus.COMPLETED)

    def cancel(self) -> None:
        """Cancel the task; a completed task does not change."""
        if self.status in (TaskStatus.COMPLETED, TaskStatus.CANCELLED):
            return
        self._to(TaskStatus.CANCELLED)
        if self.query_status not in (QueryStatus.RESPONDED, QueryStatus.CANCELLED):
            self._query(QueryStatus.CANCELLED)
        if self.report_status not in (ReportStatus.NOT_REQUIRED, ReportStatus.COMPLETED, ReportStatus.CANCELLED):
            self._report(ReportStatus.CANCELLED)

    def retry(self) -> bool:
        """Start a new attempt of a failed task; return False if no retries are left."""
        if self.tries >= self.retries:
            return False
        tries = self.tries + 1
        self.repeat()
        self.tries = tries
        return True

    def repeat(self) -> None:
        """Start a new attempt in the same conversation.

        A person's answer stays, and so does the agent's response if only its report is missing.
        """
        kept = self.response if self.report_status in (ReportStatus.GENERATING, ReportStatus.FAILED) else None
        question, answer = self.question, self.answer
        self.reset()
        self.question, self.answer = question, answer
        if kept is not None:
            self.query_status, self.response = QueryStatus.RESPONDED, kept

    def go_on(self) -> None:
        """Run again with a response that is there already."""
        self._to(TaskStatus.RUNNING)

    def forget_response(self) -> None:
        """Have the query sent again in the next attempt, even if only the report is missing."""
        if self.query_status is QueryStatus.RESPONDED:
            self.query_status, self.response = QueryStatus.PENDING, None

    def uncancel(self) -> None:
        """Undo the cancellation."""
        if self.status is TaskStatus.CANCELLED:
            self.status = TaskStatus.PENDING

    def reset(self) -> None:
        """Start over as a new attempt. Late events of the old attempt are recognised by its number."""
        if self.status is TaskStatus.CANCELLED:
            raise IllegalTransition("task", self.id, self.status, TaskStatus.PENDING)
        self.status, self.query_status = TaskStatus.PENDING, QueryStatus.PENDING
        self.report_status = ReportStatus.PENDING if self.outline else ReportStatus.NOT_REQUIRED
        self.attempt += 1
        self.tries = 0
        self.response = self.error = self.report_id = self.question = self.answer = self.default = self.deadline = None
        self.choices = ()

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
    """The report of a Task: a Markdown file in the workspace of its Work."""

    id: str
    workflow_id: str
    work_id: str
    task_id: str
    outline: tuple[str, ...] = field(default_factory=tuple)
    status: ReportStatus = ReportStatus.PENDING
    file_path: str | None = None
    error: str | None = None
    text: str | None = None  # for other machines, if engines share the store
    version: int = 0

    def start(self) -> None:
        """Mark it as being written."""
        self.status = check_transition("report", self.id, REPORT_TRANSITIONS, self.status, ReportStatus.GENERATING)

    def complete(self, file_path: str) -> None:
        """Mark it as complete and store its path."""
        self.status = check_transition("report", self.id, REPORT_TRANSITIONS, self.status, ReportStatus.COMPLETED)
        self.file_path, self.error = file_path, None

    def fail(self, error: str) -> None:
        """Mark it as failed and store the error."""
        self.status = check_transition("report", self.id, REPORT_TRANSITIONS, self.status, ReportStatus.FAILED)
        self.error = error

    def reset(self) -> None:
        """Start over."""
        self.status, self.file_path, self.error, self.text = ReportStatus.PENDING, None, None, None


@dataclass(slots=True)
class Work:
    """One part of a workflow: a conversation with one agent, task by task, that ends in a checkpoint."""

    id: str
    workflow_id: str
    sequence: int
    name: str
    tasks: list[Task]
    engine: str = DEFAULT_ENGINE
    model: str | None = None
    engine_options: Mapping[str, object] = field(default_factory=dict)
    mcp_server_refs: tuple[McpServerRef, ...] = ()
    after: tuple[str, ...] = ()  # names of works it waits for; "start": none; empty: all with a lower sequence
    merge: bool = False  # whether it merges the branches of the works it waits for
    pause_after: bool = False  # whether a person reviews before the next Work starts
    continues: str | None = None  # the name of a Work whose conversation it goes on with
    apart: bool = False  # other works may run at the same time, so it has its own worktrees; known once it starts
    status: WorkStatus = WorkStatus.PENDING
    agent_status: AgentStatus = AgentStatus.IDLE
    attempt: int = 1
    session_id: str | None = None  # the agent's conversation, shared by its tasks
    error: str | None = None
    checkpoint_id: str | None = None  # its valid checkpoint; None: not made yet
    partial: bool = field(default=False, compare=False)  # whether tasks are left out; the first open one is there
    version: int = 0

    @property
    def current_task(self) -> Task | None:
        """The running task, or else the next one; None if all are done."""
        return next((task for task in self.tasks if task.status is not TaskStatus.COMPLETED), None)

    def task(self, task_id: str) -> Task:
        """Return the task with this id; raise :class:`NotFound`."""
        found = next((task for task in self.tasks if task.id == task_id), None)
        if found is None:
            raise NotFound(f"work {self.id} has no task {task_id}")
        return found

    # ── status ────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, *, apart: bool = False, session_id: str | None = None) -> None:
        """Start the Work and its agent, in a conversation that there is already if ``session_id`` is given."""
        self._to(WorkStatus.RUNNING)
        self.apart = apart
        self.session_id = self.session_id or session_id
        self._agent(AgentStatus.STARTING)
        self.error = None

    def complete(self) -> None:
        """Complete the Work; all its tasks must be done."""
        if unfinished := self.current_task:
            raise IllegalTransition(
                "work", self.id, f"{self.status} with task {unfinished.id} {unfinished.status}", WorkStatus.COMPLETED
            )
        self._to(WorkStatus.COMPLETED)

    def checkpointed(self, checkpoint_id: str) -> None:
        """Store its checkpoint: works that wait for it may start."""
        self.checkpoint_id, self.error = checkpoint_id, None

    def pause(self) -> None:
        """Pause the Work where it is."""
        self._to(WorkStatus.PAUSED)

    def wait(self) -> None:
        """Wait for a person's answer."""
        self._to(WorkStatus.WAITING)

    def answer(self, text: str) -> None:
        """Store a person's answer for the task whose agent asked."""
        for task in self._all_tasks():
            if task.status is TaskStatus.RUNNING:
                task.answer = text

    def say(self, text: str) -> None:
        """Store what a person says for the task at which it stopped; its query is sent again, with that.

        If only its checkpoint is missing, that is its last task.
        """
        tasks = self._all_tasks()
        stopped = [task for task in tasks if task.status in (TaskStatus.RUNNING, TaskStatus.FAILED)]
        if self.current_task is None:
            tasks[-1].repeat()
        for task in stopped or [task for task in tasks if task is self.current_task]:
            task.say(text)

    def fail(self, error: str) -> None:
        """Fail the Work."""
        self._to(WorkStatus.FAILED)
        self.error = error

    def cancel(self) -> None:
        """Cancel the Work and its unfinished tasks; a completed Work does not change."""
        if self.status in (WorkStatus.COMPLETED, WorkStatus.CANCELLED):
            return
        self._to(WorkStatus.CANCELLED)
        for task in self._all_tasks():
            task.cancel()

    def reset(self) -> None:
        """Start over as a new attempt. Late events of the old agent are recognised by its number."""
        if self.status is WorkStatus.CANCELLED:
            raise IllegalTransition("work", self.id, self.status, WorkStatus.PENDING)
        self.status, self.agent_status = WorkStatus.PENDING, AgentStatus.IDLE
        self.attempt += 1
        self.session_id = self.error = self.checkpoint_id = None
        for task in self._all_tasks():
            task.reset()

    def restart(self) -> None:
        """Start over even if it was cancelled; for the copy in a fork."""
        if self.status is WorkStatus.CANCELLED:
            self.status = WorkStatus.PENDING
        for task in self._all_tasks():
            task.uncancel()
        self.reset()

    def requeue(self) -> None:
        """Wait to go on as a new attempt: done tasks stay done, the task at which it stopped is reset.

        The conversation stays as well.
        """
        self._to(WorkStatus.PENDING)
        self.agent_status, self.error = AgentStatus.IDLE, None
        self.attempt += 1
        for task in self._all_tasks():
            if task.status in (
                TaskStatus.RUNNING,
                TaskStatus.FAILED,
            ):  # one task; after a reorder it need not be the next one
                task.repeat()

    def _all_tasks(self) -> list[Task]:
        assert not self.partial, f"work {self.id} was read without all its tasks"
        return self.tasks

    # ── agent ─────────────────────────────────────────────────────────────────────────────────────────────────

    def agent_started(self) -> None:
        """Mark the agent as running."""
        self._agent(AgentStatus.RUNNING)

    def agent_stopped(self) -> None:
        """Mark the agent as stopped."""
        if self.agent_status is not AgentStatus.STOPPED:
            self._agent(AgentStatus.STOPPED)

    def agent_start_failed(self) -> None:
        """Mark that the agent could not start. The Work fails when its AgentError event is handled."""
        self._agent(AgentStatus.ERROR)

    def agent_failed(self, error: str) -> None:
        """Mark the agent as broken, and fail the Work if it runs."""
        if self.agent_status is not AgentStatus.ERROR:
            self._agent(AgentStatus.ERROR)
        if self.status is WorkStatus.RUNNING:
            self.fail(error)

    def _to(self, wanted: WorkStatus) -> None:
        self.status = check_transition("work", self.id, WORK_TRANSITIONS, self.status, wanted)

    def _agent(self, wanted: AgentStatus) -> None:
        self.agent_status = check_transition("the agent of work", self.id, AGENT_TRANSITIONS, self.agent_status, wanted)
