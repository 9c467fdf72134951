"""A Task: one query to the agent of a Work, and the report it asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

from kingdom.workflow.domain.errors import IllegalTransition
from kingdom.workflow.domain.statuses import QUERY, REPORT, TASK, QueryStatus, ReportStatus, TaskStatus, move


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

    def revive(self) -> None:
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
        self.status = move("task", self.id, TASK, self.status, wanted)

    def _query(self, wanted: QueryStatus) -> None:
        self.query_status = move("the query of task", self.id, QUERY, self.query_status, wanted)

    def _report(self, wanted: ReportStatus) -> None:
        self.report_status = move("the report of task", self.id, REPORT, self.report_status, wanted)


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
        self.status = move("report", self.id, REPORT, self.status, ReportStatus.GENERATING)

    def complete(self, file_path: str) -> None:
        """It lies in a file."""
        self.status = move("report", self.id, REPORT, self.status, ReportStatus.COMPLETED)
        self.file_path, self.error = file_path, None

    def fail(self, error: str) -> None:
        """It could not be made."""
        self.status = move("report", self.id, REPORT, self.status, ReportStatus.FAILED)
        self.error = error

    def reset(self) -> None:
        """As if it had never been begun."""
        self.status, self.file_path, self.error = ReportStatus.PENDING, None, None
