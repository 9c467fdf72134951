"""The types of workflows. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from kingdom.client.models.shared import GitRefBody, McpServerRefBody, TaskBody, WorkBody


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


class Damage(TypedDict):
    """A checkpoint that cannot be gone back to."""

    checkpointId: str
    what: str


class Diff(TypedDict):
    """What changed, by repository."""

    checkpointId: str
    against: str | None
    repositories: list[RepositoryDiff]


class ForkBody(TypedDict):
    """Where to fork from."""

    checkpointId: str
    name: NotRequired[str | None]


class Hunk(TypedDict):
    """Lines that stand together."""

    oldStart: int
    oldLines: int
    newStart: int
    newLines: int
    heading: str
    lines: list[Line]


class Line(TypedDict):
    """A line of a hunk: one that stays, is new, or is gone."""

    kind: Literal[" ", "+", "-"]
    text: str
    oldNumber: NotRequired[int | None]
    newNumber: NotRequired[int | None]


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


class PauseBody(TypedDict):
    """Why it is paused."""

    reason: NotRequired[str | None]


class PlanBody(TypedDict):
    """The plan as it shall be. Works and tasks are known by their names."""

    yaml: str
    dryRun: NotRequired[bool]


class PlanChanged(TypedDict):
    """What changes."""

    changes: list[str]
    made: bool


QueryStatus = Literal["PENDING", "SENT", "PROCESSING", "RESPONDED", "FAILED", "CANCELLED"]


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


class ResumeBody(TypedDict):
    """Where to go on from: the last checkpoint, a chosen one, or (`retry`) where it stopped."""

    checkpointId: NotRequired[str | None]
    retry: NotRequired[bool]


class SetGitRefs(TypedDict):
    """Other repositories."""

    type: Literal["setGitRefs"]
    gitRefs: list[GitRefBody]


class SetMcpServerRefs(TypedDict):
    """Other MCP servers, from the next work on."""

    type: Literal["setMcpServerRefs"]
    mcpServerRefs: list[McpServerRefBody]


class StartBody(TypedDict):
    """How to start."""

    prepareOnly: NotRequired[bool]


TaskStatus = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]


class TaskValues(TypedDict):
    """What is to be different about a task."""

    name: NotRequired[str | None]
    query: NotRequired[str | None]
    outline: NotRequired[list[str] | None]
    retries: NotRequired[int | None]


class TemplateOfWorkflowBody(TypedDict):
    """What the template shall be called."""

    name: str
    description: NotRequired[str | None]


class TokenCounts(TypedDict):
    """Tokens by their kind."""

    total: int
    input: int
    output: int
    cacheRead: int
    cacheWrite: int


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
