"""The operations of court. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from kingdom.client.connection import Connection
from kingdom.client.connection import path_segment as _part
from kingdom.client.models.court import (
    Answer,
    Asked,
    BudgetState,
    CourtState,
    EventDocument,
    EventSummary,
    GeneralState,
    Injected,
    JournalLine,
    MessageDocument,
    MessageSummary,
    NewEvent,
    OpenQuestion,
    Passed,
    ReportDocument,
    Resent,
    StatsDocument,
    StoryLine,
    TaskState,
    TaskSummary,
    TranscriptPart,
)
from kingdom.client.models.shared import Page


class CourtOperations(Connection):
    """The operations of court."""

    def get_court(self) -> CourtState:
        """Who runs, what waits and why, who works, who is asked, what it costs."""
        answer: CourtState = self.request("GET", "/api/court")
        return answer

    def list_journal(self, *, limit: int | None = None) -> Page[JournalLine]:
        """The last lines of the journal, the newest first."""
        answer: Page[JournalLine] = self.request("GET", "/api/court/journal", query={"limit": limit})
        return answer

    def list_events(
        self,
        *,
        status: str | None = None,
        type_: str | None = None,
        source: str | None = None,
        since: str | None = None,
        until: str | None = None,
        q: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[EventSummary]:
        """Events, the newest first."""
        answer: Page[EventSummary] = self.request(
            "GET",
            "/api/events",
            query={
                "status": status,
                "type": type_,
                "source": source,
                "since": since,
                "until": until,
                "q": q,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return answer

    def inject_event(self, body: NewEvent) -> Injected:
        """Put an event into the court."""
        answer: Injected = self.request("POST", "/api/events", body=body)
        return answer

    def get_event(self, event_id: str) -> EventDocument:
        """One event as it lies in its file."""
        answer: EventDocument = self.request("GET", f"/api/events/{_part(event_id)}")
        return answer

    def trace_event(self, event_id: str) -> Page[StoryLine]:
        """The whole story of an event."""
        answer: Page[StoryLine] = self.request("GET", f"/api/events/{_part(event_id)}/trace")
        return answer

    def list_tasks(
        self,
        *,
        general: str | None = None,
        status: str | None = None,
        type_: str | None = None,
        priority: str | None = None,
        since: str | None = None,
        until: str | None = None,
        q: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[TaskSummary]:
        """Tasks, the newest first."""
        answer: Page[TaskSummary] = self.request(
            "GET",
            "/api/tasks",
            query={
                "general": general,
                "status": status,
                "type": type_,
                "priority": priority,
                "since": since,
                "until": until,
                "q": q,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return answer

    def get_task(self, task_id: str) -> TaskState:
        """One task: what it is, what came of it, who was on it."""
        answer: TaskState = self.request("GET", f"/api/tasks/{_part(task_id)}")
        return answer

    def trace_task(self, task_id: str) -> Page[StoryLine]:
        """The whole story of a task."""
        answer: Page[StoryLine] = self.request("GET", f"/api/tasks/{_part(task_id)}/trace")
        return answer

    def get_transcript(
        self, task_id: str, *, offset: int | None = None, soldier: str | None = None, raw: bool | None = None
    ) -> TranscriptPart:
        """What a soldier of a task said and did."""
        answer: TranscriptPart = self.request(
            "GET", f"/api/tasks/{_part(task_id)}/transcript", query={"offset": offset, "soldier": soldier, "raw": raw}
        )
        return answer

    def cancel_task(self, task_id: str, body: Asked | None = None) -> Passed:
        """Have a task ended."""
        answer: Passed = self.request("POST", f"/api/tasks/{_part(task_id)}/cancel", body=body)
        return answer

    def retry_task(self, task_id: str, body: Asked | None = None) -> Passed:
        """Have a task done once more."""
        answer: Passed = self.request("POST", f"/api/tasks/{_part(task_id)}/retry", body=body)
        return answer

    def list_messages(
        self,
        *,
        status: str | None = None,
        type_: str | None = None,
        since: str | None = None,
        until: str | None = None,
        q: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[MessageSummary]:
        """Messages to people, the newest first."""
        answer: Page[MessageSummary] = self.request(
            "GET",
            "/api/messages",
            query={
                "status": status,
                "type": type_,
                "since": since,
                "until": until,
                "q": q,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return answer

    def get_message(self, message_id: str) -> MessageDocument:
        """One message as it lies in its file."""
        answer: MessageDocument = self.request("GET", f"/api/messages/{_part(message_id)}")
        return answer

    def resend_message(self, message_id: str) -> Resent:
        """Send a failed message again."""
        answer: Resent = self.request("POST", f"/api/messages/{_part(message_id)}/resend")
        return answer

    def list_questions(self) -> Page[OpenQuestion]:
        """Questions that wait for an answer."""
        answer: Page[OpenQuestion] = self.request("GET", "/api/questions")
        return answer

    def answer_question(self, task_id: str, body: Answer) -> Passed:
        """Answer the question of a task."""
        answer: Passed = self.request("POST", f"/api/questions/{_part(task_id)}/answer", body=body)
        return answer

    def list_generals(self) -> Page[GeneralState]:
        """The generals, and what is wrong with them."""
        answer: Page[GeneralState] = self.request("GET", "/api/generals")
        return answer

    def get_general(self, name: str) -> GeneralState:
        """One general."""
        answer: GeneralState = self.request("GET", f"/api/generals/{_part(name)}")
        return answer

    def get_stats(self) -> StatsDocument:
        """How much was done, by hour, by day and by general."""
        answer: StatsDocument = self.request("GET", "/api/stats")
        return answer

    def get_report(self, *, date: str | None = None) -> ReportDocument:
        """The report of a day."""
        answer: ReportDocument = self.request("GET", "/api/report", query={"date": date})
        return answer

    def get_budget(self) -> BudgetState:
        """What was spent, and what may be."""
        answer: BudgetState = self.request("GET", "/api/budget")
        return answer
