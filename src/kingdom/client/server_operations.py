"""The operations of the API: server. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Any, Literal

from kingdom.client.connection import Connection, given, path_segment
from kingdom.client.models import Page
from kingdom.client.models.server import (
    Alive,
    BrowserSession,
    ChangedRole,
    DeadLetterState,
    EndedSession,
    EventState,
    HealthInfo,
    LoggedOut,
    NewToken,
    Ready,
    Requeued,
    RevokedToken,
    SearchHit,
    SessionInfo,
    StreamInfo,
    StreamSample,
    TokenInfo,
)


class ServerOperations(Connection):
    """The operations of the API: server."""

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

    def list_tokens(self) -> Page[TokenInfo]:
        """List the tokens of people."""
        answer: Page[TokenInfo] = self.request("GET", "/api/tokens")
        return answer

    def create_token(self, *, name: str, role: Literal["look", "answer", "operate", "own"]) -> NewToken:
        """Give a person a token."""
        answer: NewToken = self.request("POST", "/api/tokens", body=given({"name": name, "role": role}))
        return answer

    def change_token_role(self, name: str, *, role: Literal["look", "answer", "operate", "own"]) -> ChangedRole:
        """Give a token another role."""
        answer: ChangedRole = self.request("PATCH", f"/api/tokens/{path_segment(name)}", body=given({"role": role}))
        return answer

    def revoke_token(self, name: str) -> RevokedToken:
        """Revoke the token of a person."""
        answer: RevokedToken = self.request("DELETE", f"/api/tokens/{path_segment(name)}")
        return answer

    def list_sessions(self) -> Page[BrowserSession]:
        """List the browsers that are logged in."""
        answer: Page[BrowserSession] = self.request("GET", "/api/sessions")
        return answer

    def end_session(self, session_id: str) -> EndedSession:
        """Log a browser out."""
        answer: EndedSession = self.request("DELETE", f"/api/sessions/{path_segment(session_id)}")
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
