"""The events of the workflow layer: every type, with exactly the payload it carries.

The names in a payload are the field names in camel case. The aggregate and the attempt of the Work or Task travel
beside the payload.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final, cast, dataclass_transform

CATALOG: Final[dict[str, type[DomainEvent]]] = {}
# Events without a handler: only an interface shows them. All others have one (kingdom.workflow.handlers).
UI_ONLY: Final = frozenset(
    {
        "GitCreated", "McpServerRegistered",
        "WorkflowTemplateCreated", "WorkflowTemplateUpdated", "WorkflowTemplateDeleted",
        "WorkflowCreated", "WorkflowPaused", "WorkflowDeleted", "WorkflowMcpServerRefsUpdated",
        "TaskStarted", "TaskCompleted", "QuerySent", "ReportGenerationStarted",
        "CheckpointCreated", "WorkTreeReleased", "WorkSpaceCreated", "WorkflowLanded", "WorkflowNotLanded",
        "PersonActed",
    }
)  # fmt: skip
_SNAKE: Final = re.compile(r"_([a-z])")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DomainEvent:
    """Something that happened to a workflow, a template, a repository or an MCP server."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.payload() == other.payload()

    def __hash__(self) -> int:
        return hash((type(self), tuple(self.payload().values())))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name, _ in _names(cast("Hashable", type(self))))
        return f"{type(self).__name__}({values})"

    def payload(self) -> dict[str, Any]:
        """Return the payload, with names in camel case."""
        return {camel: getattr(self, name) for name, camel in _names(cast("Hashable", type(self)))}

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> DomainEvent:
        """Return the event of a payload. One of an earlier version may lack fields that have a default."""
        return cls(**{name: payload[camel] for name, camel in _names(cast("Hashable", cls)) if camel in payload})


@cache
def _names(cls: Hashable) -> tuple[tuple[str, str], ...]:
    """Return the field names of an event type, each with its name in the payload."""
    return tuple((field.name, _camel(field.name)) for field in fields(cast("type[DomainEvent]", cls)))


def _camel(name: str) -> str:
    return _SNAKE.sub(lambda match: match.group(1).upper(), name)


@dataclass_transform(frozen_default=True)
def _event(cls: type[DomainEvent]) -> Any:
    """Make the class a frozen dataclass and add it to the catalog."""
    made = dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)  # generating them took half of the import
    CATALOG[made.__name__] = made
    return made


# ── Git, McpServer, WorkflowTemplate ──────────────────────────────────────────────────────────────────────────────


@_event
class GitCreated(DomainEvent):
    """A repository was registered."""

    git_id: str


@_event
class GitDeleted(DomainEvent):
    """A repository was deleted."""

    git_id: str


@_event
class McpServerRegistered(DomainEvent):
    """An MCP server was registered."""

    mcp_server_id: str


@_event
class McpServerUnregistered(DomainEvent):
    """An MCP server was unregistered."""

    mcp_server_id: str


@_event
class WorkflowTemplateCreated(DomainEvent):
    """A template was created."""

    template_id: str


@_event
class WorkflowTemplateUpdated(DomainEvent):
    """A template was changed."""

    template_id: str


@_event
class WorkflowTemplateDeleted(DomainEvent):
    """A template was deleted."""

    template_id: str


# ── Workflow ──────────────────────────────────────────────────────────────────────────────────────────────────────


@_event
class WorkflowCreated(DomainEvent):
    """A workflow was created."""

    workflow_id: str


@_event
class WorkflowStarted(DomainEvent):
    """A workflow was started."""

    workflow_id: str


@_event
class WorkflowPaused(DomainEvent):
    """A workflow was paused."""

    workflow_id: str


@_event
class WorkflowResumed(DomainEvent):
    """A workflow was resumed, from this Work on."""

    workflow_id: str
    from_work_id: str


@_event
class WorkflowCompleted(DomainEvent):
    """All works of a workflow are done."""

    workflow_id: str


@_event
class WorkflowFailed(DomainEvent):
    """A workflow failed; a person can resume it."""

    workflow_id: str
    reason: str


@_event
class WorkflowCancelled(DomainEvent):
    """A workflow was cancelled."""

    workflow_id: str


