"""Workflows: the list, and one in full."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from kingdom.web.envelope import ApiModel, Page, cursor_id, cursor_of, not_found
from kingdom.web.views.checkpoints import CheckpointInfo
from kingdom.web.views.redaction import shown_template
from kingdom.web.views.workflow_state import SummaryFacts, find_workflow, summary_facts, workflow_state
from kingdom.workflow.agent_records import WorkflowCost
from kingdom.workflow.domain.statuses import (
    WORKFLOW_TRANSITIONS,
    AgentStatus,
    QueryStatus,
    ReportStatus,
    TaskStatus,
    WorkflowStatus,
    WorkStatus,
    WorkTreeStatus,
)
from kingdom.workflow.domain.workflow import MODIFIABLE_STATUSES
from kingdom.workflow.overview import WorkflowOverview
from kingdom.workflow.templates import plan_of, read_source_ids, write_template
from kingdom.workflow.usecases.lifecycle import BUSY_STATUSES, STARTABLE_STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kingdom.web.context import WebContext
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.ports import WorkflowTransaction

WorkflowAction = Literal["start", "pause", "resume", "cancel", "modify", "delete"]
_STATUS_AFTER: Final = {
    "pause": WorkflowStatus.PAUSED,
    "resume": WorkflowStatus.RESUMING,
    "cancel": WorkflowStatus.CANCELLED,
}
_NO_COST: Final = WorkflowCost()


class WorkflowSummary(ApiModel):
    """What a list has of a workflow."""

    id: str = Field(examples=["wf-0198c2d3"])
    name: str = Field(examples=["Fix the timeout"])
    status: WorkflowStatus = Field(examples=["RUNNING"])
    reason: str | None = Field(description="Why it is PAUSED or FAILED.")
    issue_key: str | None = Field(examples=["WEB-42"])
    template_id: str | None = Field(examples=["tpl-0198c2d2"])
    created_at: datetime
    works_total: int = Field(examples=[3])
    works_completed: int = Field(examples=[1])
    works_failed: int = Field(examples=[0])
    running: list[str] = Field(description="The names of the works under way.", examples=[["fix"]])
    cost_usd: float = Field(description="By runs that have ended.", examples=[0.42])
    tokens: int = Field(examples=[18210])


class WorkTaskInfo(ApiModel):
    """One query to the agent of a work."""

    id: str = Field(examples=["task-0198c2d5"])
    name: str = Field(examples=["task-1"])
    order: int
    status: TaskStatus
    query: str = Field(examples=["Fix {{ issue.key }}."])
    query_status: QueryStatus
    outline: list[str] = Field(description="The sections of the report it asks for.")
    report_status: ReportStatus
    report_id: str | None
    report_path: str | None
    attempt: int
    retries: int
    response: str | None = Field(description="What the agent answered.")
    error: str | None


class WorkInfo(ApiModel):
    """A conversation with one agent, task after task."""

    id: str = Field(examples=["work-0198c2d4"])
    name: str = Field(examples=["fix"])
    sequence: int
    status: WorkStatus
    agent: AgentStatus
    engine: str = Field(examples=["claude"])
    model: str | None
    attempt: int
    after: list[str] = Field(description="The works it waits for; empty: all before it.")
    merge: bool
    pause_after: bool
    session_id: str | None
    error: str | None
    checkpoint_id: str | None
    tasks: list[WorkTaskInfo]


class WorkTreeInfo(ApiModel):
    """A repository of a workflow; before it is started only name, gitId and base are known."""

    id: str | None = None
    name: str = Field(examples=["web"])
    git_id: str = Field(examples=["git-0198c2d0"])
    work_id: str | None = Field(default=None, description="Of a work that runs beside others.")
    status: WorkTreeStatus | None = None
    base: str | None = None
    branch: str | None = Field(default=None, examples=["kingdom/wf-0198c2d3/web-1a2b3c4d"])
    path: str | None = None
    error: str | None = None


class WorkflowFull(WorkflowSummary):
    """Everything about a workflow."""

    description: str
    variables: dict[str, Any] = Field(examples=[{"issue": {"title": "Time-out"}}])
    on_failure: Literal["pause", "fail"]
    forked_from: str | None = Field(description="A checkpoint of another workflow.")
    mcp_servers: list[str] = Field(description="Ids.")
    repositories: list[WorkTreeInfo]
    works: list[WorkInfo]
    checkpoints: list[CheckpointInfo]
    allowed: list[WorkflowAction] = Field(description="What can be asked of it as it stands.")


class WorkflowEvent(ApiModel):
    """Something that happened to a workflow. Sequence numbers have no gap."""

    sequence: int = Field(examples=[1])
    type: str = Field(examples=["WorkflowCreated"])
    occurred_at: datetime
    payload: dict[str, Any] = Field(examples=[{"workflowId": "wf-0198c2d3"}])


async def list_workflows(
    context: WebContext,
    *,
    statuses: Sequence[str] = (),
    search: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[WorkflowSummary]:
    """The workflows, the newest first: those in one of these states whose name or issue key has these words."""
    desk = workflow_state(context)
    async with context.parts.store.reading() as tx:
        found = await tx.workflows.versions(
            statuses=statuses, search=search or None, after=cursor_id(cursor), limit=limit + 1
        )
        told = await desk.summaries.of(tx, found[:limit])
        names = await _work_names(tx, [work_id for one in told for work_id in one.running])
    spent = await desk.spent()
    items = [WorkflowSummary.model_validate(_summary(one, names, spent)) for one in told]
    return Page(items=items, next_cursor=cursor_of(found[limit - 1][0]) if len(found) > limit else None)


async def read_workflow(context: WebContext, workflow_id: str) -> WorkflowFull:
    """A workflow with everything that belongs to it."""
    async with context.parts.store.reading() as tx:
        workflow = await find_workflow(tx, workflow_id)
        overview = await WorkflowOverview.read(tx, workflow)
    spent = await workflow_state(context).spent()
    names = {work.id: work.name for work in overview.works}
    return WorkflowFull.model_validate(
        {**_summary(summary_facts(workflow), names, spent), **overview.document(), "allowed": allowed_actions(workflow)}
    )


async def read_summary(context: WebContext, workflow_id: str) -> WorkflowSummary:
    """What a list has of a workflow."""
    async with context.parts.store.reading() as tx:
        workflow = await find_workflow(tx, workflow_id)
        told = summary_facts(workflow)
        names = await _work_names(tx, told.running)
    return WorkflowSummary.model_validate(_summary(told, names, await workflow_state(context).spent()))


async def read_events(
    context: WebContext, workflow_id: str, *, after: int = 0, limit: int = 100
) -> Page[WorkflowEvent]:
    """What happened to a workflow behind a number, in order; also to one that was deleted."""
    store = context.parts.store
    found = await store.events(workflow_id, after, limit + 1)
    if not found:
        async with store.reading() as tx:
            known = await tx.workflows.find(workflow_id) is not None
        if not known and not await store.events(workflow_id, 0, 1):
            raise not_found("WFL", "workflow", workflow_id)
    items = [
        WorkflowEvent(sequence=one.sequence, type=one.type, occurred_at=one.occurred_at, payload=dict(one.payload))
        for one in found[:limit]
    ]
    return Page(items=items, next_cursor=str(items[-1].sequence) if len(found) > limit else None)


async def read_plan(context: WebContext, workflow_id: str) -> str:
    """The plan a workflow has now, as a YAML file."""
    store = context.parts.store
    sources = await read_source_ids(store)
    async with store.reading() as tx:
        workflow = await find_workflow(tx, workflow_id)
        works = await tx.works.of_workflow(workflow_id)
    return await asyncio.to_thread(write_template, shown_template(plan_of(workflow, works)), sources)


def allowed_actions(workflow: Workflow) -> list[WorkflowAction]:
    """What can be asked of a workflow as it stands."""
    may: dict[WorkflowAction, bool] = {
        "start": workflow.status in STARTABLE_STATUSES,
        "pause": _can_become(workflow, "pause"),
        "resume": _can_become(workflow, "resume"),
        "cancel": _can_become(workflow, "cancel"),
        "modify": workflow.status in MODIFIABLE_STATUSES,
        "delete": workflow.status not in BUSY_STATUSES,
    }
    return [act for act, yes in may.items() if yes]


def _can_become(workflow: Workflow, act: str) -> bool:
    return _STATUS_AFTER[act] in WORKFLOW_TRANSITIONS[workflow.status]


async def _work_names(tx: WorkflowTransaction, work_ids: Sequence[str]) -> dict[str, str]:
    return {work.id: work.name for work in await tx.works.find_all(work_ids)}


def _summary(told: SummaryFacts, names: Mapping[str, str], spent: Mapping[str, WorkflowCost]) -> dict[str, Any]:
    cost = spent.get(told.facts["id"], _NO_COST)
    return {
        **told.facts,
        "running": [names[work_id] for work_id in told.running if work_id in names],
        "costUsd": round(cost.cost_usd, 6),
        "tokens": cost.tokens,
    }
