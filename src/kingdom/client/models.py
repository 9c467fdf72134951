"""What goes to the server and comes back. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

T = TypeVar("T")


class Page(TypedDict, Generic[T]):
    """One page of a list."""

    items: list[T]
    nextCursor: str | None
    total: NotRequired[int]


class AddTask(TypedDict):
    """A new task of a work; `at` is its place, the end by default."""

    type: Literal["addTask"]
    workId: str
    task: TaskBody
    at: NotRequired[int | None]


class AddWork(TypedDict):
    """A new work; `at` is its place, the end by default."""

    type: Literal["addWork"]
    work: WorkBody
    at: NotRequired[int | None]


AgentStatus = Literal["IDLE", "STARTING", "RUNNING", "STOPPED", "ERROR"]


class Alive(TypedDict):
    """The server answers."""

    status: NotRequired[Literal["alive"]]


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


class ChangedFile(TypedDict):
    """A file that changed."""

    path: str
    oldPath: str | None
    status: str
    added: int | None
    removed: int | None
    binary: bool
    truncated: bool
    patch: NotRequired[str | None]
    hunks: NotRequired[list[Hunk]]


class Checkpoint(TypedDict):
    """A commit of each repository, made when a work was done."""

    id: str
    workId: str
    workName: str | None
    attempt: int
    createdAt: str
    valid: bool
    hashes: dict[str, str]


class ConvertBody(TypedDict):
    """A template in one of its forms."""

    yaml: NotRequired[str | None]
    fields: NotRequired[TemplateBody | None]


class Converted(TypedDict):
    """A template in both forms."""

    fields: TemplateFields
    yaml: str


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


class Damage(TypedDict):
    """A checkpoint that cannot be gone back to."""

    checkpointId: str
    what: str


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


class Deleted(TypedDict):
    """What is gone."""

    id: str


class Diff(TypedDict):
    """What changed, by repository."""

    checkpointId: str
    against: str | None
    repositories: list[RepositoryDiff]


class ErrorBody(TypedDict):
    """What was wrong, where, and what to do."""

    code: str
    message: str
    details: NotRequired[list[Any]]


EventDocument = dict[str, Any]


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


class Failed(TypedDict):
    """An answer to a request that was refused or failed."""

    success: NotRequired[Literal[False]]
    error: ErrorBody
    timestamp: NotRequired[str]


class ForkBody(TypedDict):
    """Where to fork from."""

    checkpointId: str
    name: NotRequired[str | None]


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


class Git(TypedDict):
    """A repository."""

    id: str
    name: str
    url: str
    usedBy: list[str]


class GitBody(TypedDict):
    """A repository to register."""

    name: str
    url: str


class GitRefBody(TypedDict):
    """A repository of a template or workflow."""

    gitId: str
    base: NotRequired[str | None]


class GitRefFields(TypedDict):
    """A repository of a template or workflow."""

    gitId: str
    base: NotRequired[str | None]


class Health(TypedDict):
    """How the court is, and whether workflows are worked on from here."""

    level: str
    reason: str
    court: bool
    running: bool
    roles: list[RoleState]
    workflowEngine: bool


class HealthState(TypedDict):
    """How the machine is."""

    level: str
    reason: str


class Hunk(TypedDict):
    """Lines that stand together."""

    oldStart: int
    oldLines: int
    newStart: int
    newLines: int
    heading: str
    lines: list[Line]


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


class Line(TypedDict):
    """A line of a hunk: one that stays, is new, or is gone."""

    kind: Literal[" ", "+", "-"]
    text: str
    oldNumber: NotRequired[int | None]
    newNumber: NotRequired[int | None]


class McpServer(TypedDict):
    """An MCP server: a command to run, or a URL to speak to."""

    id: str
    name: str
    command: list[str]
    url: str | None
    env: dict[str, str]
    usedBy: list[str]


class McpServerBody(TypedDict):
    """An MCP server to register: a command or a URL, one of them."""

    name: str
    command: NotRequired[list[str]]
    url: NotRequired[str | None]
    env: NotRequired[dict[str, str]]


class McpServerRefBody(TypedDict):
    """An MCP server of a template, workflow or work."""

    mcpServerId: str
    env: NotRequired[dict[str, Any]]


class McpServerRefFields(TypedDict):
    """An MCP server of a template, workflow or work."""

    mcpServerId: str
    env: NotRequired[dict[str, str]]


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


class ModifyBody(TypedDict):
    """Changes of a plan, made one after the other: all of them, or none."""

    changes: list[
        AddTask
        | RemoveTask
        | UpdateTask
        | ReorderTasks
        | AddWork
        | RemoveWork
        | UpdateWork
        | ReorderWorks
        | SetGitRefs
        | SetMcpServerRefs
    ]


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


class PauseBody(TypedDict):
    """Why it is paused."""

    reason: NotRequired[str | None]


class Payload(TypedDict):
    """What an event carries, as far as it is not too long."""

    value: dict[str, Any] | None
    text: str | None
    size: int


class PlanBody(TypedDict):
    """The plan as it shall be. Works and tasks are known by their names."""

    yaml: str
    dryRun: NotRequired[bool]


class PlanChanged(TypedDict):
    """What changes."""

    changes: list[str]
    made: bool


QueryStatus = Literal["PENDING", "SENT", "PROCESSING", "RESPONDED", "FAILED", "CANCELLED"]


class QueueState(TypedDict):
    """One queue, by its own words for the states."""

    name: str
    counts: dict[str, int]
    oldestSeconds: float


class Ready(TypedDict):
    """Everything the server needs answers."""

    status: NotRequired[Literal["ready"]]
    checked: list[str]


class RemoveTask(TypedDict):
    """A task less."""

    type: Literal["removeTask"]
    taskId: str


class RemoveWork(TypedDict):
    """A work less."""

    type: Literal["removeWork"]
    workId: str


class ReorderTasks(TypedDict):
    """The tasks of a work in another order: all that have not begun."""

    type: Literal["reorderTasks"]
    workId: str
    taskIds: list[str]


class ReorderWorks(TypedDict):
    """The works in another order: all that have not begun."""

    type: Literal["reorderWorks"]
    workIds: list[str]


class Report(TypedDict):
    """A report with its text: Markdown that an agent wrote, not to be trusted."""

    id: str
    workId: str
    taskId: str
    work: str | None
    task: str | None
    outline: list[str]
    status: ReportStatus
    error: NotRequired[str | None]
    text: str


ReportDocument = dict[str, Any]


ReportStatus = Literal["NOT_REQUIRED", "PENDING", "GENERATING", "COMPLETED", "FAILED", "CANCELLED"]


class ReportSummary(TypedDict):
    """A report of a task."""

    id: str
    workId: str
    taskId: str
    work: str | None
    task: str | None
    outline: list[str]
    status: ReportStatus
    error: NotRequired[str | None]


class RepositoryDiff(TypedDict):
    """What changed in one repository."""

    gitId: str
    name: str
    older: str
    newer: str
    truncated: bool
    files: list[ChangedFile]


class Requeue(TypedDict):
    """Which dead letters get another chance."""

    ids: list[str]


class Requeued(TypedDict):
    """What was given another chance."""

    requeued: int
    skipped: list[str]


class Resent(TypedDict):
    """The message waits to be sent once more."""

    id: str


class ResumeBody(TypedDict):
    """Where to go on from: the last checkpoint, a chosen one, or (`retry`) where it stopped."""

    checkpointId: NotRequired[str | None]
    retry: NotRequired[bool]


class RoleState(TypedDict):
    """One role."""

    name: str
    state: str
    pid: int | None
    heartbeatSeconds: float | None
    deaths: int
    reason: str


class SaidItem(TypedDict):
    """One thing a soldier said or did."""

    kind: str
    text: str


class Sample(TypedDict):
    """How a stream was at a moment, and what happened since the sample before."""

    at: str
    seconds: float
    pending: int
    processing: int
    dead: int
    arrived: int
    finished: int


class Session(TypedDict):
    """Who asks, and what a page needs to begin."""

    csrfToken: str
    identity: Literal["bearer", "session"]
    user: str
    version: str
    root: str
    court: bool
    locale: str


class SetGitRefs(TypedDict):
    """Other repositories."""

    type: Literal["setGitRefs"]
    gitRefs: list[GitRefBody]


class SetMcpServerRefs(TypedDict):
    """Other MCP servers, from the next work on."""

    type: Literal["setMcpServerRefs"]
    mcpServerRefs: list[McpServerRefBody]


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


class StartBody(TypedDict):
    """How to start."""

    prepareOnly: NotRequired[bool]


StatsDocument = dict[str, Any]


class StoryLine(TypedDict):
    """One thing that happened."""

    ts: str
    who: str
    what: str
    where: str


class StreamState(TypedDict):
    """How full one stream is, and what came and went in the last minute."""

    stream: str
    pending: int
    processing: int
    dead: int
    oldestPendingSeconds: float
    arrivedPerMinute: float
    finishedPerMinute: float


class Taken(TypedDict):
    """What became of a webhook. It is durable."""

    delivery: str
    outcome: Literal["hint", "events", "ignored"]
    events: list[str]


class TaskBody(TypedDict):
    """A task of a plan."""

    name: str
    query: str
    outline: NotRequired[list[str]]
    retries: NotRequired[int]


class TaskFields(TypedDict):
    """A task of a plan."""

    name: str
    query: str
    outline: NotRequired[list[str]]
    retries: NotRequired[int]


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


TaskStatus = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]


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


class TaskValues(TypedDict):
    """What is to be different about a task."""

    name: NotRequired[str | None]
    query: NotRequired[str | None]
    outline: NotRequired[list[str] | None]
    retries: NotRequired[int | None]


class Template(TypedDict):
    """A template that is kept."""

    name: str
    description: NotRequired[str]
    gitRefs: NotRequired[list[GitRefFields]]
    mcpServerRefs: NotRequired[list[McpServerRefFields]]
    onFailure: NotRequired[Literal["pause", "fail"]]
    works: list[WorkFields]
    id: str
    version: int


class TemplateBody(TypedDict):
    """A plan with a name."""

    name: str
    description: NotRequired[str]
    gitRefs: NotRequired[list[GitRefBody]]
    mcpServerRefs: NotRequired[list[McpServerRefBody]]
    onFailure: NotRequired[Literal["pause", "fail"]]
    works: list[WorkBody]


class TemplateFields(TypedDict):
    """A plan with a name."""

    name: str
    description: NotRequired[str]
    gitRefs: NotRequired[list[GitRefFields]]
    mcpServerRefs: NotRequired[list[McpServerRefFields]]
    onFailure: NotRequired[Literal["pause", "fail"]]
    works: list[WorkFields]


class TemplateOfWorkflowBody(TypedDict):
    """What the template shall be called."""

    name: str
    description: NotRequired[str | None]


class TemplateSummary(TypedDict):
    """What a list has of a template."""

    id: str
    name: str
    description: str
    works: list[str]
    tasks: int


class TokenCounts(TypedDict):
    """Tokens by their kind."""

    total: int
    input: int
    output: int
    cacheRead: int
    cacheWrite: int


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


class UpdateTask(TypedDict):
    """A task with other values."""

    type: Literal["updateTask"]
    taskId: str
    values: TaskValues


class UpdateWork(TypedDict):
    """A work with other values."""

    type: Literal["updateWork"]
    workId: str
    values: WorkValues


class Usage(TypedDict):
    """What the runs of a workflow that have ended used."""

    costUsd: float
    tokens: TokenCounts
    runs: int
    byWork: dict[str, float]


class Verified(TypedDict):
    """Whether every checkpoint of a workflow can be gone back to."""

    checked: int
    problems: list[Damage]


class Word(TypedDict):
    """Something an agent said or did, as text."""

    runId: str
    work: str
    task: str
    number: int
    text: str


class Words(TypedDict):
    """Some of what was said; ``cursor`` gets what is said from here on."""

    items: list[Word]
    cursor: str


class Work(TypedDict):
    """A conversation with one agent, task after task."""

    id: str
    name: str
    sequence: int
    status: WorkStatus
    agent: AgentStatus
    engine: str
    model: str | None
    attempt: int
    after: list[str]
    merge: bool
    pauseAfter: bool
    sessionId: str | None
    error: str | None
    checkpointId: str | None
    tasks: list[WorkTask]


class WorkBody(TypedDict):
    """A work of a plan."""

    name: str
    tasks: list[TaskBody]
    engine: NotRequired[str]
    model: NotRequired[str | None]
    engineOptions: NotRequired[dict[str, Any]]
    mcpServerRefs: NotRequired[list[McpServerRefBody]]
    after: NotRequired[list[str]]
    merge: NotRequired[bool]
    pauseAfter: NotRequired[bool]


class WorkFields(TypedDict):
    """A work of a plan."""

    name: str
    tasks: list[TaskFields]
    engine: NotRequired[str]
    model: NotRequired[str | None]
    engineOptions: NotRequired[dict[str, Any]]
    mcpServerRefs: NotRequired[list[McpServerRefFields]]
    after: NotRequired[list[str]]
    merge: NotRequired[bool]
    pauseAfter: NotRequired[bool]


WorkStatus = Literal["PENDING", "RUNNING", "COMPLETED", "PAUSED", "FAILED", "CANCELLED"]


class WorkTask(TypedDict):
    """One query to the agent of a work."""

    id: str
    name: str
    order: int
    status: TaskStatus
    query: str
    queryStatus: QueryStatus
    outline: list[str]
    reportStatus: ReportStatus
    reportId: str | None
    reportPath: str | None
    attempt: int
    retries: int
    response: str | None
    error: str | None


class WorkTree(TypedDict):
    """A repository of a workflow; before it is started only name, gitId and base are known."""

    id: NotRequired[str | None]
    name: str
    gitId: str
    workId: NotRequired[str | None]
    status: NotRequired[WorkTreeStatus | None]
    base: NotRequired[str | None]
    branch: NotRequired[str | None]
    path: NotRequired[str | None]
    error: NotRequired[str | None]


WorkTreeStatus = Literal["CREATING", "READY", "FAILED", "PENDING_RELEASE", "RELEASED"]


class WorkValues(TypedDict):
    """What is to be different about a work."""

    name: NotRequired[str | None]
    engine: NotRequired[str | None]
    model: NotRequired[str | None]
    engineOptions: NotRequired[dict[str, Any] | None]
    mcpServerRefs: NotRequired[list[McpServerRefBody] | None]
    after: NotRequired[list[str] | None]
    merge: NotRequired[bool | None]
    pauseAfter: NotRequired[bool | None]


class WorkflowBody(TypedDict):
    """A workflow to make from a template; what is given here stands in the place of the template's."""

    templateId: str
    name: NotRequired[str | None]
    issueKey: NotRequired[str | None]
    description: NotRequired[str | None]
    variables: NotRequired[dict[str, Any]]
    gitRefs: NotRequired[list[GitRefBody] | None]
    mcpServerRefs: NotRequired[list[McpServerRefBody] | None]
    onFailure: NotRequired[Literal["pause", "fail"] | None]


