"""Workflows: the list, and one in full."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from kingdom.web.envelope import ApiModel, Page, cursor_id, cursor_of, not_found
from kingdom.web.views.checkpoints import CheckpointInfo
from kingdom.web.views.redaction import shown_template
from kingdom.web.views.workflow_order import WorkflowOrder, sorted_page
from kingdom.web.views.workflow_state import SummaryFacts, find_workflow, summary_facts, workflow_state
from kingdom.workflow.agent_records import WorkflowCost
from kingdom.workflow.context import id_at
from kingdom.workflow.domain.plan import plan_of
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
from kingdom.workflow.domain.workflow import MODIFIABLE_STATUSES, OnFailure
from kingdom.workflow.overview import WorkflowOverview
from kingdom.workflow.plan_model import LandFields
from kingdom.workflow.templates import read_source_ids, write_template
from kingdom.workflow.usecases.follow_up import FOLLOW_UP_STATUSES
from kingdom.workflow.usecases.lifecycle import BUSY_STATUSES, STARTABLE_STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kingdom.web.context import WebContext
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.store.transactions import WorkflowTransaction

WorkflowAction = Literal[
    "start", "pause", "resume", "goBack", "answer", "followUp", "cancel", "modify", "land", "delete"
]  # fmt: skip
_STATUS_AFTER: Final = {
    "pause": WorkflowStatus.PAUSED,
    "resume": WorkflowStatus.RESUMING,
    "cancel": WorkflowStatus.CANCELLED,
}
_LANDABLE_STATUSES: Final = (WorkflowStatus.PAUSED, WorkflowStatus.FAILED, WorkflowStatus.COMPLETED)
_BEGUN_STATUSES: Final = (WorkStatus.PAUSED, WorkStatus.FAILED, WorkStatus.COMPLETED)
_NO_COST: Final = WorkflowCost()


class WorkflowSummary(ApiModel):
    """A workflow in a list."""

    id: str = Field(examples=["wf-0198c2d3"])
    name: str = Field(examples=["Fix the timeout"])
    status: WorkflowStatus = Field(examples=["RUNNING"])
    reason: str | None = Field(description="Why the workflow is PAUSED or FAILED, or not landed yet.")
    issue_key: str | None = Field(examples=["WEB-42"])
    template_id: str | None = Field(examples=["tpl-0198c2d2"])
    created_at: datetime
    works_total: int = Field(examples=[3])
    works_completed: int = Field(examples=[1])
    works_failed: int = Field(examples=[0])
    asking: bool = Field(description="Whether an agent waits for the answer of a person.", examples=[False])
    running: list[str] = Field(description="Names of the running works.", examples=[["fix"]])
    cost_usd: float = Field(description="Cost of the ended runs.", examples=[0.42])
    tokens: int = Field(examples=[18210])


class WorkTaskInfo(ApiModel):
    """A task: one query to the agent of a work."""

    id: str = Field(examples=["task-0198c2d5"])
    name: str = Field(examples=["task-1"])
    order: int
    status: TaskStatus
    query: str = Field(examples=["Fix {{ issue.key }}."])
    query_status: QueryStatus
    outline: list[str] = Field(description="Section headings of the report the task writes.")
    report_status: ReportStatus
    report_id: str | None
    report_path: str | None
    attempt: int
    retries: int
    response: str | None = Field(description="The agent's answer.")
    question: str | None = Field(description="What the agent asks a person, while its work is WAITING; or asked last.")
    choices: list[str] = Field(description="The answers that the agent suggests.")
    default_answer: str | None = Field(description="The answer when nobody has answered by the deadline.")
    deadline: datetime | None = Field(description="When an open question gets its default.")
    error: str | None


class WorkInfo(ApiModel):
    """A work: a conversation with one agent, task by task."""

    id: str = Field(examples=["work-0198c2d4"])
    name: str = Field(examples=["fix"])
    sequence: int
    status: WorkStatus
    agent: AgentStatus
    engine: str = Field(examples=["claude"])
    model: str | None
    attempt: int
    after: list[str] = Field(description="Names of the works it waits for; empty: all works before it.")
    merge: bool
    pause_after: bool
    continues: str | None = Field(description="Name of the work whose conversation it goes on with.")
    session_id: str | None
    error: str | None
    checkpoint_id: str | None
    tasks: list[WorkTaskInfo]


class WorkTreeInfo(ApiModel):
    """A repository of a workflow. Before the start only name, gitId and base are set."""

    id: str | None = None
    name: str = Field(examples=["web"])
    git_id: str = Field(examples=["git-0198c2d0"])
    work_id: str | None = Field(
        default=None, description="Set for the worktree of a work that runs in parallel to others."
    )
    status: WorkTreeStatus | None = None
    base: str | None = None
    branch: str | None = Field(default=None, examples=["kingdom/wf-0198c2d3/web-1a2b3c4d"])
    path: str | None = None
    error: str | None = None


class LandingInfo(ApiModel):
    """A branch that was pushed, or was to be, and its pull request."""

    name: str = Field(description="Name of the repository.", examples=["web"])
    git_id: str = Field(examples=["git-0198c2d0"])
    remote: str = Field(examples=["https://github.com/acme/web"])
    branch: str = Field(examples=["kingdom/WEB-42-fix"])
    base: str = Field(description="Branch it is to be merged into.", examples=["main"])
    commit: str | None = Field(description="The last commit that was pushed.")
    number: int | None = Field(description="Number of the pull request.", examples=[7])
    url: str | None = Field(description="Address of the pull request.")
    error: str | None = Field(description="Why the last try did not succeed.")
    landed_at: datetime | None


class LandAgainInfo(ApiModel):
    """When a workflow is landed again."""

    at: datetime
    tries: int = Field(description="How many tries there were.", examples=[3])


class WorkflowFull(WorkflowSummary):
    """A workflow in full."""

    description: str
    variables: dict[str, Any] = Field(examples=[{"issue": {"title": "Time-out"}}])
    on_failure: OnFailure
    land: LandFields | None = Field(description="How it is landed when it is completed; null: by hand.")
    forked_from: str | None = Field(description="Checkpoint of another workflow from which it was forked.")
    mcp_servers: list[str] = Field(description="Ids of its MCP servers.")
    repositories: list[WorkTreeInfo]
    works: list[WorkInfo]
    checkpoints: list[CheckpointInfo]
    landing: bool = Field(description="Whether its result is being pushed.")
    land_again: LandAgainInfo | None = Field(description="When landing is tried again, as a remote was away.")
    landings: list[LandingInfo]
    engine_running: bool = Field(description="Whether an engine runs: without one, a running workflow does not go on.")
    allowed: list[WorkflowAction] = Field(description="Actions that are allowed now.")


class WorkflowEvent(ApiModel):
    """An event of a workflow. Sequence numbers have no gaps."""

    sequence: int = Field(examples=[1])
    type: str = Field(examples=["WorkflowCreated"])
    occurred_at: datetime
    attempt: int | None = Field(default=None, description="Attempt of the work or task it tells of.", examples=[1])
    payload: dict[str, Any] = Field(examples=[{"workflowId": "wf-0198c2d3"}])


async def list_workflows(
    context: WebContext,
    *,
    statuses: Sequence[str] = (),
    search: str | None = None,
    since: float | None = None,
    until: float | None = None,
    sort: WorkflowOrder = "newest",
    limit: int = 50,
    cursor: str | None = None,
) -> Page[WorkflowSummary]:
    """Return workflows, filtered by status, by text in name or issue key, and by the time of their creation."""
    view_state = workflow_state(context)
    spent = await view_state.spent()
    filters: dict[str, Any] = {
        "statuses": statuses,
        "search": search or None,
        "first": None if since is None else id_at("wf", since),
        "end": None if until is None else id_at("wf", until),
    }
    async with context.parts.store.reading() as tx:
        if sort == "newest" or sort == "oldest":
            after, oldest = cursor_id(cursor), sort == "oldest"
            found = await tx.workflows.versions(**filters, after=after, oldest_first=oldest, limit=limit + 1)
            further = cursor_of(found[limit - 1][0]) if len(found) > limit else None
        else:
            entries = await sorted_page(tx, sort, spent, view_state.progress, cursor=cursor, limit=limit + 1, **filters)
            found = await tx.workflows.versions_of([item_id for _, item_id in entries[:limit]])
            further = cursor_of(entries[limit - 1]) if len(entries) > limit else None
        entry = await view_state.summaries.of(tx, found[:limit])
        names = await _work_names(tx, [work_id for one in entry for work_id in one.running])
    return Page(
        items=[WorkflowSummary.model_validate(_summary(one, names, spent)) for one in entry], next_cursor=further
    )


async def read_workflow(context: WebContext, workflow_id: str) -> WorkflowFull:
    """Return a workflow in full."""
    async with context.parts.store.reading() as tx:
        workflow = await find_workflow(tx, workflow_id)
        overview = await WorkflowOverview.read(tx, workflow)
    spent = await workflow_state(context).spent()
    names = {work.id: work.name for work in overview.works}
    return WorkflowFull.model_validate(
        {
            **_summary(summary_facts(workflow), names, spent),
            **overview.document(),
            "allowed": allowed_actions(workflow),
            "engineRunning": context.control.is_engine or await context.parts.store.engine_running(),
        }
    )


async def read_summary(context: WebContext, workflow_id: str) -> WorkflowSummary:
    """A workflow in a list."""
    async with context.parts.store.reading() as tx:
        workflow = await find_workflow(tx, workflow_id)
        entry = summary_facts(workflow)
        names = await _work_names(tx, entry.running)
    return WorkflowSummary.model_validate(_summary(entry, names, await workflow_state(context).spent()))


async def read_events(
    context: WebContext, workflow_id: str, *, after: int = 0, limit: int = 100
) -> Page[WorkflowEvent]:
    """Return the events of a workflow after a number, in order; also of a deleted workflow."""
    store = context.parts.store
    found = await store.events(workflow_id, after, limit + 1)
    if not found:
        async with store.reading() as tx:
            known = await tx.workflows.find(workflow_id) is not None
        if not known and not await store.events(workflow_id, 0, 1):
            raise not_found("WFL", "workflow", workflow_id)
    items = [
        WorkflowEvent(
            sequence=one.sequence,
            type=one.type,
            occurred_at=one.occurred_at,
            attempt=one.attempt,
            payload=dict(one.payload),
        )
        for one in found[:limit]
    ]
    return Page(items=items, next_cursor=str(items[-1].sequence) if len(found) > limit else None)


async def read_plan(context: WebContext, workflow_id: str) -> str:
    """Return the current plan of a workflow as YAML."""
    store = context.parts.store
    sources = await read_source_ids(store)
    async with store.reading() as tx:
        workflow = await find_workflow(tx, workflow_id)
        works = await tx.works.of_workflow(workflow_id)
    return await asyncio.to_thread(write_template, shown_template(plan_of(workflow, works)), sources)


def allowed_actions(workflow: Workflow) -> list[WorkflowAction]:
    """Return the actions that a workflow's status allows."""
    may: dict[WorkflowAction, bool] = {
        "start": workflow.status in STARTABLE_STATUSES,
        "pause": _can_become(workflow, "pause") and not workflow.is_over,
        "resume": _can_become(workflow, "resume") and not workflow.is_over,
        "goBack": _can_become(workflow, "resume"),
        "answer": _can_become(workflow, "resume") and WorkStatus.WAITING in workflow.work_statuses.values(),
        "followUp": workflow.status in FOLLOW_UP_STATUSES and _may_be_followed_up(workflow),
        "cancel": _can_become(workflow, "cancel") or workflow.land_again is not None,
        "modify": workflow.status in MODIFIABLE_STATUSES,
        "land": workflow.status in _LANDABLE_STATUSES and bool(workflow.git_refs) and not workflow.landing,
        "delete": workflow.status not in BUSY_STATUSES,
    }
    return [act for act, yes in may.items() if yes]


def _may_be_followed_up(workflow: Workflow) -> bool:
    statuses = set(workflow.work_statuses.values())
    return WorkStatus.WAITING not in statuses and not statuses.isdisjoint(_BEGUN_STATUSES)


def _can_become(workflow: Workflow, act: str) -> bool:
    return _STATUS_AFTER[act] in WORKFLOW_TRANSITIONS[workflow.status]


async def _work_names(tx: WorkflowTransaction, work_ids: Sequence[str]) -> dict[str, str]:
    return {work.id: work.name for work in await tx.works.find_all(work_ids)}


def _summary(entry: SummaryFacts, names: Mapping[str, str], spent: Mapping[str, WorkflowCost]) -> dict[str, Any]:
    cost = spent.get(entry.facts["id"], _NO_COST)
    return {
        **entry.facts,
        "running": [names[work_id] for work_id in entry.running if work_id in names],
        "costUsd": round(cost.cost_usd, 6),
        "tokens": cost.tokens,
    }
