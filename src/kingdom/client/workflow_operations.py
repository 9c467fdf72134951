"""The operations of the API: workflows. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Literal

from kingdom.client.connection import Connection, path_segment
from kingdom.client.models import Page
from kingdom.client.models.requests import (
    ConvertBody,
    ForkBody,
    GitBody,
    LandBody,
    McpServerBody,
    ModifyBody,
    PauseBody,
    PlanBody,
    ResumeBody,
    StartBody,
    TemplateBody,
    TemplateOfWorkflowBody,
    WorkflowAnswerBody,
    WorkflowBody,
    YamlBody,
)
from kingdom.client.models.workflows import (
    AgentOutput,
    CheckpointDiff,
    CheckpointInfo,
    ConvertedTemplate,
    Deleted,
    GitInfo,
    McpServerInfo,
    PlanChangeResult,
    ReportInfo,
    ReportSummary,
    RescueInfo,
    RestoredRescue,
    Template,
    TemplateSummary,
    VerificationResult,
    WorkflowEvent,
    WorkflowFull,
    WorkflowStatus,
    WorkflowSummary,
    WorkflowUsage,
    YamlText,
)


class WorkflowOperations(Connection):
    """The operations of the API: workflows."""

    def list_gits(self, *, limit: int | None = None, cursor: str | None = None) -> Page[GitInfo]:
        """List repositories."""
        answer: Page[GitInfo] = self.request("GET", "/api/gits", query={"limit": limit, "cursor": cursor})
        return answer

    def create_git(self, body: GitBody) -> GitInfo:
        """Register a repository."""
        answer: GitInfo = self.request("POST", "/api/gits", body=body)
        return answer

    def get_git(self, git_id: str) -> GitInfo:
        """Get a repository."""
        answer: GitInfo = self.request("GET", f"/api/gits/{path_segment(git_id)}")
        return answer

    def delete_git(self, git_id: str) -> Deleted:
        """Delete a repository."""
        answer: Deleted = self.request("DELETE", f"/api/gits/{path_segment(git_id)}")
        return answer

    def list_mcp_servers(self, *, limit: int | None = None, cursor: str | None = None) -> Page[McpServerInfo]:
        """List MCP servers."""
        answer: Page[McpServerInfo] = self.request("GET", "/api/mcp-servers", query={"limit": limit, "cursor": cursor})
        return answer

    def register_mcp_server(self, body: McpServerBody) -> McpServerInfo:
        """Register an MCP server."""
        answer: McpServerInfo = self.request("POST", "/api/mcp-servers", body=body)
        return answer

    def get_mcp_server(self, mcp_server_id: str) -> McpServerInfo:
        """Get an MCP server."""
        answer: McpServerInfo = self.request("GET", f"/api/mcp-servers/{path_segment(mcp_server_id)}")
        return answer

    def unregister_mcp_server(self, mcp_server_id: str) -> Deleted:
        """Unregister an MCP server."""
        answer: Deleted = self.request("DELETE", f"/api/mcp-servers/{path_segment(mcp_server_id)}")
        return answer

    def list_templates(
        self, *, search: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[TemplateSummary]:
        """List templates."""
        answer: Page[TemplateSummary] = self.request(
            "GET", "/api/workflow-templates", query={"search": search, "limit": limit, "cursor": cursor}
        )
        return answer

    def create_template(self, body: TemplateBody) -> Template:
        """Create a template."""
        answer: Template = self.request("POST", "/api/workflow-templates", body=body)
        return answer

    def create_template_from_yaml(self, body: YamlBody) -> Template:
        """Create a template from YAML."""
        answer: Template = self.request("POST", "/api/workflow-templates/yaml", body=body)
        return answer

    def convert_template(self, body: ConvertBody) -> ConvertedTemplate:
        """Convert a template between fields and YAML."""
        answer: ConvertedTemplate = self.request("POST", "/api/workflow-templates/convert", body=body)
        return answer

    def get_template(self, template_id: str) -> Template:
        """Get a template."""
        answer: Template = self.request("GET", f"/api/workflow-templates/{path_segment(template_id)}")
        return answer

    def update_template(self, template_id: str, body: TemplateBody) -> Template:
        """Update a template."""
        answer: Template = self.request("PUT", f"/api/workflow-templates/{path_segment(template_id)}", body=body)
        return answer

    def delete_template(self, template_id: str) -> Deleted:
        """Delete a template."""
        answer: Deleted = self.request("DELETE", f"/api/workflow-templates/{path_segment(template_id)}")
        return answer

    def get_template_yaml(self, template_id: str) -> YamlText:
        """Get a template as YAML."""
        answer: YamlText = self.request("GET", f"/api/workflow-templates/{path_segment(template_id)}/yaml")
        return answer

    def update_template_from_yaml(self, template_id: str, body: YamlBody) -> Template:
        """Update a template from YAML."""
        answer: Template = self.request("PUT", f"/api/workflow-templates/{path_segment(template_id)}/yaml", body=body)
        return answer

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
        answer: WorkflowFull = self.request("GET", f"/api/workflows/{path_segment(workflow_id)}")
        return answer

    def delete_workflow(self, workflow_id: str) -> Deleted:
        """Delete a workflow."""
        answer: Deleted = self.request("DELETE", f"/api/workflows/{path_segment(workflow_id)}")
        return answer

    def modify_workflow(self, workflow_id: str, body: ModifyBody) -> WorkflowFull:
        """Modify a workflow."""
        answer: WorkflowFull = self.request("PATCH", f"/api/workflows/{path_segment(workflow_id)}", body=body)
        return answer

    def create_template_from_workflow(self, workflow_id: str, body: TemplateOfWorkflowBody) -> Template:
        """Create a template from a workflow."""
        answer: Template = self.request("POST", f"/api/workflows/{path_segment(workflow_id)}/template", body=body)
        return answer

    def start_workflow(self, workflow_id: str, body: StartBody | None = None) -> WorkflowSummary:
        """Start a workflow."""
        answer: WorkflowSummary = self.request("POST", f"/api/workflows/{path_segment(workflow_id)}/start", body=body)
        return answer

    def resume_workflow(self, workflow_id: str, body: ResumeBody | None = None) -> WorkflowSummary:
        """Resume a workflow."""
        answer: WorkflowSummary = self.request("POST", f"/api/workflows/{path_segment(workflow_id)}/resume", body=body)
        return answer

    def answer_workflow(self, workflow_id: str, body: WorkflowAnswerBody) -> WorkflowSummary:
        """Answer an agent's question."""
        answer: WorkflowSummary = self.request("POST", f"/api/workflows/{path_segment(workflow_id)}/answer", body=body)
        return answer

    def pause_workflow(self, workflow_id: str, body: PauseBody | None = None) -> WorkflowSummary:
        """Pause a workflow."""
        answer: WorkflowSummary = self.request("POST", f"/api/workflows/{path_segment(workflow_id)}/pause", body=body)
        return answer

    def cancel_workflow(self, workflow_id: str) -> WorkflowSummary:
        """Cancel a workflow."""
        answer: WorkflowSummary = self.request("POST", f"/api/workflows/{path_segment(workflow_id)}/cancel")
        return answer

    def fork_workflow(self, workflow_id: str, body: ForkBody) -> WorkflowFull:
        """Fork a workflow."""
        answer: WorkflowFull = self.request("POST", f"/api/workflows/{path_segment(workflow_id)}/fork", body=body)
        return answer

    def land_workflow(self, workflow_id: str, body: LandBody | None = None) -> WorkflowFull:
        """Land a workflow."""
        answer: WorkflowFull = self.request("POST", f"/api/workflows/{path_segment(workflow_id)}/land", body=body)
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

    def change_workflow_plan(self, workflow_id: str, body: PlanBody) -> PlanChangeResult:
        """Replace the plan of a workflow."""
        answer: PlanChangeResult = self.request("PUT", f"/api/workflows/{path_segment(workflow_id)}/plan", body=body)
        return answer
