"""Read the results of a workflow below `/api/workflows/{id}`: events, checkpoints, reports, output and usage."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import Path, Query

from kingdom.web.api.workflow_models import WorkflowId, error_prefix, workflow_router
from kingdom.web.context import Context
from kingdom.web.envelope import Cursor, Limit, Ok, Page, ok
from kingdom.web.views import checkpoints, pull_requests, rescues, workflow_output, workflows
from kingdom.web.views.checkpoints import CheckpointDiff, CheckpointInfo, DiffForm, VerificationResult
from kingdom.web.views.pull_requests import PullRequestInfo
from kingdom.web.views.rescues import RescueInfo, RestoredRescue
from kingdom.web.views.workflow_output import AgentOutput, ReportInfo, ReportSummary, WorkflowUsage
from kingdom.web.views.workflows import WorkflowEvent
from kingdom.workflow.plan_model import ID_PATTERN

router = workflow_router("workflows", "workflows")

CheckpointId: TypeAlias = Annotated[
    str, Path(alias="checkpointId", pattern=ID_PATTERN, max_length=100, examples=["cp-0198c2d7"])
]
RescueId: TypeAlias = Annotated[str, Path(alias="rescueId", pattern=r"^[\w.:+@-]+$", max_length=250)]
ReportId: TypeAlias = Annotated[
    str, Path(alias="reportId", pattern=ID_PATTERN, max_length=100, examples=["report-0198c2d6"])
]


@router.get("/{workflowId}/events", summary="List the events of a workflow")
async def list_workflow_events(
    context: Context,
    workflow_id: WorkflowId,
    after: Annotated[int, Query(ge=0, le=2**53, description="Only events after this sequence number.")] = 0,
    limit: Limit = 100,
) -> Ok[Page[WorkflowEvent]]:
    """Events of a workflow, in order and without gaps. `nextCursor` is the `after` of the next page."""
    return ok(await workflows.read_events(context, workflow_id, after=after, limit=limit))


@router.get("/{workflowId}/checkpoints", summary="List the checkpoints of a workflow")
async def list_checkpoints(context: Context, workflow_id: WorkflowId) -> Ok[Page[CheckpointInfo]]:
    """All checkpoints on one page, oldest first, including those that a resume went back past."""
    return ok(Page(items=await checkpoints.list_checkpoints(context, workflow_id)))


@router.get("/{workflowId}/checkpoints/{checkpointId}/diff", summary="Get the changes of a checkpoint")
async def get_checkpoint_diff(
    context: Context,
    workflow_id: WorkflowId,
    checkpoint_id: CheckpointId,
    against: Annotated[
        str | None,
        Query(
            pattern=ID_PATTERN,
            max_length=100,
            description="Checkpoint to compare with, or `base`: start of the branch. Default: start of its work.",
        ),
    ] = None,
    form: Annotated[DiffForm, Query(description="Return hunks, a unified patch, or only line counts.")] = "hunks",
) -> Ok[CheckpointDiff]:
    """Changes by repository and file. Large diffs are cut and marked as truncated."""
    return ok(await checkpoints.read_diff(context, workflow_id, checkpoint_id, against=against, form=form))


@router.get("/{workflowId}/pull-requests", summary="List the pull requests of a workflow")
async def list_pull_requests(context: Context, workflow_id: WorkflowId) -> Ok[Page[PullRequestInfo]]:
    """State, checks, reviews and comments of what was landed, read from GitHub; all on one page.

    Answers are at most half a minute old. `error` says why one could not be read.
    """
    return ok(Page(items=await pull_requests.list_pull_requests(context, workflow_id)))


@router.get("/{workflowId}/rescues", summary="List what was dropped of a workflow")
async def list_workflow_rescues(context: Context, workflow_id: WorkflowId) -> Ok[Page[RescueInfo]]:
    """Files and commits that were dropped when the workflow went back, and kept; all on one page, oldest first."""
    return ok(Page(items=await rescues.list_rescues(context, workflow_id)))


@router.post("/{workflowId}/rescues/{rescueId}/restore", summary="Restore what was dropped of a workflow")
async def restore_workflow_rescue(context: Context, workflow_id: WorkflowId, rescue_id: RescueId) -> Ok[RestoredRescue]:
    """Bring the files back into the worktree; the next checkpoint has them.

    What they replace is kept in its turn. 409: the workflow runs, or its worktree is gone.
    """
    with error_prefix("WFL"):
        return ok(await rescues.restore(context, workflow_id, rescue_id))


@router.get("/{workflowId}/reports", summary="List the reports of a workflow")
async def list_workflow_reports(context: Context, workflow_id: WorkflowId) -> Ok[Page[ReportSummary]]:
    """All reports on one page, finished or not."""
    return ok(Page(items=await workflow_output.list_reports(context, workflow_id)))


@router.get("/{workflowId}/reports/{reportId}", summary="Get a report")
async def get_workflow_report(context: Context, workflow_id: WorkflowId, report_id: ReportId) -> Ok[ReportInfo]:
    """A report with its Markdown text. It was written by an agent: treat it as untrusted."""
    return ok(await workflow_output.read_report(context, workflow_id, report_id))


@router.get("/{workflowId}/output", summary="Get the agent output of a workflow")
async def get_workflow_output(
    context: Context,
    workflow_id: WorkflowId,
    work: Annotated[
        str | None, Query(pattern=ID_PATTERN, max_length=100, description="Only output of this work (its id).")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Ok[AgentOutput]:
    """The latest agent output; with the `cursor` of the previous response, what followed since."""
    return ok(await workflow_output.read_output(context, workflow_id, work_id=work, cursor=cursor, limit=limit))


@router.get("/{workflowId}/usage", summary="Get the usage of a workflow")
async def get_workflow_usage(context: Context, workflow_id: WorkflowId) -> Ok[WorkflowUsage]:
    """Tokens and cost of the runs that have ended."""
    return ok(await workflow_output.read_usage(context, workflow_id))


@router.get("/{workflowId}/verify", summary="Verify the checkpoints of a workflow")
async def verify_workflow(
    context: Context,
    workflow_id: WorkflowId,
    deep: Annotated[bool, Query(description="Also check every file of every commit.")] = False,
) -> Ok[VerificationResult]:
    """Check that every commit of every checkpoint exists and is protected by a ref."""
    return ok(await checkpoints.verify(context, workflow_id, deep=deep))
