"""Types of responses: inbox. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class Acknowledged(TypedDict):
    """Result of acknowledging items."""

    acknowledged: int
    skipped: list[str]


class InboxItem(TypedDict):
    """Something that needs a person."""

    id: str
    kind: Literal["question", "review", "failed_task", "failed_workflow", "letter", "alert", "problem"]
    title: str
    text: str
    at: str | None
    path: str
    taskId: NotRequired[str | None]
    workflowId: NotRequired[str | None]
    choices: NotRequired[list[str]]
    deadline: NotRequired[str | None]
    bus: NotRequired[str | None]
    stream: NotRequired[str | None]
    eventId: NotRequired[str | None]
    checkpointId: NotRequired[str | None]
    work: NotRequired[str | None]
    actions: list[Literal["answer", "resume", "goBack", "retry", "requeue", "acknowledge", "mute"]]


class Muted(TypedDict):
    """Result of muting items, or of ending that."""

    changed: int
    skipped: list[str]


class MutedItem(TypedDict):
    """An item that was muted, as it was then."""

    id: str
    kind: Literal["question", "review", "failed_task", "failed_workflow", "letter", "alert", "problem"]
    title: str
    text: str
    path: str
    until: str | None
    user: str
    at: str
