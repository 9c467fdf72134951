"""The types of bus. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class DeadLetterState(TypedDict):
    """An event that failed for good, and why."""

    eventId: str
    type: str
    aggregateType: NotRequired[str | None]
    aggregateId: NotRequired[str | None]
    attempts: int
    errorCode: str | None
    errorMessage: str | None
    deadAt: str | None
    payload: Payload | None
    requeueable: bool


class EventState(TypedDict):
    """Everything a bus knows of one event."""

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
    payload: Payload


class Payload(TypedDict):
    """What an event carries, as far as it is not too long."""

    value: dict[str, Any] | None
    text: str | None
    size: int


class Requeue(TypedDict):
    """Which dead letters get another chance."""

    ids: list[str]


class Requeued(TypedDict):
    """What was given another chance."""

    requeued: int
    skipped: list[str]


class Sample(TypedDict):
    """How a stream was at a moment, and what happened since the sample before."""

    at: str
    seconds: float
    pending: int
    processing: int
    dead: int
    arrived: int
    finished: int


class StreamState(TypedDict):
    """How full one stream is, and what came and went in the last minute."""

    stream: str
    pending: int
    processing: int
    dead: int
    oldestPendingSeconds: float
    arrivedPerMinute: float
    finishedPerMinute: float
