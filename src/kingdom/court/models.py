"""The documents that travel through the court: Event, Task, Message, Result.

Field names, id patterns and words are fixed: people, scripts and other versions read these files. What is not known
here survives a round trip.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

Priority = Literal["high", "normal", "low"]
EventStatus = Literal["pending", "dispatched", "completed", "failed"]
TaskStatus = Literal["pending", "in_progress", "completed", "failed", "needs_human"]
MessageStatus = Literal["pending", "sent", "failed"]
MessageType = Literal["thread_start", "thread_update", "human_input_request", "notification", "report"]
Urgency = Literal["normal", "high", "urgent"]
ResultStatus = Literal["success", "failed", "needs_human", "skipped", "killed", "timeout"]

# Ids become file names: nothing but these characters, no leading dot, 200 bytes (kingdom.bus.names).
_TAIL: Final = r"[A-Za-z0-9._:@+\-]"
EventId = Annotated[str, StringConstraints(pattern=rf"^evt-[a-z0-9_]+-{_TAIL}+$", max_length=200)]
TaskId = Annotated[str, StringConstraints(pattern=r"^task-\d{8}-\d{3,}$", max_length=200)]
MessageId = Annotated[str, StringConstraints(pattern=r"^msg-\d{8}-\d{3,}$", max_length=200)]
CauseId = Annotated[str, StringConstraints(pattern=rf"^(evt-[a-z0-9_]+|schedule)-{_TAIL}+$", max_length=200)]
EventType = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)+$", max_length=200)]
GeneralName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_\-]*$", max_length=60)]


def _with_zone(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


Moment = Annotated[datetime, AfterValidator(_with_zone)]  # a time that names no zone, as by hand, is UTC


def timestamp(seconds: float) -> str:
    """A time of the clock as it stands in documents: ISO 8601 in UTC, milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Document(BaseModel):
    """What all of them share: fields we do not know are kept as they are."""

    model_config = ConfigDict(extra="allow")

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return self.model_dump(mode="json", exclude_unset=False)


class Event(Document):
    """Something that happened outside, and may become a task."""

    id: EventId
    type: EventType
    source: str = Field(min_length=1, max_length=100)
    repo: str | None = None
    payload: dict[str, Any] = Field(default_factory=dict)
    priority: Priority = "normal"
    created_at: Moment
    status: EventStatus = "pending"


EVENT_FIELDS: Final = ("id", "type", "source", "repo", "priority", "created_at")
"""What a task says of the event it comes from, in a field ``event``."""


class Task(Document):
    """Work for one general."""

    id: TaskId
    event_id: CauseId
    target_general: GeneralName
    type: str = Field(min_length=1, max_length=200)
    payload: dict[str, Any] = Field(default_factory=dict)
    priority: Priority = "normal"
    created_at: Moment
    status: TaskStatus = "pending"


class Message(Document):
    """Something to tell a person."""

    id: MessageId
    type: MessageType
    channel: str = ""
    urgency: Urgency = "normal"
    content: str
    context: dict[str, Any] = Field(default_factory=dict)
    created_at: Moment
    status: MessageStatus = "pending"


class Question(BaseModel):
    """What a person is asked."""

    model_config = ConfigDict(extra="allow")

    text: str = Field(min_length=1)
    choices: list[str] = Field(default_factory=list)
    default: str | None = None  # taken when nobody answers in time
    deadline: Moment | None = None


class EvidenceCheck(BaseModel):
    """One thing a manifest demands before ``success`` is believed, and what was found."""

    name: str
    ok: bool
    detail: str = ""


class Result(Document):
    """What came of a task, as the general reports it to the king (``state/results/<task>.json``)."""

    task_id: TaskId
    general: GeneralName
    status: ResultStatus
    summary: str = ""
    error: str | None = None  # why it is not a success
    question: Question | None = None  # for needs_human
    retry_count: int = 0
    soldier_id: str | None = None
    session_id: str | None = None
    engine: str | None = None
    model: str | None = None
    started_at: Moment
    ended_at: Moment
    duration_seconds: float = 0.0
    tokens: dict[str, int] = Field(default_factory=dict)
    cost_usd: float | None = None
    evidence: list[EvidenceCheck] = Field(default_factory=list)
    links: list[str] = Field(default_factory=list)
    memory_updates: list[str] = Field(default_factory=list)
