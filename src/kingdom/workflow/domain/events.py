"""The events of the workflow layer: every type there is, with exactly the payload it carries.

The payload's names are the fields' in camel case. Whose events they are (``aggregate``), and which attempt of a Work or
Task they tell of, travels beside the payload.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, Final, cast, dataclass_transform

CATALOG: Final[dict[str, type[DomainEvent]]] = {}
# What nobody but an interface waits for. Everything else has a handler (kingdom.workflow.handlers).
UI_ONLY: Final = frozenset(
    {
        "GitCreated", "McpServerRegistered",
        "WorkflowTemplateCreated", "WorkflowTemplateUpdated", "WorkflowTemplateDeleted",
        "WorkflowCreated", "WorkflowPaused", "WorkflowDeleted", "WorkflowMcpServerRefsUpdated",
        "TaskStarted", "TaskCompleted", "QuerySent", "ReportGenerationStarted",
        "CheckpointCreated", "WorkTreeReleased", "WorkSpaceCreated",
    }
)  # fmt: skip
_SNAKE: Final = re.compile(r"_([a-z])")


@dataclass(frozen=True, slots=True)
class DomainEvent:
    """Something that happened to a workflow or what it draws on."""

    by: ClassVar[str] = ""  # who publishes it, for the documentation

    def payload(self) -> dict[str, Any]:
        """The payload as it travels."""
        return {camel: getattr(self, name) for name, camel in _names(cast("Hashable", type(self)))}

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> DomainEvent:
        """The event of a payload."""
        return cls(**{name: payload[camel] for name, camel in _names(cast("Hashable", cls))})


@cache
def _names(cls: Hashable) -> tuple[tuple[str, str], ...]:
    """The fields of an event, and what they are called in the payload."""
    return tuple((field.name, _camel(field.name)) for field in fields(cast("type[DomainEvent]", cls)))


def _camel(name: str) -> str:
    return _SNAKE.sub(lambda match: match.group(1).upper(), name)


@dataclass_transform(frozen_default=True)
def _event(by: str) -> Any:
    def register(cls: type[DomainEvent]) -> type[DomainEvent]:
        made = dataclass(frozen=True, slots=True)(cls)
        made.by = by
        CATALOG[made.__name__] = made
        return made

    return register


# ── Git, McpServer, WorkflowTemplate ──────────────────────────────────────────────────────────────────────────────


@_event("CreateGitUseCase")
class GitCreated(DomainEvent):
    """A repository was registered."""

    git_id: str


@_event("DeleteGitUseCase")
class GitDeleted(DomainEvent):
    """A repository was deleted."""

    git_id: str


@_event("RegisterMcpServerUseCase")
class McpServerRegistered(DomainEvent):
    """An MCP server was registered."""

    mcp_server_id: str


@_event("UnregisterMcpServerUseCase")
class McpServerUnregistered(DomainEvent):
    """An MCP server was unregistered."""

    mcp_server_id: str


@_event("CreateWorkflowTemplateUseCase, CreateTemplateFromWorkflowUseCase")
class WorkflowTemplateCreated(DomainEvent):
    """A template was made."""

    template_id: str


@_event("UpdateWorkflowTemplateUseCase")
class WorkflowTemplateUpdated(DomainEvent):
    """A template was changed."""

    template_id: str


@_event("DeleteWorkflowTemplateUseCase")
class WorkflowTemplateDeleted(DomainEvent):
    """A template was deleted."""

    template_id: str


# ── Workflow ──────────────────────────────────────────────────────────────────────────────────────────────────────


@_event("CreateWorkflowUseCase")
class WorkflowCreated(DomainEvent):
    """A workflow was made."""

    workflow_id: str


@_event("StartWorkflowUseCase")
class WorkflowStarted(DomainEvent):
    """A workflow runs."""

    workflow_id: str


@_event("PauseWorkflowUseCase")
class WorkflowPaused(DomainEvent):
    """A workflow stopped where it is."""

    workflow_id: str


@_event("ResumeWorkflowUseCase")
class WorkflowResumed(DomainEvent):
    """A workflow goes on from a Work."""

    workflow_id: str
    from_work_id: str


@_event("StartNextWorkUseCase")
class WorkflowCompleted(DomainEvent):
    """All works are done."""

    workflow_id: str


@_event("AgentErrorHandler")
class WorkflowFailed(DomainEvent):
    """A workflow cannot go on by itself."""

    workflow_id: str
    reason: str


@_event("CancelWorkflowUseCase")
class WorkflowCancelled(DomainEvent):
    """A workflow will not be finished."""

    workflow_id: str


@_event("DeleteWorkflowUseCase")
class WorkflowDeleted(DomainEvent):
    """A workflow and what it had on disk were removed."""

    workflow_id: str


@_event("ModifyWorkflowUseCase")
class WorkflowGitRefsUpdated(DomainEvent):
    """A workflow uses other repositories."""

    workflow_id: str
    added_refs: list[str]
    removed_refs: list[str]


@_event("ModifyWorkflowUseCase")
class WorkflowMcpServerRefsUpdated(DomainEvent):
    """A workflow uses other MCP servers."""

    workflow_id: str
    added_refs: list[str]
    removed_refs: list[str]


# ── Work and its agent ────────────────────────────────────────────────────────────────────────────────────────────


@_event("CompleteTaskUseCase, Agent*Handler")
class WorkStatusChanged(DomainEvent):
    """A Work has another status."""

    work_id: str
    workflow_id: str
    status: str


@_event("StartNextWorkUseCase")
class WorkStarted(DomainEvent):
    """A Work runs."""

    work_id: str
    workflow_id: str


@_event("CompleteTaskUseCase")
class WorkCompleted(DomainEvent):
    """A Work is done."""

    work_id: str
    workflow_id: str


@_event("the agent's process")
class AgentStarted(DomainEvent):
    """The agent of a Work runs."""

    work_id: str


@_event("the agent's process")
class AgentStopped(DomainEvent):
    """The agent of a Work ended."""

    work_id: str


@_event("the agent's process")
class AgentError(DomainEvent):
    """The agent of a Work broke."""

    work_id: str
    error: str


# ── Task, query and report ────────────────────────────────────────────────────────────────────────────────────────


@_event("SendQueryUseCase")
class TaskStarted(DomainEvent):
    """A task began."""

    work_id: str
    task_id: str


@_event("CompleteTaskUseCase")
class TaskCompleted(DomainEvent):
    """A task is done."""

    work_id: str
    task_id: str


@_event("SendQueryUseCase")
class QuerySent(DomainEvent):
    """A query went to the agent."""

    work_id: str
    task_id: str


@_event("the agent's process")
class QueryResponded(DomainEvent):
    """The agent answered."""

    work_id: str
    task_id: str
    response: str


@_event("the agent's process")
class QueryFailed(DomainEvent):
    """A query failed."""

    work_id: str
    task_id: str
    error: str


@_event("QueryRespondedHandler")
class ReportGenerationStarted(DomainEvent):
    """A report is being written."""

    report_id: str
    task_id: str


@_event("the report's writer")
class ReportGenerated(DomainEvent):
    """A report lies in a file."""

    report_id: str
    task_id: str
    file_path: str


@_event("the report's writer")
class ReportFailed(DomainEvent):
    """A report could not be made."""

    report_id: str
    task_id: str
    error: str


# ── checkpoints and resources ─────────────────────────────────────────────────────────────────────────────────────


@_event("CheckpointService")
class CheckpointCreated(DomainEvent):
    """What a Work left is recorded."""

    checkpoint_id: str
    workflow_id: str
    work_id: str


@_event("WorkflowResourceService")
class WorkTreeCreated(DomainEvent):
    """A worktree can be worked in."""

    work_tree_id: str
    workflow_id: str


@_event("WorkflowResourceService")
class WorkTreeFailed(DomainEvent):
    """A worktree could not be made."""

    work_tree_id: str
    workflow_id: str
    error: str


@_event("ModifyWorkflowUseCase")
class WorkTreePendingRelease(DomainEvent):
    """A worktree will be removed when the workflow ends."""

    work_tree_id: str
    workflow_id: str
    git_id: str


@_event("WorkflowResourceService")
class WorkTreeReleased(DomainEvent):
    """A worktree was removed."""

    work_tree_id: str
    workflow_id: str


@_event("WorkflowResourceService")
class WorkSpaceCreated(DomainEvent):
    """A Work has its folder."""

    work_space_id: str
    work_id: str
