"""The types of court. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from kingdom.client.models.shared import RoleState


class Answer(TypedDict):
    """What a person answers."""

    text: str
    user: NotRequired[str]


class Asked(TypedDict):
    """Who asks for something."""

    user: NotRequired[str]


class BudgetState(TypedDict):
    """What was spent today and this month, by general, and every limit that holds."""

    timezone: str
    day: SpentBy
    month: SpentBy
    dayByGeneral: dict[str, SpentBy]
    monthByGeneral: dict[str, SpentBy]
    limits: list[LimitState]


class CostState(TypedDict):
    """What was spent, and what may be."""

    dayUsd: float
    dayTokens: int
    monthUsd: float
    limits: list[LimitState]


class CourtState(TypedDict):
    """All of it."""

    home: str
    running: bool
    supervisorPid: int | None
    mode: str | None
    at: str
    roles: list[RoleState]
    queues: list[QueueState]
    holds: dict[str, Any]
    soldiers: list[SoldierAtWork]
    questions: list[OpenQuestion]
    problems: list[Trouble]
    health: HealthState
    cost: CostState
    recent: list[JournalLine]


EventDocument = dict[str, Any]


class EventSummary(TypedDict):
    """One event in a list."""

    id: str
    type: str
    status: str
    created_at: str
    subject: str | None
    title: str | None
    source: str
    repo: str | None
    priority: str


class GeneralState(TypedDict):
    """One general, by its manifest."""

    name: str
    description: str
    engine: str
    model: str | None
    mode: str
    hears: list[str]
    schedules: dict[str, str]
    concurrency: int
    timeoutSeconds: float
    problems: list[str]
    manifest: dict[str, Any] | None


class HealthState(TypedDict):
    """How the machine is."""

    level: str
    reason: str


class Injected(TypedDict):
    """The event is durable."""

    id: str
    accepted: bool


class JournalLine(TypedDict):
    """One line of the journal."""

    ts: str
    type: str
    actor: str
    data: dict[str, Any]


class LimitState(TypedDict):
    """One limit, and how much of it is used."""

    name: str
    shown: str
    part: float


MessageDocument = dict[str, Any]


class MessageSummary(TypedDict):
    """One message in a list."""

    id: str
    type: str
    status: str
    created_at: str
    subject: str | None
    title: str | None
    channel: str
    urgency: str


class NewEvent(TypedDict):
    """Something that happened, told by whoever calls."""

    type: str
    payload: NotRequired[dict[str, Any]]
    source: NotRequired[str]
    repo: NotRequired[str | None]
    priority: NotRequired[Literal["high", "normal", "low"]]
    id: NotRequired[str | None]


class OpenQuestion(TypedDict):
    """A task that waits for a person."""

    taskId: str
    general: str
    question: str
    choices: list[str]
    deadline: str | None


class Passed(TypedDict):
    """What was asked for is durable, and done when the king comes to it: at once, or when the court is up."""

    eventId: str
    taskId: str


class QueueState(TypedDict):
    """One queue, by its own words for the states."""

    name: str
    counts: dict[str, int]
    oldestSeconds: float


ReportDocument = dict[str, Any]


class Resent(TypedDict):
    """The message waits to be sent once more."""

    id: str


class SaidItem(TypedDict):
    """One thing a soldier said or did."""

    kind: str
    text: str


class SoldierAtWork(TypedDict):
    """A run under way, and the last lines it said."""

    id: str
    taskId: str
    general: str
    engine: str
    pid: int | None
    seconds: float | None
    said: NotRequired[list[str]]


class SoldierState(TypedDict):
    """One run of an agent for a task."""

    id: str
    engine: str
    model: str | None
    pid: int | None
    alive: bool
    startedAt: str | None


class Spent(TypedDict):
    """What a task cost, by the ledger: all its runs together."""

    costUsd: float
    tokens: int
    runs: int


class SpentBy(TypedDict):
    """What somebody spent."""

    costUsd: NotRequired[float]
    tokens: NotRequired[int]
    runs: NotRequired[int]


StatsDocument = dict[str, Any]


class StoryLine(TypedDict):
    """One thing that happened."""

    ts: str
    who: str
    what: str
    where: str


class TaskState(TypedDict):
    """Everything known of a task. ``task`` and ``result`` are the documents of the court as they lie in their files."""

    task: dict[str, Any]
    problem: str | None
    lockedBy: str | None
    result: dict[str, Any] | None
    question: dict[str, Any] | None
    soldiers: list[SoldierState]
    spent: Spent
    actions: list[str]


class TaskSummary(TypedDict):
    """One task in a list."""

    id: str
    type: str
    status: str
    created_at: str
    subject: str | None
    title: str | None
    event_id: str
    target_general: str
    priority: str


class TranscriptPart(TypedDict):
    """A part of a transcript. Ask again with ``nextOffset`` for what follows."""

    soldierId: str | None
    engine: str | None
    soldiers: list[str]
    items: list[SaidItem]
    nextOffset: int
    size: int
    alive: bool


class Trouble(TypedDict):
    """Something a person should look at."""

    what: str
    why: str
