"""The catalog of workflow events is the specification's: every type, with exactly its payload."""

from __future__ import annotations

from dataclasses import fields

import pytest

from kingdom.workflow.domain.events import CATALOG, QuestionAsked, WorkflowResumed

SPECIFIED = {
    "GitCreated": "gitId",
    "GitDeleted": "gitId",
    "McpServerRegistered": "mcpServerId",
    "McpServerUnregistered": "mcpServerId",
    "WorkflowTemplateCreated": "templateId",
    "WorkflowTemplateUpdated": "templateId",
    "WorkflowTemplateDeleted": "templateId",
    "WorkflowCreated": "workflowId",
    "WorkflowStarted": "workflowId",
    "WorkflowPaused": "workflowId",
    "WorkflowResumed": "workflowId, fromWorkId",
    "WorkflowCompleted": "workflowId",
    "WorkflowFailed": "workflowId, reason",
    "WorkflowCancelled": "workflowId",
    "WorkflowDeleted": "workflowId",
    "WorkflowGitRefsUpdated": "workflowId, addedRefs, removedRefs",
    "WorkflowMcpServerRefsUpdated": "workflowId, addedRefs, removedRefs",
    "WorkStatusChanged": "workId, workflowId, status",
    "WorkStarted": "workId, workflowId",
    "WorkCompleted": "workId, workflowId",
    "AgentStarted": "workId",
    "AgentStopped": "workId",
    "AgentError": "workId, error",
    "TaskStarted": "workId, taskId",
    "TaskCompleted": "workId, taskId",
    "QuerySent": "workId, taskId",
    "QueryResponded": "workId, taskId, response",
    "QueryFailed": "workId, taskId, error",
    "ReportGenerationStarted": "reportId, taskId",
    "ReportGenerated": "reportId, taskId, filePath",
    "ReportFailed": "reportId, taskId, error",
    "CheckpointCreated": "checkpointId, workflowId, workId",
    "WorkTreeCreated": "workTreeId, workflowId",
    "WorkTreeFailed": "workTreeId, workflowId, error",
    "WorkTreePendingRelease": "workTreeId, workflowId, gitId",
    "WorkTreeReleased": "workTreeId, workflowId",
    "WorkSpaceCreated": "workSpaceId, workId",
}


OURS = {
    "QuestionAsked": "workId, taskId, question, choices, default, deadline",
    "WorkflowLanded": "workflowId, branch, url",
    "WorkflowNotLanded": "workflowId, reason, again",
    "PersonActed": "workflowId, user, action",
}


def test_every_specified_event_is_there_and_none_but_ours_besides() -> None:
    assert CATALOG.keys() == SPECIFIED.keys() | OURS.keys()


@pytest.mark.parametrize(("name", "payload"), [*SPECIFIED.items(), *OURS.items()])
def test_the_payload_is_exactly_as_specified_and_survives_a_round_trip(name: str, payload: str) -> None:
    kind = CATALOG[name]
    made = kind(**{field.name: f"the {field.name}" for field in fields(kind)})
    assert list(made.payload()) == payload.split(", ")
    assert kind.from_payload(made.payload()) == made


def test_a_question_of_a_version_before_defaults_is_read() -> None:
    before = {"workId": "w", "taskId": "t", "question": "Red or blue?"}
    assert QuestionAsked.from_payload(before) == QuestionAsked("w", "t", "Red or blue?")


def test_an_event_cannot_be_changed() -> None:
    event = WorkflowResumed(workflow_id="wf", from_work_id="w")
    with pytest.raises(AttributeError):
        event.workflow_id = "other"  # type: ignore[misc]