@_event
class WorkflowLanded(DomainEvent):
    """The branch of a workflow was pushed; ``url`` is its pull request, or the repository."""

    workflow_id: str
    branch: str
    url: str


@_event
class WorkflowNotLanded(DomainEvent):
    """A completed workflow could not be landed; ``again`` is when that is tried again, if it is."""

    workflow_id: str
    reason: str
    again: str | None = None


@_event
class PersonActed(DomainEvent):
    """A person did something with a workflow, through the web or MCP. Other events say what came of it."""

    workflow_id: str
    user: str
    action: str


@_event
class WorkflowDeleted(DomainEvent):
    """A workflow and its files were deleted."""

    workflow_id: str


@_event
class WorkflowGitRefsUpdated(DomainEvent):
    """The repositories of a workflow changed."""

    workflow_id: str
    added_refs: list[str]
    removed_refs: list[str]


@_event
class WorkflowMcpServerRefsUpdated(DomainEvent):
    """The MCP servers of a workflow changed."""

    workflow_id: str
    added_refs: list[str]
    removed_refs: list[str]


# ── Work and its agent ────────────────────────────────────────────────────────────────────────────────────────────


@_event
class WorkStatusChanged(DomainEvent):
    """The status of a Work changed."""

    work_id: str
    workflow_id: str
    status: str


@_event
class WorkStarted(DomainEvent):
    """A Work was started."""

    work_id: str
    workflow_id: str


@_event
class WorkCompleted(DomainEvent):
    """A Work is done."""

    work_id: str
    workflow_id: str


@_event
class AgentStarted(DomainEvent):
    """The agent of a Work was started."""

    work_id: str


@_event
class AgentStopped(DomainEvent):
    """The agent of a Work ended."""

    work_id: str


@_event
class AgentError(DomainEvent):
    """The agent of a Work failed."""

    work_id: str
    error: str


# ── Task, query and report ────────────────────────────────────────────────────────────────────────────────────────


@_event
class TaskStarted(DomainEvent):
    """A task was started."""

    work_id: str
    task_id: str


@_event
class TaskCompleted(DomainEvent):
    """A task is done."""

    work_id: str
    task_id: str


@_event
class QuerySent(DomainEvent):
    """A query was sent to the agent."""

    work_id: str
    task_id: str


@_event
class QueryResponded(DomainEvent):
    """The agent answered a query."""

    work_id: str
    task_id: str
    response: str


@_event
class QueryFailed(DomainEvent):
    """A query failed."""

    work_id: str
    task_id: str
    error: str


@_event
class QuestionAsked(DomainEvent):
    """The agent asks a person; its Work waits for the answer."""

    work_id: str
    task_id: str
    question: str
    choices: tuple[str, ...] = ()
    default: str | None = None
    deadline: str | None = None


@_event
class ReportGenerationStarted(DomainEvent):
    """A report is being written."""

    report_id: str
    task_id: str


@_event
class ReportGenerated(DomainEvent):
    """A report was written to a file."""

    report_id: str
    task_id: str
    file_path: str


@_event
class ReportFailed(DomainEvent):
    """A report could not be written."""

    report_id: str
    task_id: str
    error: str


# ── checkpoints and resources ─────────────────────────────────────────────────────────────────────────────────────


@_event
class CheckpointCreated(DomainEvent):
    """The result of a Work was committed."""

    checkpoint_id: str
    workflow_id: str
    work_id: str


@_event
class WorkTreeCreated(DomainEvent):
    """A worktree is ready."""

    work_tree_id: str
    workflow_id: str


@_event
class WorkTreeFailed(DomainEvent):
    """A worktree could not be created."""

    work_tree_id: str
    workflow_id: str
    error: str


@_event
class WorkTreePendingRelease(DomainEvent):
    """A worktree will be removed when the workflow ends."""

    work_tree_id: str
    workflow_id: str
    git_id: str


@_event
class WorkTreeReleased(DomainEvent):
    """A worktree was removed."""

    work_tree_id: str
    workflow_id: str


@_event
class WorkSpaceCreated(DomainEvent):
    """The folder of a Work was created."""

    work_space_id: str
    work_id: str
