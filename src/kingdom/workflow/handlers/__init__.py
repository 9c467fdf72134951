"""What follows from events: a handler for each row of the table, and a list of what only an interface shows."""

from __future__ import annotations

from typing import Final

from kingdom.workflow.domain.events import UI_ONLY
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.handlers.agent_error import AgentErrorHandler
from kingdom.workflow.handlers.agent_started import AgentStartedHandler
from kingdom.workflow.handlers.agent_stopped import AgentStoppedHandler
from kingdom.workflow.handlers.git_deleted import GitDeletedHandler
from kingdom.workflow.handlers.mcp_server_unregistered import McpServerUnregisteredHandler
from kingdom.workflow.handlers.query_failed import QueryFailedHandler
from kingdom.workflow.handlers.query_responded import QueryRespondedHandler
from kingdom.workflow.handlers.report_failed import ReportFailedHandler
from kingdom.workflow.handlers.report_generated import ReportGeneratedHandler
from kingdom.workflow.handlers.work_completed import WorkCompletedHandler
from kingdom.workflow.handlers.work_started import WorkStartedHandler
from kingdom.workflow.handlers.work_status_changed import WorkStatusChangedHandler
from kingdom.workflow.handlers.work_tree_status_changed import WorkTreeStatusChangedHandler
from kingdom.workflow.handlers.workflow_git_refs_updated import WorkflowGitRefsUpdatedHandler
from kingdom.workflow.handlers.workflow_started import WorkflowStartedHandler
from kingdom.workflow.handlers.workflow_terminated import WorkflowTerminatedHandler

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
    "ReportGenerated": ReportGeneratedHandler,
    "ReportFailed": ReportFailedHandler,
    "WorkflowGitRefsUpdated": WorkflowGitRefsUpdatedHandler,
    "GitDeleted": GitDeletedHandler,
    "McpServerUnregistered": McpServerUnregisteredHandler,
}

__all__ = ["HANDLERS", "UI_ONLY", "Handler", "News"]
