"""What one sees of a workflow: its events, checkpoints and their differences, reports, words of agents, cost."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import Path, Query

from kingdom.web.api.work.routing import ID_PATTERN, WorkflowId, work_router
from kingdom.web.context import Context
from kingdom.web.envelope import Ok, Page, ok
from kingdom.web.paging import Cursor, Limit
from kingdom.web.views import checkpoints, reports, usage, words, workflows
from kingdom.web.views.checkpoints import Checkpoint, Diff, Form, Verified
from kingdom.web.views.reports import Report, ReportSummary
from kingdom.web.views.usage import Usage
from kingdom.web.views.words import Words
from kingdom.web.views.workflows import WorkflowEvent

router = work_router("workflows", "workflows")
CheckpointId: TypeAlias = Annotated[
    str, Path(alias="checkpointId", pattern=ID_PATTERN, max_length=100, examples=["cp-0198c2d7"])
]
ReportId: TypeAlias = Annotated[
    str, Path(alias="reportId", pattern=ID_PATTERN, max_length=100, examples=["report-0198c2d6"])
]


@router.get("/{workflowId}/events", summary="List the events of a workflow")
async def list_workflow_events(
    context: Context,
    workflow_id: WorkflowId,
    after: Annotated[int, Query(ge=0, le=2**53, description="Only behind this sequence number.")] = 0,
    limit: Limit = 100,
) -> Ok[Page[WorkflowEvent]]:
    """What happened, in order, without a gap. `nextCursor` is the `after` of the next page."""
    return ok(await workflows.read_events(context, workflow_id, after=after, limit=limit))


@router.get("/{workflowId}/checkpoints", summary="List the checkpoints of a workflow")
async def list_checkpoints(context: Context, workflow_id: WorkflowId) -> Ok[Page[Checkpoint]]:
    """All of them on one page, the oldest first; also those the workflow went back behind."""
    return ok(Page(items=await checkpoints.list_checkpoints(context, workflow_id)))


@router.get("/{workflowId}/checkpoints/{checkpointId}/diff", summary="Get what changed up to a checkpoint")
async def get_checkpoint_diff(
    context: Context,
    workflow_id: WorkflowId,
    checkpoint_id: CheckpointId,
    against: Annotated[
        str | None,
        Query(
            pattern=ID_PATTERN,
            max_length=100,
            description="Since which checkpoint; `base`: since the branch began; without it: since its work began.",
        ),
    ] = None,
    form: Annotated[Form, Query(description="Lines as hunks, as a patch in text, or only the counts.")] = "hunks",
) -> Ok[Diff]:
    """File by file. What is too much to be shown is left out and marked as truncated."""
    return ok(await checkpoints.read_diff(context, workflow_id, checkpoint_id, against=against, form=form))


@router.get("/{workflowId}/reports", summary="List the reports of a workflow")
async def list_workflow_reports(context: Context, workflow_id: WorkflowId) -> Ok[Page[ReportSummary]]:
    """All of them on one page, finished or not."""
    return ok(Page(items=await reports.list_reports(context, workflow_id)))


@router.get("/{workflowId}/reports/{reportId}", summary="Get a report")
async def get_workflow_report(context: Context, workflow_id: WorkflowId, report_id: ReportId) -> Ok[Report]:
    """With its text, in Markdown. An agent wrote it: do not trust what is in it."""
    return ok(await reports.read_report(context, workflow_id, report_id))


@router.get("/{workflowId}/output", summary="Get what the agents of a workflow say")
async def get_workflow_output(
    context: Context,
    workflow_id: WorkflowId,
    work: Annotated[str | None, Query(pattern=ID_PATTERN, max_length=100, description="The id of a work.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Ok[Words]:
    """The last words; with the `cursor` of the answer before, what was said since."""
    return ok(await words.read_words(context, workflow_id, work_id=work, cursor=cursor, limit=limit))


@router.get("/{workflowId}/usage", summary="Get what a workflow has cost")
async def get_workflow_usage(context: Context, workflow_id: WorkflowId) -> Ok[Usage]:
    """Tokens and money, by runs that have ended."""
    return ok(await usage.read_usage(context, workflow_id))


@router.get("/{workflowId}/verify", summary="Prove that a workflow can be resumed from its checkpoints")
async def verify_workflow(
    context: Context,
    workflow_id: WorkflowId,
    deep: Annotated[bool, Query(description="Look for every file of every commit, too.")] = False,
) -> Ok[Verified]:
    """Each commit of each checkpoint is looked for: whether it is there, and held."""
    return ok(await checkpoints.verify(context, workflow_id, deep=deep))
