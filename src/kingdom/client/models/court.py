"""Types of responses: court. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class ActiveAlert(TypedDict):
    """An alert of the chamberlain that is not over."""

    name: str
    text: str


class Alive(TypedDict):
    """The server is alive."""

    status: NotRequired[Literal["alive"]]


class BudgetState(TypedDict):
    """Spending of today and this month, by general, and all limits."""

    timezone: str
    day: SpendingInfo
    month: SpendingInfo
    dayByGeneral: dict[str, SpendingInfo]
    monthByGeneral: dict[str, SpendingInfo]
    limits: list[LimitState]


class BudgetSummary(TypedDict):
    """The budget of the court."""

    status: str
    spent: list[str]


class CommandAccepted(TypedDict):
    """A command that was stored durably. The king executes it at once, or when the court is started."""

    eventId: str
    taskId: str


class ConditionState(TypedDict):
    """How the court is."""

    level: Literal["ok", "limited", "attention", "down"]
    reasons: list[str]


class CostState(TypedDict):
    """Spending and limits."""

    dayUsd: float
    dayTokens: int
    monthUsd: float
    limits: list[LimitState]


CourtEventDocument = dict[str, Any]


class CourtEventState(TypedDict):
    """An event. ``event`` is the document as stored."""

    event: dict[str, Any]
    shownStatus: str
    reason: str | None
    subject: str | None
    title: str | None
    linked: list[DocumentLink]


class CourtProblem(TypedDict):
    """A problem that needs attention."""

    what: str
    why: str
    count: NotRequired[int]
    at: NotRequired[str | None]


class CourtState(TypedDict):
    """The state of the court."""

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
    problems: list[CourtProblem]
    condition: ConditionState
    health: HealthState
    budget: BudgetSummary
    alerts: list[ActiveAlert]
    attention: list[str]
    timezone: str
    machines: list[MachineState]
    cost: CostState
    recent: list[JournalLine]


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


class DocumentLink(TypedDict):
    """Another document that belongs to one."""

    stream: Literal["events", "tasks", "messages"]
    id: str
    type: str
    status: str
    title: str | None
    createdAt: str


EventSchemaDocument = dict[str, Any]


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


class GeneralRecord(TypedDict):
    """What a general did and spent, and when it runs next."""

    planned: list[PlannedRun]
    days: int
    outcomes: dict[str, int]
    successRate: float | None
    durations: TaskDurations
    dayUsd: float
    monthUsd: float
    monthTokens: int
    monthRuns: int
    limits: list[LimitUse]


class GeneralState(TypedDict):
    """A general and its manifest."""

    name: str
    enabled: bool
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


class HealthInfo(TypedDict):
    """Health of the court, and whether this server runs the workflow engine."""

    level: str
    reason: str
    court: bool
    running: bool
    roles: list[RoleState]
    workflowEngine: bool


class HealthState(TypedDict):
    """The health level that applies now."""

    level: str
    reason: str


class HistoryPoint(TypedDict):
    """The figures of one step of a period."""

    start: str
    events: int
    tasks: TaskFigures
    costByGeneral: dict[str, float]
    costByModel: dict[str, float]
    queueAgeSeconds: dict[str, float]


class InjectedEvent(TypedDict):
    """Result of injecting an event. The event is stored durably."""

    id: str
    accepted: bool


class JournalLine(TypedDict):
    """A line of the journal."""

    ts: str
    type: str
    actor: str
    data: dict[str, Any]


class KnownEventType(TypedDict):
    """A type of events that a source emits, a general subscribes to, or the queue holds."""

    type: str
    meaning: str
    priority: Literal["high", "normal", "low"]
    generals: list[str]


class LimitState(TypedDict):
    """A limit and its usage."""

    name: str
    shown: str
    part: float


class LimitUse(TypedDict):
    """A limit of a general, and how much of it is used."""

    name: str
    shown: str
    part: float


class LoggedOut(TypedDict):
    """The browser is logged out."""

    loggedOut: NotRequired[Literal[True]]


class MachineSoldier(TypedDict):
    """A soldier that runs on a machine."""

    id: str
    taskId: str
    general: str
    engine: NotRequired[str]
    startedAt: NotRequired[float | None]


class MachineState(TypedDict):
    """A machine of a court on several."""

    name: str
    state: str
    here: bool
    joined: bool
    silentSeconds: float
    clockSkewSeconds: float
    version: NotRequired[str]
    generals: NotRequired[list[str]]
    soldiers: NotRequired[list[MachineSoldier]]
    slots: NotRequired[int | None]
    load: NotRequired[float | None]
    cores: NotRequired[int | None]


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


class ModelSpending(TypedDict):
    """What the runs of one model cost."""

    costUsd: float
    tokens: int
    runs: int


class NewToken(TypedDict):
    """A token that was created. Its value is shown this once."""

    name: str
    role: Literal["look", "answer", "operate", "own"]
    token: str
    path: str


class OpenQuestion(TypedDict):
    """A question of a task that waits for a person."""

    taskId: str
    general: str
    question: str
    choices: list[str]
    deadline: str | None


class PayloadPreview(TypedDict):
    """The payload of an event; cut if it is too long."""

    value: dict[str, Any] | None
    text: str | None
    size: int


class PlannedRun(TypedDict):
    """When a schedule runs next."""

    name: str
    cron: str
    timezone: str
    nextAt: str
    isDue: bool
    last: str | None


class QueueState(TypedDict):
    """A queue and its number of documents by state."""

    name: str
    counts: dict[str, int]
    oldestSeconds: float


class Ready(TypedDict):
    """The server is ready: everything it depends on responds."""

    status: NotRequired[Literal["ready"]]
    checked: list[str]


class RelatedTask(TypedDict):
    """Another task that belongs to one."""

    taskId: str
    relation: Literal["retryOf", "retriedAs", "resumes", "resumedAs"]


ReportDocument = dict[str, Any]


class Requeued(TypedDict):
    """Result of requeueing dead letters."""

    requeued: int
    skipped: list[str]


class ResentMessage(TypedDict):
    """A message that was queued again."""

    id: str


class RevokedToken(TypedDict):
    """A token that was revoked."""

    name: str


class RoleState(TypedDict):
    """A role of the court."""

    name: str
    state: str
    pid: int | None
    heartbeatSeconds: float | None
    deaths: int
    reason: str


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


class Setting(TypedDict):
    """One setting."""

    key: str
    value: str
    source: Literal["file", "default"]
    description: str


class SettingsFile(TypedDict):
    """The settings of one file, in the order of the reference."""

    name: str
    path: str
    exists: bool
    problems: list[str]
    settings: NotRequired[list[Setting]]


class SoldierAtWork(TypedDict):
    """A running soldier and its latest output."""

    id: str
    taskId: str
    general: str
    engine: str
    pid: int | None
    seconds: float | None
    machine: NotRequired[str | None]
    said: NotRequired[list[str]]


class SoldierState(TypedDict):
    """A soldier: one run of an agent for a task."""

    id: str
    engine: str
    model: str | None
    pid: int | None
    alive: bool
    startedAt: str | None


class SpendingInfo(TypedDict):
    """Spending."""

    costUsd: NotRequired[float]
    tokens: NotRequired[int]
    runs: NotRequired[int]


StatsDocument = dict[str, Any]


class StatsHistory(TypedDict):
    """Statistics of a period in equal steps."""

    since: str
    until: str
    stepSeconds: int
    timezone: str
    general: str | None
    points: list[HistoryPoint]
    total: TaskFigures
    generals: dict[str, TaskFigures]
    models: dict[str, ModelSpending]


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


class TaskDurations(TypedDict):
    """How long the latest tasks took, in seconds."""

    tasks: int
    median: float | None
    p95: float | None
    longest: float | None


class TaskFigures(TypedDict):
    """Tasks of a period: how many, how they ended, how long they took, what they cost."""

    created: int
    completed: int
    failed: int
    cancelled: int
    needsHuman: int
    timeouts: int
    successRate: float | None
    p50Seconds: float | None
    p95Seconds: float | None
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


class TokenInfo(TypedDict):
    """The token of a person, without its value."""

    name: str
    role: Literal["look", "answer", "operate", "own"]
    createdAt: str
    lastUsedAt: str | None


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
