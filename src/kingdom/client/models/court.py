"""Types of responses: court. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from kingdom.client.models.requests import OpenQuestion, RoleState


class ActiveAlert(TypedDict):
    """An alert of the chamberlain that is not over."""

    name: str
    text: str


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


class CourtSummary(TypedDict):
    """The state of a court in levels and counts: what every machine may know."""

    health: str
    budget: str
    questions: int
    alerts: int
    held: int


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


class JournalLine(TypedDict):
    """A line of the journal."""

    ts: str
    type: str
    actor: str
    data: dict[str, Any]


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
    leads: bool
    silentSeconds: float
    clockSkewSeconds: float
    version: NotRequired[str]
    generals: NotRequired[list[str]]
    soldiers: NotRequired[list[MachineSoldier]]
    labels: NotRequired[list[str]]
    slots: NotRequired[int | None]
    load: NotRequired[float | None]
    cores: NotRequired[int | None]
    held: NotRequired[dict[str, Any]]
    court: NotRequired[CourtSummary | None]


class ModelSpending(TypedDict):
    """What the runs of one model cost."""

    costUsd: float
    tokens: int
    runs: int


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


ReportDocument = dict[str, Any]


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