class WorkflowEvent(TypedDict):
    """Something that happened to a workflow. Sequence numbers have no gap."""

    sequence: int
    type: str
    occurredAt: str
    payload: dict[str, Any]


class WorkflowFull(TypedDict):
    """Everything about a workflow."""

    id: str
    name: str
    status: WorkflowStatus
    reason: str | None
    issueKey: str | None
    templateId: str | None
    createdAt: str
    worksTotal: int
    worksCompleted: int
    worksFailed: int
    running: list[str]
    costUsd: float
    tokens: int
    description: str
    variables: dict[str, Any]
    onFailure: Literal["pause", "fail"]
    forkedFrom: str | None
    mcpServers: list[str]
    repositories: list[WorkTree]
    works: list[Work]
    checkpoints: list[Checkpoint]
    allowed: list[Literal["start", "pause", "resume", "cancel", "modify", "delete"]]


WorkflowStatus = Literal[
    "CREATED", "PREPARING", "READY", "RUNNING", "PAUSED", "RESUMING", "COMPLETED", "FAILED", "CANCELLED"
]


class WorkflowSummary(TypedDict):
    """What a list has of a workflow."""

    id: str
    name: str
    status: WorkflowStatus
    reason: str | None
    issueKey: str | None
    templateId: str | None
    createdAt: str
    worksTotal: int
    worksCompleted: int
    worksFailed: int
    running: list[str]
    costUsd: float
    tokens: int


class YamlBody(TypedDict):
    """A template as the text of a YAML file."""

    yaml: str


class YamlText(TypedDict):
    """The text of a YAML file."""

    yaml: str
