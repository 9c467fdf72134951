"""The operations of the API: tasks. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Any, Literal

from kingdom.client.connection import Connection, given, path_segment
from kingdom.client.models import Page
from kingdom.client.models.requests import OpenQuestion
from kingdom.client.models.tasks import (
    CommandAccepted,
    CourtEventDocument,
    CourtEventState,
    EventSchemaDocument,
    EventSummary,
    InjectedEvent,
    KnownEventType,
    MessageDocument,
    MessageState,
    MessageSummary,
    ResentMessage,
    TaskState,
    TaskSummary,
    TraceLine,
    TranscriptPart,
)


class TaskOperations(Connection):
    """The operations of the API: tasks."""

    def list_events(
        self,
        *,
        status: Literal["pending", "dispatched", "completed", "failed", "cancelled", "discarded", "invalid"]
        | None = None,
        type: str | None = None,
        source: str | None = None,
        since: str | None = None,
        until: str | None = None,
        q: str | None = None,
        sort: Literal["newest", "oldest", "status", "type", "source", "priority"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[EventSummary]:
        """List events, newest first."""
        answer: Page[EventSummary] = self.request(
            "GET",
            "/api/events",
            query={
                "status": status,
                "type": type,
                "source": source,
                "since": since,
                "until": until,
                "q": q,
                "sort": sort,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return answer

    def inject_event(
        self,
        *,
        type: str,
        payload: dict[str, Any] | None = None,
        source: str | None = None,
        repo: str | None = None,
        priority: Literal["high", "normal", "low"] | None = None,
        id: str | None = None,
    ) -> InjectedEvent:
        """Inject an event."""
        answer: InjectedEvent = self.request(
            "POST",
            "/api/events",
            body=given(
                {"type": type, "payload": payload, "source": source, "repo": repo, "priority": priority, "id": id}
            ),
        )
        return answer

    def get_event(self, event_id: str) -> CourtEventDocument:
        """Get an event."""
        answer: CourtEventDocument = self.request("GET", f"/api/events/{path_segment(event_id)}")
        return answer

    def get_event_state(self, event_id: str) -> CourtEventState:
        """Get an event with what belongs to it."""
        answer: CourtEventState = self.request("GET", f"/api/events/{path_segment(event_id)}/state")
        return answer

    def trace_event(self, event_id: str) -> Page[TraceLine]:
        """Trace an event."""
        answer: Page[TraceLine] = self.request("GET", f"/api/events/{path_segment(event_id)}/trace")
        return answer

    def list_tasks(
        self,
        *,
        general: str | None = None,
        status: Literal[
            "pending", "in_progress", "completed", "failed", "needs_human", "cancelled", "answered", "invalid"
        ]
        | None = None,
        type: str | None = None,
        priority: str | None = None,
        since: str | None = None,
        until: str | None = None,
        q: str | None = None,
        sort: Literal["newest", "oldest", "status", "type", "general", "priority"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[TaskSummary]:
        """List tasks, newest first."""
        answer: Page[TaskSummary] = self.request(
            "GET",
            "/api/tasks",
            query={
                "general": general,
                "status": status,
                "type": type,
                "priority": priority,
                "since": since,
                "until": until,
                "q": q,
                "sort": sort,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return answer

    def get_task(self, task_id: str) -> TaskState:
        """Get a task."""
        answer: TaskState = self.request("GET", f"/api/tasks/{path_segment(task_id)}")
        return answer

    def trace_task(self, task_id: str) -> Page[TraceLine]:
        """Trace a task."""
        answer: Page[TraceLine] = self.request("GET", f"/api/tasks/{path_segment(task_id)}/trace")
        return answer

    def get_transcript(
        self, task_id: str, *, offset: int | None = None, soldier: str | None = None, raw: bool | None = None
    ) -> TranscriptPart:
        """Get a transcript."""
        answer: TranscriptPart = self.request(
            "GET",
            f"/api/tasks/{path_segment(task_id)}/transcript",
            query={"offset": offset, "soldier": soldier, "raw": raw},
        )
        return answer

    def cancel_task(self, task_id: str, *, user: str | None = None, reason: str | None = None) -> CommandAccepted:
        """Cancel a task."""
        answer: CommandAccepted = self.request(
            "POST", f"/api/tasks/{path_segment(task_id)}/cancel", body=given({"user": user, "reason": reason}) or None
        )
        return answer

    def retry_task(self, task_id: str, *, user: str | None = None) -> CommandAccepted:
        """Retry a task."""
        answer: CommandAccepted = self.request(
            "POST", f"/api/tasks/{path_segment(task_id)}/retry", body=given({"user": user}) or None
        )
        return answer

    def list_messages(
        self,
        *,
        status: Literal["pending", "sent", "failed", "invalid"] | None = None,
        type: str | None = None,
        since: str | None = None,
        until: str | None = None,
        q: str | None = None,
        sort: Literal["newest", "oldest", "status", "type"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[MessageSummary]:
        """List messages, newest first."""
        answer: Page[MessageSummary] = self.request(
            "GET",
            "/api/messages",
            query={
                "status": status,
                "type": type,
                "since": since,
                "until": until,
                "q": q,
                "sort": sort,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return answer

    def get_message(self, message_id: str) -> MessageDocument:
        """Get a message."""
        answer: MessageDocument = self.request("GET", f"/api/messages/{path_segment(message_id)}")
        return answer

    def get_message_state(self, message_id: str) -> MessageState:
        """Get a message with what belongs to it."""
        answer: MessageState = self.request("GET", f"/api/messages/{path_segment(message_id)}/state")
        return answer

    def resend_message(self, message_id: str) -> ResentMessage:
        """Resend a failed message."""
        answer: ResentMessage = self.request("POST", f"/api/messages/{path_segment(message_id)}/resend")
        return answer

    def list_questions(self) -> Page[OpenQuestion]:
        """List open questions."""
        answer: Page[OpenQuestion] = self.request("GET", "/api/questions")
        return answer

    def answer_question(self, task_id: str, *, text: str, user: str | None = None) -> CommandAccepted:
        """Answer a question."""
        answer: CommandAccepted = self.request(
            "POST", f"/api/questions/{path_segment(task_id)}/answer", body=given({"text": text, "user": user})
        )
        return answer

    def list_event_types(self) -> Page[KnownEventType]:
        """List the types of events."""
        answer: Page[KnownEventType] = self.request("GET", "/api/event-types")
        return answer

    def get_event_schema(self, type: str) -> EventSchemaDocument:
        """Get the schema of a type of events."""
        answer: EventSchemaDocument = self.request("GET", f"/api/event-types/{path_segment(type)}/schema")
        return answer
