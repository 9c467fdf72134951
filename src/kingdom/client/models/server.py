"""Types of responses: server. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from kingdom.client.models.requests import RoleState


class Alive(TypedDict):
    """The server is alive."""

    status: NotRequired[Literal["alive"]]


class BrowserSession(TypedDict):
    """A browser that is logged in."""

    id: str
    name: str
    role: Literal["look", "answer", "operate", "own"]
    method: Literal["token", "oidc"]
    createdAt: str
    lastSeenAt: str | None
    address: str
    userAgent: str
    current: bool


class ChangedRole(TypedDict):
    """The role of a token after a change."""

    name: str
    role: Literal["look", "answer", "operate", "own"]


class DeadLetterState(TypedDict):
    """A dead letter: an event that failed permanently, and its error."""

    eventId: str
    type: str
    aggregateType: NotRequired[str | None]
    aggregateId: NotRequired[str | None]
    attempts: int
    errorCode: str | None
    errorMessage: str | None
    deadAt: str | None
    payload: PayloadPreview | None
    requeueable: bool


class EndedSession(TypedDict):
    """A session that was ended."""

    id: str
    name: str


class EventState(TypedDict):
    """State of one event on a bus."""

    eventId: str
    stream: str
    type: str
    status: str
    attempts: int
    aggregateType: str | None
    aggregateId: str | None
    priority: str
    notBefore: str | None
    createdAt: str | None
    nextRetryAt: str | None
    lockedBy: str | None
    lockedUntil: str | None
    finishedAt: str | None
    errorCode: str | None
    errorMessage: str | None
    outcome: str | None
    payload: PayloadPreview


class HealthInfo(TypedDict):
    """Health of the court, and whether this server runs the workflow engine."""

    level: str
    reason: str
    court: bool
    running: bool
    roles: list[RoleState]
    workflowEngine: bool


class LoggedOut(TypedDict):
    """The browser is logged out."""

    loggedOut: NotRequired[Literal[True]]


class NewToken(TypedDict):
    """A token that was created. Its value is shown this once."""

    name: str
    role: Literal["look", "answer", "operate", "own"]
    token: str
    path: str


class PayloadPreview(TypedDict):
    """The payload of an event; cut if it is too long."""

    value: dict[str, Any] | None
    text: str | None
    size: int


class Ready(TypedDict):
    """The server is ready: everything it depends on responds."""

    status: NotRequired[Literal["ready"]]
    checked: list[str]


class Requeued(TypedDict):
    """Result of requeueing dead letters."""

    requeued: int
    skipped: list[str]


class RevokedToken(TypedDict):
    """A token that was revoked."""

    name: str


class SearchHit(TypedDict):
    """Something that was found."""

    kind: Literal["question", "task", "workflow", "template", "general", "event", "message", "person"]
    id: str
    title: str
    text: str
    path: str


class SessionInfo(TypedDict):
    """The session of the caller."""

    csrfToken: str
    identity: Literal["bearer", "session"]
    name: str
    role: Literal["look", "answer", "operate", "own"]
    user: str
    version: str
    root: str
    court: bool
    locale: str


class StreamInfo(TypedDict):
    """Depth of a stream, and its throughput in the last minute."""

    stream: str
    pending: int
    processing: int
    dead: int
    oldestPendingSeconds: float
    arrivedPerMinute: float
    finishedPerMinute: float


class StreamSample(TypedDict):
    """Depth of a stream at a time, and the events since the previous sample."""

    at: str
    seconds: float
    pending: int
    processing: int
    dead: int
    arrived: int
    finished: int


class TokenInfo(TypedDict):
    """The token of a person, without its value."""

    name: str
    role: Literal["look", "answer", "operate", "own"]
    createdAt: str
    lastUsedAt: str | None
