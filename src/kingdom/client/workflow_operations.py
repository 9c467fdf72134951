"""The operations of the API: workflows. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Any, Literal

from kingdom.client.connection import Connection, given, path_segment
from kingdom.client.models import Page
from kingdom.client.models.requests import (
    AddTaskChange,
    AddWorkChange,
    Deleted,
    GitRefBody,
    LandFields,
    McpServerRefBody,
    RemoveTaskChange,
    RemoveWorkChange,
    ReorderTasksChange,
    ReorderWorksChange,
    SetDetailsChange,
    SetGitRefsChange,
    SetLandPlanChange,
    SetMcpServerRefsChange,
    Template,
    UpdateTaskChange,
    UpdateWorkChange,
    YamlText,
)
from kingdom.client.models.workflows import (
    AgentOutput,
    CheckpointDiff,
    CheckpointInfo,
    PlanChangeResult,
    PullRequestInfo,
    ReportInfo,
    ReportSummary,
    RescueInfo,
    RestoredRescue,
    VerificationResult,
    WorkflowEvent,
    WorkflowFull,
    WorkflowStatus,
    WorkflowSummary,
    WorkflowUsage,
)


class WorkflowOperations(Connection):
    """The operations of the API: workflows."""

    def list_workflows(
        self,
        *,
        status: list[WorkflowStatus] | None = None,
        search: str | None = None,
        since: str | None = None,
        until: str | None = None,
        sort: Literal["newest", "oldest", "name", "status", "progress", "issue", "cost"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[WorkflowSummary]:
        """List workflows."""
        answer: Page[WorkflowSummary] = self.request(
            "GET",
            "/api/workflows",
            query={
                "status": status,
                "search": search,
                "since": since,
                "until": until,
                "sort": sort,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return answer

    def create_workflow(
        self,
        *,
        template_id: str,
        name: str | None = None,
        issue_key: str | None = None,
        description: str | None = None,
        variables: dict[str, Any] | None = None,
        git_refs: list[GitRefBody] | None = None,
        mcp_server_refs: list[McpServerRefBody] | None = None,
        on_failure: Literal["pause", "fail"] | None = None,
        land: LandFields | None = None,
    ) -> WorkflowFull:
        """Create a workflow."""
        answer: WorkflowFull = self.request(
            "POST",
            "/api/workflows",
            body=given(
                {
                    "templateId": template_id,
                    "name": name,
                    "issueKey": issue_key,
                    "description": description,
                    "variables": variables,
                    "gitRefs": git_refs,
                    "mcpServerRefs": mcp_server_refs,
                    "onFailure": on_failure,
                    "land": land,
                }
            ),
        )
        return answer

    def get_workflow(self, workflow_id: str) -> WorkflowFull:
        """Get a workflow."""
        answer: WorkflowFull = self.request("GET", f"/api/workflows/{path_segment(workflow_id)}")
        return answer

    def delete_workflow(self, workflow_id: str) -> Deleted:
        """Delete a workflow."""
        answer: Deleted = self.request("DELETE", f"/api/workflows/{path_segment(workflow_id)}")
        return answer

    def modify_workflow(
        self,
        workflow_id: str,
        *,
        changes: list[
            AddTaskChange
            | RemoveTaskChange
            | UpdateTaskChange
            | ReorderTasksChange
            | AddWorkChange
            | RemoveWorkChange
            | UpdateWorkChange
            | ReorderWorksChange
            | SetGitRefsChange
            | SetMcpServerRefsChange
            | SetDetailsChange
            | SetLandPlanChange
        ],
    ) -> WorkflowFull:
        """Modify a workflow."""
        answer: WorkflowFull = self.request(
            "PATCH", f"/api/workflows/{path_segment(workflow_id)}", body=given({"changes": changes})
        )
        return answer

    def create_template_from_workflow(self, workflow_id: str, *, name: str, description: str | None = None) -> Template:
        """Create a template from a workflow."""
        answer: Template = self.request(
            "POST",
            f"/api/workflows/{path_segment(workflow_id)}/template",
            body=given({"name": name, "description": description}),
        )
        return answer

    def start_workflow(self, workflow_id: str, *, prepare_only: bool | None = None) -> WorkflowSummary:
        """Start a workflow."""
        answer: WorkflowSummary = self.request(
            "POST",
            f"/api/workflows/{path_segment(workflow_id)}/start",
            body=given({"prepareOnly": prepare_only}) or None,
        )
        return answer

    def resume_workflow(
        self,
        workflow_id: str,
        *,
        checkpoint_id: str | None = None,
        retry: bool | None = None,
        discard: bool | None = None,
        hold: bool | None = None,
    ) -> WorkflowSummary:
        """Resume a workflow."""
        answer: WorkflowSummary = self.request(
            "POST",
            f"/api/workflows/{path_segment(workflow_id)}/resume",
            body=given({"checkpointId": checkpoint_id, "retry": retry, "discard": discard, "hold": hold}) or None,
        )
        return answer

    def answer_workflow(self, workflow_id: str, *, text: str) -> WorkflowSummary:
        """Answer an agent's question."""
        answer: WorkflowSummary = self.request(
            "POST", f"/api/workflows/{path_segment(workflow_id)}/answer", body=given({"text": text})
        )
        return answer

    def follow_up_workflow(self, workflow_id: str, *, text: str, work: str | None = None) -> WorkflowSummary:
        """Have the agent do more, or something differently."""
        answer: WorkflowSummary = self.request(
            "POST", f"/api/workflows/{path_segment(workflow_id)}/follow-up", body=given({"text": text, "work": work})
        )
        return answer

    def pause_workflow(self, workflow_id: str, *, reason: str | None = None) -> WorkflowSummary:
        """Pause a workflow."""
        answer: WorkflowSummary = self.request(
            "POST", f"/api/workflows/{path_segment(workflow_id)}/pause", body=given({"reason": reason}) or None
        )
        return answer

    def cancel_workflow(self, workflow_id: str) -> WorkflowSummary:
        """Cancel a workflow."""
        answer: WorkflowSummary = self.request("POST", f"/api/workflows/{path_segment(workflow_id)}/cancel")
        return answer

    def fork_workflow(self, workflow_id: str, *, checkpoint_id: str, name: str | None = None) -> WorkflowFull:
        """Fork a workflow."""
        answer: WorkflowFull = self.request(
            "POST",
            f"/api/workflows/{path_segment(workflow_id)}/fork",
            body=given({"checkpointId": checkpoint_id, "name": name}),
        )
        return answer

    def land_workflow(
        self,
        workflow_id: str,
        *,
        how: Literal["pull-request", "push"] | None = None,
        squash: Literal["work", "all", "none"] | None = None,
        branch: str | None = None,
        title: str | None = None,
        body: str | None = None,
        draft: bool | None = None,
        git_id: str | None = None,
        base: str | None = None,
    ) -> WorkflowFull:
        """Land a workflow."""
        answer: WorkflowFull = self.request(
            "POST",
            f"/api/workflows/{path_segment(workflow_id)}/land",
            body=given(
                {
                    "how": how,
                    "squash": squash,
                    "branch": branch,
                    "title": title,
                    "body": body,
                    "draft": draft,
                    "gitId": git_id,
                    "base": base,
                }
            )
            or None,
        )
        return answer

    def list_workflow_events(
        self, workflow_id: str, *, after: int | None = None, limit: int | None = None
    ) -> Page[WorkflowEvent]:
        """List the events of a workflow."""
        answer: Page[WorkflowEvent] = self.request(
            "GET", f"/api/workflows/{path_segment(workflow_id)}/events", query={"after": after, "limit": limit}
        )
        return answer

    def list_checkpoints(self, workflow_id: str) -> Page[CheckpointInfo]:
        """List the checkpoints of a workflow."""
        answer: Page[CheckpointInfo] = self.request("GET", f"/api/workflows/{path_segment(workflow_id)}/checkpoints")
        return answer

    def get_checkpoint_diff(
        self,
        workflow_id: str,
        checkpoint_id: str,
        *,
        against: str | None = None,
        form: Literal["hunks", "patch", "stat"] | None = None,
    ) -> CheckpointDiff:
        """Get the changes of a checkpoint."""
        answer: CheckpointDiff = self.request(
            "GET",
            f"/api/workflows/{path_segment(workflow_id)}/checkpoints/{path_segment(checkpoint_id)}/diff",
            query={"against": against, "form": form},
        )
        return answer

    def list_pull_requests(self, workflow_id: str) -> Page[PullRequestInfo]:
        """List the pull requests of a workflow."""
        answer: Page[PullRequestInfo] = self.request("GET", f"/api/workflows/{path_segment(workflow_id)}/pull-requests")
        return answer

    def list_workflow_rescues(self, workflow_id: str) -> Page[RescueInfo]:
        """List what was dropped of a workflow."""
        answer: Page[RescueInfo] = self.request("GET", f"/api/workflows/{path_segment(workflow_id)}/rescues")
        return answer

    def restore_workflow_rescue(self, workflow_id: str, rescue_id: str) -> RestoredRescue:
        """Restore what was dropped of a workflow."""
        answer: RestoredRescue = self.request(
            "POST", f"/api/workflows/{path_segment(workflow_id)}/rescues/{path_segment(rescue_id)}/restore"
        )
        return answer

    def list_workflow_reports(self, workflow_id: str) -> Page[ReportSummary]:
        """List the reports of a workflow."""
        answer: Page[ReportSummary] = self.request("GET", f"/api/workflows/{path_segment(workflow_id)}/reports")
        return answer

    def get_workflow_report(self, workflow_id: str, report_id: str) -> ReportInfo:
        """Get a report."""
        answer: ReportInfo = self.request(
            "GET", f"/api/workflows/{path_segment(workflow_id)}/reports/{path_segment(report_id)}"
        )
        return answer

    def get_workflow_output(
        self, workflow_id: str, *, work: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> AgentOutput:
        """Get the agent output of a workflow."""
        answer: AgentOutput = self.request(
            "GET",
            f"/api/workflows/{path_segment(workflow_id)}/output",
            query={"work": work, "limit": limit, "cursor": cursor},
        )
        return answer

    def get_workflow_usage(self, workflow_id: str) -> WorkflowUsage:
        """Get the usage of a workflow."""
        answer: WorkflowUsage = self.request("GET", f"/api/workflows/{path_segment(workflow_id)}/usage")
        return answer

    def verify_workflow(self, workflow_id: str, *, deep: bool | None = None) -> VerificationResult:
        """Verify the checkpoints of a workflow."""
        answer: VerificationResult = self.request(
            "GET", f"/api/workflows/{path_segment(workflow_id)}/verify", query={"deep": deep}
        )
        return answer

    def get_workflow_plan(self, workflow_id: str) -> YamlText:
        """Get the plan of a workflow as YAML."""
        answer: YamlText = self.request("GET", f"/api/workflows/{path_segment(workflow_id)}/plan")
        return answer

    def change_workflow_plan(self, workflow_id: str, *, yaml: str, dry_run: bool | None = None) -> PlanChangeResult:
        """Replace the plan of a workflow."""
        answer: PlanChangeResult = self.request(
            "PUT", f"/api/workflows/{path_segment(workflow_id)}/plan", body=given({"yaml": yaml, "dryRun": dry_run})
        )
        return answer
