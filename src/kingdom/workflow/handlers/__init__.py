"""Which handler handles which event."""

from __future__ import annotations

from typing import Final

from kingdom.workflow.domain.events import UI_ONLY
from kingdom.workflow.handlers.base import Handler, IncomingEvent
from kingdom.workflow.handlers.tasks import (
    AgentErrorHandler,
    AgentStartedHandler,
    AgentStoppedHandler,
    QueryFailedHandler,
    QueryRespondedHandler,
    QuestionAskedHandler,
    ReportFailedHandler,
    ReportGeneratedHandler,
)
from kingdom.workflow.handlers.workflows import (
    GitDeletedHandler,
    McpServerUnregisteredHandler,
    WorkCompletedHandler,
    WorkflowGitRefsUpdatedHandler,
    WorkflowStartedHandler,
    WorkflowTerminatedHandler,
    WorkStartedHandler,
    WorkStatusChangedHandler,
    WorkTreeStatusChangedHandler,
)

HANDLERS: Final[dict[str, type[Handler]]] = {
    "WorkflowStarted": WorkflowStartedHandler,
    "WorkflowResumed": WorkflowStartedHandler,
    "WorkStatusChanged": WorkStatusChangedHandler,
    "WorkStarted": WorkStartedHandler,
    "WorkCompleted": WorkCompletedHandler,
    "WorkTreeCreated": WorkTreeStatusChangedHandler,
    "WorkTreeFailed": WorkTreeStatusChangedHandler,
    "WorkTreePendingRelease": WorkTreeStatusChangedHandler,
    "WorkflowCompleted": WorkflowTerminatedHandler,
    "WorkflowCancelled": WorkflowTerminatedHandler,
    "WorkflowFailed": WorkflowTerminatedHandler,
    "AgentStarted": AgentStartedHandler,
    "AgentStopped": AgentStoppedHandler,
    "AgentError": AgentErrorHandler,
    "QueryResponded": QueryRespondedHandler,
    "QueryFailed": QueryFailedHandler,
    "QuestionAsked": QuestionAskedHandler,
    "ReportGenerated": ReportGeneratedHandler,
    "ReportFailed": ReportFailedHandler,
    "WorkflowGitRefsUpdated": WorkflowGitRefsUpdatedHandler,
    "GitDeleted": GitDeletedHandler,
    "McpServerUnregistered": McpServerUnregisteredHandler,
}

__all__ = ["HANDLERS", "UI_ONLY", "Handler", "IncomingEvent"]
