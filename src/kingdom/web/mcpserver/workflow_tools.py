"""Tools for workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from kingdom.web.api.work import lifecycle, workflows
from kingdom.web.api.work.lifecycle import ResumeBody
from kingdom.web.api.work.workflows import WorkflowBody
from kingdom.web.asked import asked
from kingdom.web.mcpserver.plain import Limit, plain
from kingdom.web.views import reports as report_views
from kingdom.web.views import templates as template_views
from kingdom.web.views import workflows as workflow_views

if TYPE_CHECKING:
    from kingdom.web.context import WebContext

WorkflowId = Annotated[str, Field(description="The id of a workflow, wf-…")]


class WorkflowTools:
    """What an agent can see of workflows, and do with them."""

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self.reading = (self.list_workflows, self.show_workflow, self.read_report, self.list_templates)
        self.acting = (self.start_workflow, self.pause_workflow, self.resume_workflow, self.cancel_workflow)

    async def list_workflows(
        self,
        status: Annotated[str | None, Field(description="Only those in this state: RUNNING, PAUSED, FAILED…")] = None,
        search: Annotated[str | None, Field(description="Part of the name or of the issue key.")] = None,
        limit: Limit = 20,
    ) -> dict[str, Any]:
        """List workflows, the newest first, with their progress and cost."""
        statuses = () if status is None else (status.upper(),)
        found = await workflow_views.list_workflows(self._context, statuses=statuses, search=search, limit=limit)
        return plain(found)

    async def show_workflow(self, workflow_id: WorkflowId) -> dict[str, Any]:
        """Show one workflow: its works and tasks, their states and errors, its checkpoints and reports."""
        found = await workflow_views.read_workflow(self._context, workflow_id)
        reports = await report_views.list_reports(self._context, workflow_id)
        return {**plain(found), "reports": [plain(report) for report in reports]}

    async def read_report(
        self, workflow_id: WorkflowId, report_id: Annotated[str, Field(description="As show_workflow tells it.")]
    ) -> dict[str, Any]:
        """Read a report that an agent wrote, as Markdown."""
        return plain(await report_views.read_report(self._context, workflow_id, report_id))

    async def list_templates(
        self, search: Annotated[str | None, Field(description="Part of the name.")] = None, limit: Limit = 50
    ) -> dict[str, Any]:
        """List the templates that workflows can be made from."""
        return plain(await template_views.list_templates(self._context, search=search, limit=limit))

    async def start_workflow(
        self,
        template_id: Annotated[str, Field(description="As list_templates tells it.")],
        name: Annotated[str | None, Field(description="What to call it; else the template's name.")] = None,
        issue_key: Annotated[str | None, Field(description="The ticket or pull request it is for.")] = None,
        variables: Annotated[
            dict[str, Any] | None, Field(description="Values for the {{ variables }} of its queries.")
        ] = None,
    ) -> dict[str, Any]:
        """Make a workflow from a template and start it. It goes on by itself: show_workflow tells how far it is."""
        body = asked(WorkflowBody, template_id=template_id, name=name, issue_key=issue_key, variables=variables or {})
        made = (await workflows.create_workflow(self._context, body)).data
        await lifecycle.start_workflow(self._context, made.id)
        return {"workflowId": made.id, "name": made.name}

    async def pause_workflow(self, workflow_id: WorkflowId) -> str:
        """Pause a workflow: its agents are stopped, nothing is lost."""
        await lifecycle.pause_workflow(self._context, workflow_id)
        return f"{workflow_id} is paused"

    async def resume_workflow(
        self,
        workflow_id: WorkflowId,
        checkpoint_id: Annotated[
            str | None, Field(description="Go back to this checkpoint; else to the last one.")
        ] = None,
        retry: Annotated[bool, Field(description="Go on with the task it stopped at, without going back.")] = False,
    ) -> str:
        """Have a paused or failed workflow go on."""
        body = asked(ResumeBody, checkpoint_id=checkpoint_id, retry=retry)
        await lifecycle.resume_workflow(self._context, workflow_id, body)
        return f"{workflow_id} goes on"

    async def cancel_workflow(self, workflow_id: WorkflowId) -> str:
        """Cancel a workflow for good. Its branch and checkpoints stay."""
        await lifecycle.cancel_workflow(self._context, workflow_id)
        return f"{workflow_id} is cancelled"
