"""Types of requests. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class AddTaskChange(TypedDict):
    """Add a task to a work, at position `at` (default: the end)."""

    type: Literal["addTask"]
    workId: str
    task: TaskBody
    at: NotRequired[int | None]


class AddWorkChange(TypedDict):
    """Add a work, at position `at` (default: the end)."""

    type: Literal["addWork"]
    work: WorkBody
    at: NotRequired[int | None]


class Deleted(TypedDict):
    """Id of the deleted item."""

    id: str


class ErrorBody(TypedDict):
    """What is wrong, where, and what to do."""

    code: str
    message: str
    details: NotRequired[list[Any]]


class Failed(TypedDict):
    """An error response."""

    success: NotRequired[Literal[False]]
    error: ErrorBody
    timestamp: NotRequired[str]


class GitRefBody(TypedDict):
    """Reference to a repository."""

    gitId: str
    base: NotRequired[str | None]


GitRefFields = GitRefBody


class LandFields(TypedDict):
    """What happens with the result when a workflow is completed."""

    how: NotRequired[Literal["pull-request", "push"]]
    squash: NotRequired[Literal["work", "all", "none"]]
    branch: NotRequired[str | None]
    title: NotRequired[str | None]
    body: NotRequired[str | None]
    draft: NotRequired[bool]


class McpServerRefBody(TypedDict):
    """Reference to an MCP server, with environment overrides."""

    mcpServerId: str
    env: NotRequired[dict[str, str]]


McpServerRefFields = McpServerRefBody


class OpenQuestion(TypedDict):
    """A question of a task that waits for a person."""

    taskId: str
    general: str
    question: str
    choices: list[str]
    deadline: str | None


class RemoveTaskChange(TypedDict):
    """Remove a task."""

    type: Literal["removeTask"]
    taskId: str


class RemoveWorkChange(TypedDict):
    """Remove a work."""

    type: Literal["removeWork"]
    workId: str


class ReorderTasksChange(TypedDict):
    """Reorder the tasks of a work. List all tasks that have not started."""

    type: Literal["reorderTasks"]
    workId: str
    taskIds: list[str]


class ReorderWorksChange(TypedDict):
    """Reorder the works. List all works that have not started."""

    type: Literal["reorderWorks"]
    workIds: list[str]


class RoleState(TypedDict):
    """A role of the court."""

    name: str
    state: str
    pid: int | None
    heartbeatSeconds: float | None
    deaths: int
    reason: str


class SetDetailsChange(TypedDict):
    """Change the name and the description."""

    type: Literal["setDetails"]
    name: str
    description: NotRequired[str]


class SetGitRefsChange(TypedDict):
    """Replace the repositories of the workflow."""

    type: Literal["setGitRefs"]
    gitRefs: list[GitRefBody]


class SetLandPlanChange(TypedDict):
    """Change how the workflow is landed when it is completed."""

    type: Literal["setLandPlan"]
    land: LandFields | None


class SetMcpServerRefsChange(TypedDict):
    """Replace the MCP servers of the workflow; effective for works that start later."""

    type: Literal["setMcpServerRefs"]
    mcpServerRefs: list[McpServerRefBody]


class TaskBody(TypedDict):
    """A task in a plan."""

    name: str
    query: str
    outline: NotRequired[list[str]]
    retries: NotRequired[int]


TaskFields = TaskBody


class TaskValues(TypedDict):
    """New values of a task; omitted fields are unchanged."""

    name: NotRequired[str | None]
    query: NotRequired[str | None]
    outline: NotRequired[list[str] | None]
    retries: NotRequired[int | None]


class Template(TypedDict):
    """A stored template."""

    name: str
    description: NotRequired[str]
    gitRefs: NotRequired[list[GitRefFields]]
    mcpServerRefs: NotRequired[list[McpServerRefFields]]
    onFailure: NotRequired[Literal["pause", "fail"]]
    land: NotRequired[LandFields | None]
    works: list[WorkFields]
    id: str
    version: int


class TemplateBody(TypedDict):
    """Fields of a template."""

    name: str
    description: NotRequired[str]
    gitRefs: NotRequired[list[GitRefBody]]
    mcpServerRefs: NotRequired[list[McpServerRefBody]]
    onFailure: NotRequired[Literal["pause", "fail"]]
    land: NotRequired[LandFields | None]
    works: list[WorkBody]


class UpdateTaskChange(TypedDict):
    """Change the values of a task."""

    type: Literal["updateTask"]
    taskId: str
    values: TaskValues


class UpdateWorkChange(TypedDict):
    """Change the values of a work."""

    type: Literal["updateWork"]
    workId: str
    values: WorkValues


class WebhookAccepted(TypedDict):
    """A webhook that was accepted and stored durably."""

    delivery: str
    outcome: Literal["hint", "events", "ignored"]
    events: list[str]


class WorkBody(TypedDict):
    """A work in a plan."""

    name: str
    tasks: list[TaskBody]
    engine: NotRequired[str]
    model: NotRequired[str | None]
    engineOptions: NotRequired[dict[str, Any]]
    mcpServerRefs: NotRequired[list[McpServerRefBody]]
    after: NotRequired[list[str]]
    merge: NotRequired[bool]
    pauseAfter: NotRequired[bool]
    continues: NotRequired[str | None]


WorkFields = WorkBody


class WorkValues(TypedDict):
    """New values of a work; omitted fields are unchanged."""

    name: NotRequired[str | None]
    engine: NotRequired[str | None]
    model: NotRequired[str | None]
    engineOptions: NotRequired[dict[str, Any] | None]
    mcpServerRefs: NotRequired[list[McpServerRefBody] | None]
    after: NotRequired[list[str] | None]
    merge: NotRequired[bool | None]
    pauseAfter: NotRequired[bool | None]
    continues: NotRequired[str | None]


class YamlText(TypedDict):
    """YAML text."""

    yaml: str
