"""Every event has a handler, or is for the interface only; every row of the specified table is there."""

from __future__ import annotations

import pytest

from kingdom.workflow.domain.events import CATALOG
from kingdom.workflow.handlers import HANDLERS, UI_ONLY

SPECIFIED = {
    "WorkStatusChanged": "WorkStatusChangedHandler",
    "WorkStarted": "WorkStartedHandler",
    "WorkCompleted": "WorkCompletedHandler",
    "WorkTreeCreated": "WorkTreeStatusChangedHandler",
    "WorkTreeFailed": "WorkTreeStatusChangedHandler",
    "WorkflowCompleted": "WorkflowTerminatedHandler",
    "WorkflowCancelled": "WorkflowTerminatedHandler",
    "WorkflowFailed": "WorkflowTerminatedHandler",
    "WorkTreePendingRelease": "WorkTreeStatusChangedHandler",
    "AgentStarted": "AgentStartedHandler",
    "AgentStopped": "AgentStoppedHandler",
    "AgentError": "AgentErrorHandler",
    "QueryResponded": "QueryRespondedHandler",
    "QueryFailed": "QueryFailedHandler",
    "ReportGenerated": "ReportGeneratedHandler",
    "ReportFailed": "ReportFailedHandler",
    "WorkflowGitRefsUpdated": "WorkflowGitRefsUpdatedHandler",
    "GitDeleted": "GitDeletedHandler",
    "McpServerUnregistered": "McpServerUnregisteredHandler",
}


def test_every_event_has_a_handler_or_is_for_the_interface_only() -> None:
    assert CATALOG.keys() == HANDLERS.keys() | UI_ONLY
    assert not HANDLERS.keys() & UI_ONLY


@pytest.mark.parametrize(("event", "handler"), SPECIFIED.items())
def test_the_handler_of_an_event_is_the_specified_one(event: str, handler: str) -> None:
    assert HANDLERS[event].__name__ == handler


def test_what_is_specified_to_be_for_the_interface_only_has_no_handler() -> None:
    assert {"TaskStarted", "WorkflowMcpServerRefsUpdated"} <= UI_ONLY


def test_the_chain_goes_on_from_a_start_and_from_a_resume() -> None:
    assert HANDLERS.keys() - SPECIFIED.keys() == {"WorkflowStarted", "WorkflowResumed", "QuestionAsked"}
