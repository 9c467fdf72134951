"""Types of responses: tasks. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class CommandAccepted(TypedDict):
    """A command that was stored durably. The king executes it at once, or when the court is started."""

    eventId: str
    taskId: str


CourtEventDocument = dict[str, Any]


class CourtEventState(TypedDict):
    """An event. ``event`` is the document as stored."""

    event: dict[str, Any]
    shownStatus: str
    reason: str | None
    subject: str | None
    title: str | None
    linked: list[DocumentLink]


class DocumentLink(TypedDict):
    """Another document that belongs to one."""

    stream: Literal["events", "tasks", "messages"]
    id: str
    type: str
    status: str
    title: str | None
    createdAt: str


EventSchemaDocument = dict[str, Any]


class EventSummary(TypedDict):
    """An event in a list."""

    id: str
    type: str
    status: str
    created_at: str
    subject: str | None
    title: str | None
    source: str
    repo: str | None
    priority: str
    shown_status: NotRequired[str]
    reason: NotRequired[str | None]
    tasks: NotRequired[list[str]]


class InjectedEvent(TypedDict):
    """Result of injecting an event. The event is stored durably."""

    id: str
    accepted: bool


class KnownEventType(TypedDict):
    """A type of events that a source emits, a general subscribes to, or the queue holds."""

    type: str
    meaning: str
    priority: Literal["high", "normal", "low"]
    generals: list[str]


MessageDocument = dict[str, Any]


class MessageState(TypedDict):
    """A message. ``message`` is the document as stored."""

    message: dict[str, Any]
    status: str
    reason: str | None
    linked: list[DocumentLink]


class MessageSummary(TypedDict):
    """A message in a list."""

    id: str
    type: str
    status: str
    created_at: str
    subject: str | None
    title: str | None
    channel: str
    urgency: str
    reason: NotRequired[str | None]
    task_id: NotRequired[str | None]


class RelatedTask(TypedDict):
    """Another task that belongs to one."""

    taskId: str
    relation: Literal["retryOf", "retriedAs", "resumes", "resumedAs"]


class ResentMessage(TypedDict):
    """A message that was queued again."""

    id: str


class SoldierState(TypedDict):
    """A soldier: one run of an agent for a task."""

    id: str
    engine: str
    model: str | None
    pid: int | None
    alive: bool
    startedAt: str | None


class TaskAnswer(TypedDict):
    """The answer to the question of a task."""

    text: str
    user: str
    at: str
    resumed_as: str | None


class TaskCost(TypedDict):
    """Cost of a task by the ledger, over all its runs."""

    costUsd: float
    tokens: int
    runs: int


class TaskState(TypedDict):
    """A task. ``task`` and ``result`` are the court's documents as stored."""

    task: dict[str, Any]
    problem: str | None
    lockedBy: str | None
    result: dict[str, Any] | None
    shownStatus: str
    question: dict[str, Any] | None
    answer: TaskAnswer | None
    subject: str | None
    title: str | None
    durationSeconds: float | None
    related: list[RelatedTask]
    linked: list[DocumentLink]
    soldiers: list[SoldierState]
    spent: TaskCost
    actions: list[str]


class TaskSummary(TypedDict):
    """A task in a list."""

    id: str
    type: str
    status: str
    created_at: str
    subject: str | None
    title: str | None
    event_id: str
    target_general: str
    priority: str
    shown_status: NotRequired[str]
    answer: NotRequired[TaskAnswer | None]
    deadline: NotRequired[str | None]


class TraceLine(TypedDict):
    """One step of a trace."""

    ts: str
    who: str
    what: str
    where: str


class TranscriptEntry(TypedDict):
    """One entry of a transcript."""

    kind: str
    text: str


class TranscriptPart(TypedDict):
    """A part of a transcript. Call again with ``nextOffset`` to read on."""

    soldierId: str | None
    engine: str | None
    soldiers: list[str]
    items: list[TranscriptEntry]
    nextOffset: int
    size: int
    alive: bool
