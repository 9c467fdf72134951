"""The operations of the API: court. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Any, Literal

from kingdom.client.connection import Connection, given, path_segment
from kingdom.client.models import Page
from kingdom.client.models.court import (
    Alive,
    BudgetState,
    CommandAccepted,
    CourtEventDocument,
    CourtEventState,
    CourtState,
    DeadLetterState,
    EventSchemaDocument,
    EventState,
    EventSummary,
    GeneralRecord,
    GeneralState,
    HealthInfo,
    InjectedEvent,
    JournalLine,
    KnownEventType,
    LoggedOut,
    MessageDocument,
    MessageState,
    MessageSummary,
    NewToken,
    OpenQuestion,
    Ready,
    ReportDocument,
    Requeued,
    ResentMessage,
    RevokedToken,
    SearchHit,
    SessionInfo,
    SettingsFile,
    StatsDocument,
    StatsHistory,
    StreamInfo,
    StreamSample,
    TaskState,
    TaskSummary,
    TokenInfo,
    TraceLine,
    TranscriptPart,
)


class CourtOperations(Connection):
    """The operations of the API: court."""

    def check_alive(self) -> Alive:
        """Check liveness."""
        answer: Alive = self.request("GET", "/healthz")
        return answer

    def check_ready(self) -> Ready:
        """Check readiness."""
        answer: Ready = self.request("GET", "/readyz")
        return answer

    def read_metrics(self) -> str:
        """Get Prometheus metrics."""
        answer: str = self.request("GET", "/metrics")
        return answer

    def read_session(self) -> SessionInfo:
        """Get the session."""
        answer: SessionInfo = self.request("GET", "/api/session")
        return answer

    def log_out(self) -> LoggedOut:
        """Log a browser out."""
        answer: LoggedOut = self.request("DELETE", "/api/session")
        return answer

    def read_health(self) -> HealthInfo:
        """Get the health of the court."""
        answer: HealthInfo = self.request("GET", "/api/health")
        return answer

    def search_all(self, *, q: str | None = None, limit: int | None = None) -> Page[SearchHit]:
        """Search everything."""
        answer: Page[SearchHit] = self.request("GET", "/api/search", query={"q": q, "limit": limit})
        return answer

    def get_court(self) -> CourtState:
        """Get the state of the court."""
        answer: CourtState = self.request("GET", "/api/court")
        return answer

    def list_journal(
        self,
        *,
        type: str | None = None,
        actor: str | None = None,
        since: str | None = None,
        until: str | None = None,
        q: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[JournalLine]:
        """List journal lines, newest first."""
        answer: Page[JournalLine] = self.request(
            "GET",
            "/api/court/journal",
            query={
                "type": type,
                "actor": actor,
                "since": since,
                "until": until,
                "q": q,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return answer

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

    def cancel_task(self, task_id: str, *, user: str | None = None) -> CommandAccepted:
        """Cancel a task."""
        answer: CommandAccepted = self.request(
            "POST", f"/api/tasks/{path_segment(task_id)}/cancel", body=given({"user": user}) or None
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

    def list_generals(self) -> Page[GeneralState]:
        """List generals."""
        answer: Page[GeneralState] = self.request("GET", "/api/generals")
        return answer

    def install_general(self, *, folder: str, replace: bool | None = None) -> GeneralState:
        """Install a general."""
        answer: GeneralState = self.request("POST", "/api/generals", body=given({"folder": folder, "replace": replace}))
        return answer

    def get_general(self, name: str) -> GeneralState:
        """Get a general."""
        answer: GeneralState = self.request("GET", f"/api/generals/{path_segment(name)}")
        return answer

    def get_general_record(self, name: str) -> GeneralRecord:
        """Get the record of a general."""
        answer: GeneralRecord = self.request("GET", f"/api/generals/{path_segment(name)}/record")
        return answer

    def enable_general(self, name: str, *, user: str | None = None) -> GeneralState:
        """Enable a general."""
        answer: GeneralState = self.request(
            "POST", f"/api/generals/{path_segment(name)}/enable", body=given({"user": user}) or None
        )
        return answer

    def disable_general(self, name: str, *, user: str | None = None) -> GeneralState:
        """Disable a general."""
        answer: GeneralState = self.request(
            "POST", f"/api/generals/{path_segment(name)}/disable", body=given({"user": user}) or None
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

    def list_settings(self) -> Page[SettingsFile]:
        """List the settings of the court."""
        answer: Page[SettingsFile] = self.request("GET", "/api/settings")
        return answer

    def list_tokens(self) -> Page[TokenInfo]:
        """List the tokens of people."""
        answer: Page[TokenInfo] = self.request("GET", "/api/tokens")
        return answer

    def create_token(self, *, name: str, role: Literal["look", "answer", "operate", "own"]) -> NewToken:
        """Give a person a token."""
        answer: NewToken = self.request("POST", "/api/tokens", body=given({"name": name, "role": role}))
        return answer

    def revoke_token(self, name: str) -> RevokedToken:
        """Revoke the token of a person."""
        answer: RevokedToken = self.request("DELETE", f"/api/tokens/{path_segment(name)}")
        return answer

    def get_stats(self) -> StatsDocument:
        """Get statistics by hour, day and general."""
        answer: StatsDocument = self.request("GET", "/api/stats")
        return answer

    def get_stats_history(
        self, *, since: str | None = None, until: str | None = None, general: str | None = None
    ) -> StatsHistory:
        """Get statistics of a period, in equal steps."""
        answer: StatsHistory = self.request(
            "GET", "/api/stats/history", query={"since": since, "until": until, "general": general}
        )
        return answer

    def get_report(self, *, date: str | None = None) -> ReportDocument:
        """Get a daily report."""
        answer: ReportDocument = self.request("GET", "/api/report", query={"date": date})
        return answer

    def get_budget(self) -> BudgetState:
        """Get spending and budgets."""
        answer: BudgetState = self.request("GET", "/api/budget")
        return answer

    def list_streams(self, bus: str) -> Page[StreamInfo]:
        """List the streams of a bus."""
        answer: Page[StreamInfo] = self.request("GET", f"/api/bus/{path_segment(bus)}/streams")
        return answer

    def get_throughput(self, bus: str, stream: str) -> Page[StreamSample]:
        """Get the throughput of a stream."""
        answer: Page[StreamSample] = self.request(
            "GET", f"/api/bus/{path_segment(bus)}/streams/{path_segment(stream)}/throughput"
        )
        return answer

    def list_dead_letters(
        self,
        bus: str,
        stream: str,
        *,
        type: str | None = None,
        code: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[DeadLetterState]:
        """List dead letters, newest first."""
        answer: Page[DeadLetterState] = self.request(
            "GET",
            f"/api/bus/{path_segment(bus)}/streams/{path_segment(stream)}/dead",
            query={"type": type, "code": code, "limit": limit, "cursor": cursor},
        )
        return answer

    def requeue_dead_letters(self, bus: str, stream: str, *, ids: list[str]) -> Requeued:
        """Requeue dead letters."""
        answer: Requeued = self.request(
            "POST",
            f"/api/bus/{path_segment(bus)}/streams/{path_segment(stream)}/dead/requeue",
            body=given({"ids": ids}),
        )
        return answer

    def get_bus_event(self, bus: str, event_id: str) -> EventState:
        """Get an event of a bus."""
        answer: EventState = self.request("GET", f"/api/bus/{path_segment(bus)}/events/{path_segment(event_id)}")
        return answer

    def get_stream_protocol(self) -> dict[str, Any]:
        """Get the live event protocol."""
        answer: dict[str, Any] = self.request("GET", "/api/stream/protocol")
        return answer
