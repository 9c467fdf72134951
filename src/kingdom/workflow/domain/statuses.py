"""Statuses, and which transitions are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

from kingdom.workflow.errors import IllegalTransition


class WorkflowStatus(StrEnum):
    """The status of a workflow."""

    CREATED = "CREATED"
    PREPARING = "PREPARING"
    READY = "READY"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    RESUMING = "RESUMING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class WorkStatus(StrEnum):
    """The status of a Work."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    PAUSED = "PAUSED"
    WAITING = "WAITING"  # for a person's answer to its agent's question
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class AgentStatus(StrEnum):
    """The status of a Work's agent."""

    IDLE = "IDLE"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    ERROR = "ERROR"


class TaskStatus(StrEnum):
    """The status of a Task."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class QueryStatus(StrEnum):
    """The status of a Task's query."""

    PENDING = "PENDING"
    SENT = "SENT"
    PROCESSING = "PROCESSING"
    RESPONDED = "RESPONDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class ReportStatus(StrEnum):
    """The status of a Task's report."""

    NOT_REQUIRED = "NOT_REQUIRED"
    PENDING = "PENDING"
    GENERATING = "GENERATING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class WorkTreeStatus(StrEnum):
    """The status of a worktree."""

    CREATING = "CREATING"
    READY = "READY"
    FAILED = "FAILED"
    PENDING_RELEASE = "PENDING_RELEASE"
    RELEASED = "RELEASED"


S = TypeVar("S", bound=StrEnum)
Transitions = Mapping[S, frozenset[S]]


def _transitions(rows: Mapping[S, str], kind: type[S]) -> Transitions[S]:
    return {state: frozenset(kind(word) for word in rows.get(state, "").split()) for state in kind}


WORKFLOW_TRANSITIONS: Final = _transitions(
    {
        WorkflowStatus.CREATED: "PREPARING CANCELLED",
        WorkflowStatus.PREPARING: "READY PAUSED FAILED CANCELLED",
        WorkflowStatus.READY: "PREPARING RUNNING CANCELLED",
        WorkflowStatus.RUNNING: "PAUSED COMPLETED FAILED CANCELLED",
        WorkflowStatus.PAUSED: "PREPARING RESUMING FAILED CANCELLED",
        WorkflowStatus.RESUMING: "RUNNING PAUSED FAILED CANCELLED",
        WorkflowStatus.COMPLETED: "PAUSED RESUMING",
        WorkflowStatus.FAILED: "RESUMING CANCELLED",
    },
    WorkflowStatus,
)
WORK_TRANSITIONS: Final = _transitions(
    {
        WorkStatus.PENDING: "RUNNING CANCELLED",
        WorkStatus.RUNNING: "COMPLETED PAUSED WAITING FAILED CANCELLED PENDING",
        WorkStatus.WAITING: "PENDING CANCELLED",
        WorkStatus.PAUSED: "PENDING RUNNING FAILED CANCELLED",
        WorkStatus.COMPLETED: "PENDING FAILED",
        WorkStatus.FAILED: "PENDING COMPLETED CANCELLED",
    },
    WorkStatus,
)
AGENT_TRANSITIONS: Final = _transitions(
    {
        AgentStatus.IDLE: "STARTING STOPPED ERROR",
        AgentStatus.STARTING: "RUNNING STOPPED ERROR",
        AgentStatus.RUNNING: "STOPPED ERROR",
        AgentStatus.STOPPED: "STARTING IDLE ERROR",
        AgentStatus.ERROR: "STARTING IDLE STOPPED",
    },
    AgentStatus,
)
TASK_TRANSITIONS: Final = _transitions(
    {
        TaskStatus.PENDING: "RUNNING CANCELLED",
        TaskStatus.RUNNING: "COMPLETED FAILED CANCELLED PENDING",
        TaskStatus.COMPLETED: "PENDING",
        TaskStatus.FAILED: "PENDING CANCELLED",
    },
    TaskStatus,
)
QUERY_TRANSITIONS: Final = _transitions(
    {
        QueryStatus.PENDING: "SENT CANCELLED",
        QueryStatus.SENT: "PROCESSING RESPONDED FAILED CANCELLED PENDING",
        QueryStatus.PROCESSING: "RESPONDED FAILED CANCELLED PENDING",
        QueryStatus.RESPONDED: "PENDING",
        QueryStatus.FAILED: "PENDING CANCELLED",
    },
    QueryStatus,
)
REPORT_TRANSITIONS: Final = _transitions(
    {
        ReportStatus.PENDING: "GENERATING CANCELLED",
        ReportStatus.GENERATING: "COMPLETED FAILED CANCELLED PENDING",
        ReportStatus.COMPLETED: "PENDING",
        ReportStatus.FAILED: "GENERATING PENDING CANCELLED",
    },
    ReportStatus,
)
WORKTREE_TRANSITIONS: Final = _transitions(
    {
        WorkTreeStatus.CREATING: "READY FAILED PENDING_RELEASE",
        WorkTreeStatus.READY: "PENDING_RELEASE FAILED RELEASED",
        WorkTreeStatus.FAILED: "CREATING PENDING_RELEASE RELEASED",
        WorkTreeStatus.PENDING_RELEASE: "CREATING RELEASED",
    },
    WorkTreeStatus,
)

WORKFLOW_ACTIVE_STATUSES: Final = frozenset({WorkflowStatus.PREPARING, WorkflowStatus.RUNNING, WorkflowStatus.RESUMING})
"""A workflow in one of these needs an engine to go on."""
WORKFLOW_OVER_STATUSES: Final = frozenset({WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED})


def check_transition(what: str, item_id: str, table: Transitions[S], current: S, wanted: S) -> S:
    """Return ``wanted`` if it may follow ``current``; otherwise raise :class:`IllegalTransition`."""
    if wanted not in table[current]:
        raise IllegalTransition(what, item_id, current, wanted)
    return wanted
