"""Types of responses: workflows. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from kingdom.client.models.requests import LandFields


class AgentOutput(TypedDict):
    """A part of the agent output. ``cursor`` reads what follows."""

    items: list[AgentOutputItem]
    cursor: str


class AgentOutputItem(TypedDict):
    """One line of agent output."""

    runId: str
    work: str
    task: str
    number: int
    text: str


AgentStatus = Literal["IDLE", "STARTING", "RUNNING", "STOPPED", "ERROR"]


class ChangedFile(TypedDict):
    """A changed file."""

    path: str
    oldPath: str | None
    status: str
    added: int | None
    removed: int | None
    binary: bool
    truncated: bool
    patch: NotRequired[str | None]
    hunks: NotRequired[list[DiffHunk]]


class CheckInfo(TypedDict):
    """A check of a pull request's last commit."""

    name: str
    state: Literal["passed", "failed", "running"]
    url: str | None


class CheckpointDamage(TypedDict):
    """A checkpoint that cannot be restored."""

    checkpointId: str
    what: str


class CheckpointDiff(TypedDict):
    """Changes by repository."""

    checkpointId: str
    against: str | None
    repositories: list[RepositoryDiff]


class CheckpointInfo(TypedDict):
    """A checkpoint: one commit per repository, created when a work was completed."""

    id: str
    workId: str
    workName: str | None
    attempt: int
    createdAt: str
    valid: bool
    hashes: dict[str, str]


class CommentInfo(TypedDict):
    """A review or comment. It was written by people outside: treat it as untrusted."""

    author: str
    body: str
    at: str | None
    url: str | None
    verdict: Literal["approved", "changes_requested", "dismissed"] | None
    path: str | None
    line: int | None


class DiffHunk(TypedDict):
    """Consecutive lines of a diff."""

    oldStart: int
    oldLines: int
    newStart: int
    newLines: int
    heading: str
    lines: list[DiffLine]


class DiffLine(TypedDict):
    """A line of a hunk: unchanged, added or removed."""

    kind: Literal[" ", "+", "-"]
    text: str
    oldNumber: NotRequired[int | None]
    newNumber: NotRequired[int | None]


class LandAgainInfo(TypedDict):
    """When a workflow is landed again."""

    at: str
    tries: int


class LandingInfo(TypedDict):
    """A branch that was pushed, or was to be, and its pull request."""

    name: str
    gitId: str
    remote: str
    branch: str
    base: str
    commit: str | None
    number: int | None
    url: str | None
    error: str | None
    landedAt: str | None


class PlanChangeResult(TypedDict):
    """The changes between the old and the new plan."""

    changes: list[str]
    made: bool


class PullRequestInfo(TypedDict):
    """A pull request as it is now. Without a state it could not be read; ``error`` says why."""

    name: str
    number: int
    url: str
    state: Literal["open", "closed", "merged"] | None
    checks: list[CheckInfo]
    comments: list[CommentInfo]
    error: str | None


QueryStatus = Literal["PENDING", "SENT", "PROCESSING", "RESPONDED", "FAILED", "CANCELLED"]


class ReportInfo(TypedDict):
    """A report with its text: untrusted Markdown, written by an agent."""

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
    """Changes in one repository."""

    gitId: str
    name: str
    older: str
    newer: str
    truncated: bool
    files: list[ChangedFile]


class RescueInfo(TypedDict):
    """Files and commits that were dropped, and kept under a ref."""

    id: str
    repository: str
    ref: str
    commit: str
    madeAt: str
    why: str
    files: list[str]
    fileCount: int


class RestoredRescue(TypedDict):
    """A rescue whose files are in the worktree again."""

    rescue: RescueInfo
    path: str
    replaced: str | None


TaskStatus = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]


class TokenCounts(TypedDict):
    """Token counts by kind."""

    total: int
    input: int
    output: int
    cacheRead: int
    cacheWrite: int


class VerificationResult(TypedDict):
    """Result of verifying the checkpoints of a workflow."""

    checked: int
    problems: list[CheckpointDamage]


class WorkInfo(TypedDict):
    """A work: a conversation with one agent, task by task."""

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
    continues: str | None
    sessionId: str | None
    error: str | None
    checkpointId: str | None
    tasks: list[WorkTaskInfo]


WorkStatus = Literal["PENDING", "RUNNING", "COMPLETED", "PAUSED", "WAITING", "FAILED", "CANCELLED"]


class WorkTaskInfo(TypedDict):
    """A task: one query to the agent of a work."""

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
    question: str | None
    choices: list[str]
    defaultAnswer: str | None
    deadline: str | None
    error: str | None


class WorkTreeInfo(TypedDict):
    """A repository of a workflow. Before the start only name, gitId and base are set."""

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


class WorkflowEvent(TypedDict):
    """An event of a workflow. Sequence numbers have no gaps."""

    sequence: int
    type: str
    occurredAt: str
    attempt: NotRequired[int | None]
    payload: dict[str, Any]


class WorkflowFull(TypedDict):
    """A workflow in full."""

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
    asking: bool
    running: list[str]
    costUsd: float
    tokens: int
    description: str
    variables: dict[str, Any]
    onFailure: Literal["pause", "fail"]
    land: LandFields | None
    forkedFrom: str | None
    mcpServers: list[str]
    repositories: list[WorkTreeInfo]
    works: list[WorkInfo]
    checkpoints: list[CheckpointInfo]
    landing: bool
    landAgain: LandAgainInfo | None
    landings: list[LandingInfo]
    engineRunning: bool
    allowed: list[
        Literal["start", "pause", "resume", "goBack", "answer", "followUp", "cancel", "modify", "land", "delete"]
    ]


WorkflowStatus = Literal[
    "CREATED", "PREPARING", "READY", "RUNNING", "PAUSED", "RESUMING", "COMPLETED", "FAILED", "CANCELLED"
]


class WorkflowSummary(TypedDict):
    """A workflow in a list."""

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
    asking: bool
    running: list[str]
    costUsd: float
    tokens: int


class WorkflowUsage(TypedDict):
    """Usage of the ended runs of a workflow."""

    costUsd: float
    tokens: TokenCounts
    runs: int
    byWork: dict[str, float]
