"""The documents of a court: Event, Task, Message, Result.

Field names, id patterns and status words are fixed: people, scripts and other versions read these files. Unknown fields
survive a round trip.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from kingdom.base.forms import form

Priority = Literal["high", "normal", "low"]
EventStatus = Literal["pending", "dispatched", "completed", "failed", "cancelled"]
TaskStatus = Literal["pending", "in_progress", "completed", "failed", "needs_human", "cancelled"]
MessageStatus = Literal["pending", "sent", "failed"]
MessageType = Literal["thread_start", "thread_update", "human_input_request", "notification", "report"]
Urgency = Literal["normal", "high", "urgent"]
ResultStatus = Literal["success", "failed", "needs_human", "skipped", "killed", "timeout", "cancelled"]

# Ids become file names: only these characters, no leading dot, 200 bytes (kingdom.bus.envelope).
_ID_TAIL: Final = r"[A-Za-z0-9._:@+\-]"
EventId = Annotated[
    str,
    StringConstraints(
        pattern=form(
            rf"^evt-[a-z0-9_]+-{_ID_TAIL}+$", "evt-, a source and a name, such as evt-github-12345 or evt-ci-build.7"
        ),
        max_length=200,
    ),
]
TaskId = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^task-\d{8}-\d{3,}$", "task-, a day and a number, such as task-20260207-001"), max_length=200
    ),
]
MessageId = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^msg-\d{8}-\d{3,}$", "msg-, a day and a number, such as msg-20260207-001"), max_length=200
    ),
]
CauseId = Annotated[
    str,
    StringConstraints(
        pattern=form(rf"^(evt-[a-z0-9_]+|schedule)-{_ID_TAIL}+$", "the id of an event, such as evt-github-12345"),
        max_length=200,
    ),
]
EventType = Annotated[
    str,
    StringConstraints(
        pattern=form(
            r"^[a-z0-9_]+(\.[a-z0-9_]+)+$",
            "two or more words of small letters, digits and _, joined by dots, such as github.pr.opened",
        ),
        max_length=200,
    ),
]
GeneralName = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^[a-z0-9][a-z0-9_\-]*$", "small letters, digits, _ and -, such as gen-pr"), max_length=60
    ),
]


def _assume_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


UtcTime = Annotated[
    datetime, AfterValidator(_assume_utc)
]  # a time without a zone, as in a file written by hand, is UTC


def timestamp(seconds: float) -> str:
    """Format epoch seconds as in documents: ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class CourtDocument(BaseModel):
    """The base of all documents: unknown fields are kept."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    def document(self) -> dict[str, Any]:
        """Return the document as JSON values."""
        return self.model_dump(mode="json", exclude_unset=False)


class Event(CourtDocument):
    """Something that happened outside and may become a task."""

    id: EventId
    type: EventType
    source: str = Field(min_length=1, max_length=100)
    repo: str | None = None
    payload: dict[str, Any] = Field(default_factory=dict)
    priority: Priority = "normal"
    created_at: UtcTime
    status: EventStatus = "pending"


DETECTED_BY: Final = "detected_by"
"""The field of an event that names the role which wrote ``event.detected``; without it, the king does."""

RESUME_TYPE: Final = "resume"
"""The type of a task that goes on with another after a person's answer."""

FOLLOW_UP_FIELD: Final = "follow_up"
"""The field of a task that goes on with the pull request of an earlier one."""

USER_NAME_FIELD: Final = "user_name"
"""The field of a payload with the name of its ``user``, where that is an id that says nothing to people."""

EVENT_FIELDS: Final = ("id", "type", "source", "repo", "priority", "created_at")
"""The fields of an event that its task repeats in ``event``."""


class Task(CourtDocument):
    """Work for one general."""

    id: TaskId
    event_id: CauseId
    target_general: GeneralName
    type: str = Field(min_length=1, max_length=200)
    payload: dict[str, Any] = Field(default_factory=dict)
    priority: Priority = "normal"
    created_at: UtcTime
    status: TaskStatus = "pending"

    @property
    def continues(self) -> str | None:
        """The task that this one goes on with. It is not validated."""
        return continued_task(self.type, self.payload, (self.model_extra or {}).get(FOLLOW_UP_FIELD))


class Message(CourtDocument):
    """A message to people."""

    id: MessageId
    type: MessageType
    channel: str = ""
    urgency: Urgency = "normal"
    content: str
    context: dict[str, Any] = Field(default_factory=dict)
    created_at: UtcTime
    status: MessageStatus = "pending"


