"""The inbox: everything that needs a person, from the court, its workflows and the buses, newest first."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pydantic import Field

from kingdom.base.files import read_object
from kingdom.base.times import epoch_seconds
from kingdom.court.acknowledgements import Acknowledgements
from kingdom.court.attention import attention_of
from kingdom.court.models import timestamp
from kingdom.court.queues import TASKS
from kingdom.web.envelope import ApiError, ApiModel
from kingdom.web.views.bus import COURT_BUS, list_dead, list_streams
from kingdom.web.views.court import court_overview
from kingdom.web.views.court_state import court_state
from kingdom.web.views.redaction import valid_text
from kingdom.web.views.workflows import WorkflowFull, read_workflow
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkStatus
from kingdom.workflow.usecases.lifecycle import FIRST_POINT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.court.overview import OpenQuestion
    from kingdom.web.context import WebContext
    from kingdom.web.views.court import CourtState

InboxKind: TypeAlias = Literal["question", "review", "failed_task", "failed_workflow", "letter", "alert", "problem"]
InboxAction: TypeAlias = Literal["answer", "resume", "goBack", "retry", "requeue", "acknowledge", "mute"]
COURT_DOWN_ID: Final = "court:down"
_MAX_WORKFLOWS: Final = 100  # that wait; the newest
_MAX_LETTERS: Final = 50  # of a stream
_MUTED_FIELDS: Final = ("kind", "title", "text", "path", "until", "user", "at")
_WAITING_STATUSES: Final = (WorkflowStatus.PAUSED, WorkflowStatus.FAILED)


class InboxItem(ApiModel):
    """Something that needs a person."""

    id: str = Field(examples=["task:task-20260207-001"])
    kind: InboxKind
    title: str = Field(description="What it is about.", examples=["gen-release"])
    text: str = Field(description="The question, or what went wrong.", examples=["Which of the two?"])
    at: str | None = Field(description="Since when, where that is known.")
    path: str = Field(description="Its page in the dashboard.", examples=["/tasks/task-20260207-001"])
    task_id: str | None = None
    workflow_id: str | None = None
    choices: list[str] = Field(default_factory=list, description="Suggested answers.")
    deadline: str | None = Field(default=None, description="When the court goes on without an answer.")
    bus: str | None = None
    stream: str | None = None
    event_id: str | None = None
    checkpoint_id: str | None = Field(
        default=None, description="Where `goBack` leads: before the work at which it stopped.", examples=["start"]
    )
    work: str | None = Field(default=None, description="The work that is done again after `goBack`.")
    actions: list[InboxAction]


class MutedItem(ApiModel):
    """An item that was muted, as it was then."""

    id: str = Field(examples=["alert:failures:gen-pr"])
    kind: InboxKind
    title: str
    text: str
    path: str
    until: str | None = Field(description="When it is shown again; null: never by itself.")
    user: str = Field(description="Who muted it.")
    at: str = Field(description="When it was muted.")


class Muted(ApiModel):
    """Result of muting items, or of ending that."""

    changed: int
    skipped: list[str] = Field(description="Ids that are not in the inbox, or are not muted.")


class Acknowledged(ApiModel):
    """Result of acknowledging items."""

    acknowledged: int
    skipped: list[str] = Field(description="Ids that are not in the inbox, or that only an action settles.")


class _InboxState:
    """What the inbox keeps between requests: acknowledged items, and workflows by version."""

    def __init__(self, context: WebContext) -> None:
        self.acknowledged = Acknowledgements(context.root)
        self.workflows: dict[str, tuple[int, InboxItem]] = {}


async def read_inbox(context: WebContext) -> list[InboxItem]:
    """Return what needs a person, newest first; what has no time, such as an alert, comes before all else."""
    state = context.cached(_InboxState, lambda: _InboxState(context))
    found = [*await _workflows(context, state), *await _letters(context)]
    if context.services is not None:
        found += await _court(context, await court_overview(context))
    now = context.clock()
    waiting = [
        item.model_copy(update={"actions": [*item.actions, "mute"]})
        for item in found
        if not state.acknowledged.covers(item.id, item.text, now)
    ]
    return sorted(waiting, key=lambda item: (item.at is None, epoch_seconds(item.at) or 0.0, item.id), reverse=True)


async def acknowledge(context: WebContext, ids: Sequence[str], user: str) -> Acknowledged:
    """Acknowledge items: they leave the inbox until they change."""
    state = context.cached(_InboxState, lambda: _InboxState(context))
    known = {item.id: item.text for item in await read_inbox(context) if "acknowledge" in item.actions}
    seen = {one: known[one] for one in ids if one in known}
    if seen:
        await asyncio.to_thread(state.acknowledged.add, seen, user, context.clock())
    return Acknowledged(acknowledged=len(seen), skipped=[one for one in ids if one not in known])


async def mute(context: WebContext, ids: Sequence[str], user: str, until: float | None) -> Muted:
    """Mute items until a time, or for ever (None): they leave the inbox, also when they change."""
    state = context.cached(_InboxState, lambda: _InboxState(context))
    now = context.clock()
    if until is not None and until <= now:
        raise ApiError(422, "SYS_INVALID", f"until must be later than now, which is {timestamp(now)}")
    known = {item.id: item.model_dump(include={"kind", "title", "text", "path"}) for item in await read_inbox(context)}
    chosen = {one: known[one] for one in ids if one in known}
    if chosen:
        await asyncio.to_thread(state.acknowledged.mute, chosen, user, now, until)
    return Muted(changed=len(chosen), skipped=[one for one in ids if one not in known])


async def unmute(context: WebContext, ids: Sequence[str]) -> Muted:
    """End the muting of items: they are in the inbox again if there is still a reason."""
    state = context.cached(_InboxState, lambda: _InboxState(context))
    ended = await asyncio.to_thread(state.acknowledged.unmute, ids, context.clock())
    return Muted(changed=len(ended), skipped=[one for one in ids if one not in ended])


async def list_muted(context: WebContext) -> list[MutedItem]:
    """Return the muted items, the latest first."""
    state = context.cached(_InboxState, lambda: _InboxState(context))
    found = await asyncio.to_thread(state.acknowledged.muted, context.clock())
    return [MutedItem(id=item_id, **{name: one[name] for name in _MUTED_FIELDS}) for item_id, one in found.items()][
        ::-1
    ]


# ── The court ──


async def _court(context: WebContext, court: CourtState) -> list[InboxItem]:
    home = context.court.home
    asked = await asyncio.to_thread(lambda: [read_object(home.result(one.task_id)) for one in court.questions])
    found = [_question(one, result.get("ended_at")) for one, result in zip(court.questions, asked, strict=True)]
    found += [
        _item(f"alert:{alert.name}", "alert", alert.name, alert.text, None, "/", ["acknowledge"])
        for alert in court.alerts
    ]
    for item in attention_of(court):
        if item.kind in ("role", "down"):
            name = item.subject or "court"
            item_id = COURT_DOWN_ID if item.kind == "down" else f"role:{name}"
            found.append(_item(item_id, "problem", name, str(item), None, "/#roles", []))
    for problem in court.problems:
        if problem.is_failed_task:
            path, title = f"/tasks/{problem.what}", await _task_title(context, problem.what)
            failed = _item(
                problem.item_id, "failed_task", title, problem.why, problem.at, path, ["retry", "acknowledge"]
            )
            found.append(failed.model_copy(update={"task_id": problem.what}))
        elif not _is_letter(problem.what, court):
            path, title = "/#troubles", problem.what
            if title.startswith("task-"):
                path, title = f"/tasks/{title}", await _task_title(context, title)
            found.append(_item(problem.item_id, "problem", title, problem.why, problem.at, path, ["acknowledge"]))
    return found


async def _task_title(context: WebContext, task_id: str) -> str:
    """Return what a task is about: its subject and title; its id where it has neither, or its document is gone."""
    entry = await court_state(context).indexes[TASKS].get(task_id)
    fields = {} if entry is None else entry.fields
    return " ".join(valid_text(str(fields[name])) for name in ("subject", "title") if fields.get(name)) or task_id


def _is_letter(what: str, court: CourtState) -> bool:
    """Return whether a problem is a dead letter or an invalid file: these are told with their stream."""
    return what.startswith("queue/") or what in {queue.name for queue in court.queues}


def _question(question: OpenQuestion, asked_at: object) -> InboxItem:
    return InboxItem(
        id=f"question:{question.task_id}",
        kind="question",
        title=question.general,
        text=question.question,
        at=asked_at if isinstance(asked_at, str) else None,
        path=f"/tasks/{question.task_id}",
        task_id=question.task_id,
        choices=question.choices,
        deadline=question.deadline,
        actions=["answer"],
    )


def _item(
    item_id: str, kind: InboxKind, title: str, text: str, at: str | None, path: str, actions: list[InboxAction]
) -> InboxItem:
    return InboxItem(id=item_id, kind=kind, title=title, text=text, at=at, path=path, actions=actions)


# ── Workflows ──


async def _workflows(context: WebContext, state: _InboxState) -> list[InboxItem]:
    statuses = [one.value for one in _WAITING_STATUSES]
    async with context.parts.store.reading() as tx:
        versions = await tx.workflows.versions(statuses=statuses, search=None, after=None, limit=_MAX_WORKFLOWS)
    known = {
        workflow_id: state.workflows[workflow_id]
        for workflow_id, version in versions
        if workflow_id in state.workflows and state.workflows[workflow_id][0] == version
    }
    for workflow_id, version in versions:
        if workflow_id not in known:
            full = await read_workflow(context, workflow_id)
            known[workflow_id] = version, _workflow_item(full, await _last_time(context, workflow_id))
    state.workflows = known
    return [known[workflow_id][1] for workflow_id, _ in versions]


async def _last_time(context: WebContext, workflow_id: str) -> str | None:
    """Return the time of the last event of a workflow: since then it waits."""
    store = context.parts.store
    last = await store.events(workflow_id, await store.last_event_number(workflow_id) - 1, 1)
    return timestamp(last[0].occurred_at.astimezone(UTC).timestamp()) if last else None


def _workflow_item(full: WorkflowFull, at: str | None) -> InboxItem:
    path = f"/workflows/{full.id}"
    if full.status is WorkflowStatus.FAILED:
        item = _item(f"workflow:{full.id}", "failed_workflow", full.name, full.reason or "", at, path, ["acknowledge"])
        if "resume" in full.allowed:
            item.actions.insert(0, "retry")
    elif (asking := _asking(full)) is not None:
        item = asking
        item.at = at
    else:
        item = _item(f"workflow:{full.id}", "review", full.name, full.reason or "", at, path, ["resume", "acknowledge"])
    if item.kind != "question" and (point := _point_before(full)) is not None:
        item.checkpoint_id, item.work = point
        item.actions.insert(-1, "goBack")
    return item.model_copy(update={"workflow_id": full.id})


def _point_before(full: WorkflowFull) -> tuple[str, str] | None:
    """Return the point before the work at which a workflow stopped, and the name of that work."""
    begun = [work for work in full.works if work.status is not WorkStatus.PENDING]
    if "goBack" not in full.allowed or not begun:
        return None
    last = max(begun, key=lambda work: work.sequence)
    before = [work for work in begun if work.sequence < last.sequence and work.checkpoint_id is not None]
    point = max(before, key=lambda work: work.sequence).checkpoint_id if before else None
    return point or FIRST_POINT, last.name


def _asking(full: WorkflowFull) -> InboxItem | None:
    """Return the open question of a workflow, if it has one."""
    if "answer" not in full.allowed:
        return None
    tasks = [task for work in full.works if work.status == "WAITING" for task in work.tasks if task.question]
    if not tasks:
        return None
    task = tasks[0]
    return InboxItem(
        id=f"question:{full.id}",
        kind="question",
        title=full.name,
        text=task.question or "",
        at=None,
        path=f"/workflows/{full.id}",
        choices=task.choices,
        deadline=None if task.deadline is None else _moment(task.deadline),
        actions=["answer"],
    )


def _moment(at: datetime) -> str:
    return timestamp(at.timestamp())


# ── Dead letters ──


async def _letters(context: WebContext) -> list[InboxItem]:
    found = []
    for bus in context.buses():
        for stream in await list_streams(context, bus):
            if not stream.dead and bus != COURT_BUS:
                continue
            for letter in (await list_dead(context, bus, stream.stream, _MAX_LETTERS))[0]:
                text = letter.error_message or letter.error_code or letter.type
                actions: list[InboxAction] = ["requeue", "acknowledge"] if letter.requeueable else ["acknowledge"]
                path = f"/bus?bus={bus}&stream={stream.stream}"
                item_id = f"letter:{bus}/{stream.stream}/{letter.event_id}"
                made = _item(item_id, "letter", letter.event_id, text, letter.dead_at, path, actions)
                where = {"bus": bus, "stream": stream.stream, "event_id": letter.event_id}
                found.append(made.model_copy(update=where))
    return found
