"""The operations of workflows. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from typing import Literal

from kingdom.client.connection import Connection
from kingdom.client.connection import path_segment as _part
from kingdom.client.models.shared import Deleted, Page, Template, YamlText
from kingdom.client.models.workflows import (
    Checkpoint,
    Diff,
    ForkBody,
    ModifyBody,
    PauseBody,
    PlanBody,
    PlanChanged,
    Report,
    ReportSummary,
    ResumeBody,
    StartBody,
    TemplateOfWorkflowBody,
    Usage,
    Verified,
    Words,
    WorkflowBody,
    WorkflowEvent,
    WorkflowFull,
    WorkflowStatus,
    WorkflowSummary,
)


class WorkflowsOperations(Connection):
    """The operations of workflows."""

    def list_workflows(
        self,
        *,
        status: list[WorkflowStatus] | None = None,
        search: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[WorkflowSummary]:
        """List workflows."""
        answer: Page[WorkflowSummary] = self.request(
            "GET", "/api/workflows", query={"status": status, "search": search, "limit": limit, "cursor": cursor}
        )
        return answer

    def create_workflow(self, body: WorkflowBody) -> WorkflowFull:
        """Create a workflow."""
        answer: WorkflowFull = self.request("POST", "/api/workflows", body=body)
        return answer

    def get_workflow(self, workflow_id: str) -> WorkflowFull:
        """Get a workflow."""
        answer: WorkflowFull = self.request("GET", f"/api/workflows/{_part(workflow_id)}")
        return answer

    def delete_workflow(self, workflow_id: str) -> Deleted:
        """Delete a workflow."""
        answer: Deleted = self.request("DELETE", f"/api/workflows/{_part(workflow_id)}")
        return answer

    def modify_workflow(self, workflow_id: str, body: ModifyBody) -> WorkflowFull:
        """Modify a workflow."""
        answer: WorkflowFull = self.request("PATCH", f"/api/workflows/{_part(workflow_id)}", body=body)
        return answer

    def create_template_from_workflow(self, workflow_id: str, body: TemplateOfWorkflowBody) -> Template:
        """Make a template of a workflow."""
        answer: Template = self.request("POST", f"/api/workflows/{_part(workflow_id)}/template", body=body)
        return answer

    def start_workflow(self, workflow_id: str, body: StartBody | None = None) -> WorkflowSummary:
        """Start a workflow."""
        answer: WorkflowSummary = self.request("POST", f"/api/workflows/{_part(workflow_id)}/start", body=body)
        return answer

    def resume_workflow(self, workflow_id: str, body: ResumeBody | None = None) -> WorkflowSummary:
        """Resume a workflow."""
        answer: WorkflowSummary = self.request("POST", f"/api/workflows/{_part(workflow_id)}/resume", body=body)
        return answer

    def pause_workflow(self, workflow_id: str, body: PauseBody | None = None) -> WorkflowSummary:
        """Pause a workflow."""
        answer: WorkflowSummary = self.request("POST", f"/api/workflows/{_part(workflow_id)}/pause", body=body)
        return answer

    def cancel_workflow(self, workflow_id: str) -> WorkflowSummary:
        """Cancel a workflow."""
        answer: WorkflowSummary = self.request("POST", f"/api/workflows/{_part(workflow_id)}/cancel")
        return answer

    def fork_workflow(self, workflow_id: str, body: ForkBody) -> WorkflowFull:
        """Fork a workflow."""
        answer: WorkflowFull = self.request("POST", f"/api/workflows/{_part(workflow_id)}/fork", body=body)
        return answer

    def get_workflow_plan(self, workflow_id: str) -> YamlText:
        """Get the plan of a workflow as YAML."""
        answer: YamlText = self.request("GET", f"/api/workflows/{_part(workflow_id)}/plan")
        return answer

    def change_workflow_plan(self, workflow_id: str, body: PlanBody) -> PlanChanged:
        """Change the plan of a workflow as a whole."""
        answer: PlanChanged = self.request("PUT", f"/api/workflows/{_part(workflow_id)}/plan", body=body)
        return answer

    def list_workflow_events(
        self, workflow_id: str, *, after: int | None = None, limit: int | None = None
    ) -> Page[WorkflowEvent]:
        """List the events of a workflow."""
        answer: Page[WorkflowEvent] = self.request(
            "GET", f"/api/workflows/{_part(workflow_id)}/events", query={"after": after, "limit": limit}
        )
        return answer

    def list_checkpoints(self, workflow_id: str) -> Page[Checkpoint]:
        """List the checkpoints of a workflow."""
        answer: Page[Checkpoint] = self.request("GET", f"/api/workflows/{_part(workflow_id)}/checkpoints")
        return answer

    def get_checkpoint_diff(
        self,
        workflow_id: str,
        checkpoint_id: str,
        *,
        against: str | None = None,
        form: Literal["hunks", "patch", "stat"] | None = None,
    ) -> Diff:
        """Get what changed up to a checkpoint."""
        answer: Diff = self.request(
            "GET",
            f"/api/workflows/{_part(workflow_id)}/checkpoints/{_part(checkpoint_id)}/diff",
            query={"against": against, "form": form},
        )
        return answer

    def list_workflow_reports(self, workflow_id: str) -> Page[ReportSummary]:
        """List the reports of a workflow."""
        answer: Page[ReportSummary] = self.request("GET", f"/api/workflows/{_part(workflow_id)}/reports")
        return answer

    def get_workflow_report(self, workflow_id: str, report_id: str) -> Report:
        """Get a report."""
        answer: Report = self.request("GET", f"/api/workflows/{_part(workflow_id)}/reports/{_part(report_id)}")
        return answer

    def get_workflow_output(
        self, workflow_id: str, *, work: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Words:
        """Get what the agents of a workflow say."""
        answer: Words = self.request(
            "GET", f"/api/workflows/{_part(workflow_id)}/output", query={"work": work, "limit": limit, "cursor": cursor}
        )
        return answer

    def get_workflow_usage(self, workflow_id: str) -> Usage:
        """Get what a workflow has cost."""
        answer: Usage = self.request("GET", f"/api/workflows/{_part(workflow_id)}/usage")
        return answer

    def verify_workflow(self, workflow_id: str, *, deep: bool | None = None) -> Verified:
        """Prove that a workflow can be resumed from its checkpoints."""
        answer: Verified = self.request("GET", f"/api/workflows/{_part(workflow_id)}/verify", query={"deep": deep})
        return answer