class Question(BaseModel):
    """A question to a person."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    text: str = Field(min_length=1)
    choices: list[str] = Field(default_factory=list)
    default: str | None = None  # used when nobody answers before the deadline
    deadline: UtcTime | None = None


class EvidenceCheck(BaseModel):
    """One piece of evidence that a manifest requires for ``success``, and what was found."""

    name: str
    ok: bool
    detail: str = ""


class Result(CourtDocument):
    """The result of a task, as the general reports it to the king (``state/results/<task>.json``)."""

    task_id: TaskId
    general: GeneralName
    status: ResultStatus
    summary: str = ""
    error: str | None = None  # why the task did not succeed
    question: Question | None = None  # for needs_human
    retry_count: int = 0
    soldier_id: str | None = None
    session_id: str | None = None
    engine: str | None = None
    model: str | None = None
    started_at: UtcTime
    ended_at: UtcTime
    duration_seconds: float = 0.0
    tokens: dict[str, int] = Field(default_factory=dict)
    cost_usd: float | None = None
    evidence: list[EvidenceCheck] = Field(default_factory=list)
    links: list[str] = Field(default_factory=list)
    memory_updates: list[str] = Field(default_factory=list)


def continued_task(task_type: Any, payload: Any, follow_up: Any) -> str | None:
    """Return the task that one goes on with, as a resume or a follow-up, from these fields of it. It is not validated.

    The payload of a follow-up is that of its event: it comes from outside, and could name any task.
    """
    holder, name = (payload, "original_task_id") if task_type == RESUME_TYPE else (follow_up, "task_id")
    found = holder.get(name) if isinstance(holder, dict) else None
    return found if isinstance(found, str) else None


def comment_text(payload: Mapping[str, Any]) -> str:
    """Return what the comment or review of an event says, with its comments on lines; empty when it says nothing."""
    comment = payload.get("comment")
    if not isinstance(comment, Mapping):
        return ""
    lines = payload.get("line_comments")
    said = [comment, *(one for one in lines if isinstance(one, Mapping))] if isinstance(lines, list) else [comment]
    return "\n\n".join(text for one in said if isinstance(text := one.get("body"), str) and text.strip())


_REPOSITORY_FIELDS: Final = ("repo", "repository")
_NUMBER_FIELDS: Final = ("pr_number", "issue_number", "number")  # of a payload, or of a nested field
_NESTED_FIELDS: Final = ("pull_request", "pr", "issue")
_TICKET_FIELDS: Final = ("ticket_key", "issue_key", "ticket", "key")
_TICKET_KEY_PATTERN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}-\d{1,12}\Z")
_MAX_SUBJECT_CHARS: Final = 200


def repository_of(payload: Mapping[str, Any]) -> str | None:
    """Return the repository that a payload names: in ``repo`` or ``repository``, as a text or as GitHub's object."""
    for name in _REPOSITORY_FIELDS:
        value = payload.get(name)
        if isinstance(value, Mapping):
            value = value.get("full_name") or value.get("name")
        if isinstance(value, str) and value:
            return value
    return None


def is_ticket_key(text: str) -> bool:
    """Whether a text is the key of a ticket, such as ``SHOP-7``."""
    return _TICKET_KEY_PATTERN.match(text) is not None


def subject_of(event: Event | Mapping[str, Any]) -> str | None:
    """Return the subject of an event: the pull request, issue or ticket it is about; None when it has none.

    All events about the same thing have the same subject, and a subject has one active task at a time. A payload may
    name it in ``subject``. Pull requests and issues of a repository share one sequence of numbers, so both are
    ``owner/repo#12``; a ticket is its key.
    """
    document = event.model_dump() if isinstance(event, Event) else event
    payload = document.get("payload")
    if not isinstance(payload, Mapping):
        return None
    named = payload.get("subject")
    if isinstance(named, str) and 0 < len(named) <= _MAX_SUBJECT_CHARS:
        return named
    ticket = next(
        (key for name in _TICKET_FIELDS if isinstance(key := payload.get(name), str) and is_ticket_key(key)),
        None,
    )
    if ticket is not None:
        return ticket.upper()
    repo, number = document.get("repo") or repository_of(payload), _issue_number(payload)
    if isinstance(repo, str) and 0 < len(repo) <= _MAX_SUBJECT_CHARS and number is not None:
        return f"{repo.lower()}#{number}"
    return None


def _issue_number(payload: Mapping[str, Any]) -> int | None:
    nested = [found for name in _NESTED_FIELDS if isinstance(found := payload.get(name), Mapping)]
    for mapping in (payload, *nested):
        for name in _NUMBER_FIELDS:
            value = mapping.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
            if isinstance(value, str) and value.isascii() and value.isdigit() and 0 < len(value) <= 12:
                return int(value)
    return None
