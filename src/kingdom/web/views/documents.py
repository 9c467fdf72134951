"""Documents of the court: lists, tasks, traces."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pydantic import BaseModel, Field

from kingdom.base.files import read_json
from kingdom.court.budget import ledger_lines
from kingdom.court.commands import allowed_actions, find_task
from kingdom.court.document_index import index_fields, valid_entries
from kingdom.court.document_order import EntryPosition, SortOrder, position_of
from kingdom.court.history import read_history
from kingdom.court.home import check_name
from kingdom.court.models import timestamp
from kingdom.court.questions import ANSWERED, CANCELLED, NEEDS_HUMAN
from kingdom.court.queues import TASKS
from kingdom.web.envelope import ApiError, ApiModel, cursor_of, cursor_position, invalid_cursor
from kingdom.web.views.court_state import court_state
from kingdom.web.views.document_links import DocumentLink, linked_documents
from kingdom.web.views.questions import TaskAnswer, open_question, read_answer, with_shown_status
from kingdom.web.views.redaction import json_safe, valid_text
from kingdom.web.views.task_links import RelatedTask

if TYPE_CHECKING:
    from kingdom.court.document_index import EntryFilter, IndexEntry
    from kingdom.court.home import Home
    from kingdom.court.queues import StoredDocument
    from kingdom.court.soldiers import Soldier
    from kingdom.web.context import WebContext


# ── Lists ──


_MAX_EPOCH_SECONDS: Final = 1e15  # no document is that late: a cursor with more is forged


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """Filter for documents; None matches all."""

    status: str | None = None
    """Status in the documents; ``invalid`` for files that could not be parsed."""
    type: str | None = None
    """An event type; ``github.pr.*`` matches a prefix."""
    general: str | None = None
    source: str | None = None
    priority: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    """All of these words must occur; case is ignored."""
    sort: SortOrder = "newest"


class DocumentSummary(BaseModel):
    """A document in a list. Its fields are those of the document."""

    id: str
    type: str
    status: str
    created_at: str
    subject: str | None = Field(description="Subject, such as a pull request.", examples=["acme/shop#7"])
    title: str | None = Field(description="Title in the payload.", examples=["Discounts"])


class TaskSummary(DocumentSummary):
    """A task in a list."""

    event_id: str
    target_general: str
    priority: str
    shown_status: str = Field(
        default="", description="The status for people: a question that has an answer is `answered`."
    )
    answer: TaskAnswer | None = None
    deadline: str | None = Field(default=None, description="Until when an open question waits.")


class EventSummary(DocumentSummary):
    """An event in a list."""

    source: str
    repo: str | None
    priority: str
    shown_status: str = Field(default="", description="The status for people: an event without a task is `discarded`.")
    reason: str | None = Field(default=None, description="Why it was discarded, or is invalid.")
    tasks: list[str] = Field(default_factory=list, description="Its tasks, the oldest first.")


class MessageSummary(DocumentSummary):
    """A message in a list."""

    channel: str
    urgency: str
    reason: str | None = Field(default=None, description="Why it could not be sent, or is invalid.")
    task_id: str | None = Field(default=None, description="The task it is about.")


S = TypeVar("S", bound=DocumentSummary)


@dataclass(frozen=True, slots=True)
class DocumentPage(Generic[S]):
    """One page of documents."""

    items: list[S]
    next_cursor: str | None
    total: int
    """Number of matches on all pages."""


async def list_tasks(
    context: WebContext, wanted: DocumentFilter | None = None, limit: int = 50, cursor: str | None = None
) -> DocumentPage[TaskSummary]:
    """List tasks, newest first. A status in ``wanted`` is one that people are shown, such as ``answered``."""
    view_state = court_state(context)
    settled = await view_state.questions.refresh()
    narrows = None
    if wanted is not None and wanted.status in (NEEDS_HUMAN, ANSWERED, CANCELLED):
        narrows, wanted = with_shown_status(wanted.status, settled), replace(wanted, status=None)
    listing = await list_documents(context, TASKS, TaskSummary, wanted, limit, cursor, narrows)
    for task in listing.items:
        task.shown_status = view_state.questions.shown_status(task.id, task.status, settled)
        if task.shown_status == ANSWERED:
            task.answer = await read_answer(view_state, task.id)
        elif task.shown_status == NEEDS_HUMAN:
            asked = await asyncio.to_thread(open_question, view_state.services.home, task.id)
            task.deadline = None if asked is None else asked["deadline"]
    return listing


async def list_documents(
    context: WebContext,
    stream: str,
    model: type[S],
    wanted: DocumentFilter | None,
    limit: int,
    cursor: str | None,
    first: EntryFilter | None = None,
) -> DocumentPage[S]:
    """List documents. ``first`` filters before ``wanted`` does."""
    order: SortOrder = "newest" if wanted is None else wanted.sort
    chosen = None if wanted is None or wanted == DocumentFilter(sort=order) else _narrows(wanted)
    if first is not None:
        chosen = [first, *(chosen or [valid_entries])]
    text = "" if wanted is None else wanted.text or ""
    found = await court_state(context).indexes[stream].page(chosen, limit, _position(cursor), order, text)
    following = cursor_of(position_of(found.items[-1], order)) if found.more else None
    return DocumentPage([_summary(entry, model) for entry in found.items], following, found.total)


def _position(cursor: str | None) -> EntryPosition | None:
    position = cursor_position(cursor)
    if position is None:
        return None
    match position:
        case [str() as value, int() | float() as at, str() as document_id] if abs(at) < _MAX_EPOCH_SECONDS:
            return value, float(at), document_id
    raise invalid_cursor()


def _narrows(wanted: DocumentFilter) -> list[EntryFilter]:
    """Return the filter steps, the cheap ones first."""
    found: list[EntryFilter] = []
    if wanted.status is None:
        found.append(valid_entries)
    else:
        found.append(lambda entries: [entry for entry in entries if entry.status == wanted.status])
    if wanted.general is not None:
        found.append(lambda entries: [entry for entry in entries if entry.general == wanted.general])
    if wanted.source is not None:
        found.append(lambda entries: [entry for entry in entries if entry.source == wanted.source])
    if wanted.priority is not None:
        found.append(lambda entries: [entry for entry in entries if entry.priority == wanted.priority])
    if wanted.type is not None:
        found.append(_with_type(wanted.type))
    if wanted.since is not None:
        since = epoch_seconds_of(wanted.since)
        found.append(lambda entries: [entry for entry in entries if entry.at >= since])
    if wanted.until is not None:
        until = epoch_seconds_of(wanted.until)
        found.append(lambda entries: [entry for entry in entries if entry.at < until])
    return found


def _with_type(pattern: str) -> EntryFilter:
    if not pattern.endswith("*"):
        return lambda entries: [entry for entry in entries if entry.type == pattern]
    beginning = pattern.rstrip("*")
    return lambda entries: [entry for entry in entries if entry.type.startswith(beginning)]


def epoch_seconds_of(moment: datetime) -> float:
    """Convert a time to epoch seconds. A time without a zone is UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _summary(entry: IndexEntry, model: type[S]) -> S:
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if not field.is_required():
            continue  # not from the document
        value = entry.fields.get(name)
        empty = None if field.annotation == (str | None) else ""
        found[name] = empty if value is None else json_safe(str(value))
    return model(**found)


# ── Single documents ──


class SoldierState(ApiModel):
    """A soldier: one run of an agent for a task."""

    id: str
    engine: str
    model: str | None
    pid: int | None
    alive: bool
    started_at: str | None


class TaskCost(ApiModel):
    """Cost of a task by the ledger, over all its runs."""

    cost_usd: float
    tokens: int
    runs: int


class TaskState(ApiModel):
    """A task. ``task`` and ``result`` are the court's documents as stored."""

    task: dict[str, Any]
    problem: str | None = Field(description="Why the file could not be parsed, if so.")
    locked_by: str | None
    result: dict[str, Any] | None
    shown_status: str = Field(description="The status for people: a question that has an answer is `answered`.")
    question: dict[str, Any] | None = Field(
        description="The open question, if any. `deadline` is the time at which the court goes on without an answer."
    )
    answer: TaskAnswer | None = Field(description="The answer to its question, if it has one.")
    subject: str | None = Field(description="Subject, such as a pull request.", examples=["acme/shop#7"])
    title: str | None = Field(description="Title in the payload.", examples=["Discounts"])
    duration_seconds: float | None = Field(description="How long it took, or takes until now; null before it starts.")
    related: list[RelatedTask] = Field(description="Tasks that it retries or resumes, and those that do so with it.")
    linked: list[DocumentLink] = Field(description="Its event and messages.")
    soldiers: list[SoldierState]
    spent: TaskCost
    actions: list[str] = Field(
        description="Actions that are possible now: cancel, retry, answer.", examples=[["cancel"]]
    )


class TraceLine(ApiModel):
    """One step of a trace."""

    ts: str
    who: str = Field(examples=["king"])
    what: str
    where: str = Field(description="The file it was read from, relative to the home.")


async def read_task(context: WebContext, task_id: str) -> TaskState:
    """Return a task. Raises :class:`kingdom.court.commands.UnknownTask`."""
    task = await find_task(context.court, task_id)
    actions = await allowed_actions(context.court, task)
    view_state = court_state(context)
    settled = await view_state.questions.refresh()
    state = await asyncio.to_thread(_task_state, context, task, actions)
    state.shown_status = view_state.questions.shown_status(task.id, state.shown_status, settled)
    entries = await view_state.indexes[TASKS].newest()
    state.related = view_state.task_links.of(task.id, task.document, entries)
    state.linked = [one for one in await linked_documents(view_state, TASKS, task.id) if one.stream != TASKS]
    if state.shown_status == ANSWERED:
        state.answer = await read_answer(view_state, task.id)
    return state


async def trace(context: WebContext, traced: str) -> list[TraceLine]:
    """Return the history of an event, task or message, in time order."""
    view_state = court_state(context)
    lines = await read_history(
        view_state.services, check_name("id", traced), list(view_state.indexes.values()), view_state.roster
    )
    if not lines:
        raise ApiError(404, "SYS_NOT_FOUND", f"nothing found for {traced!r:.120}")
    return [TraceLine(**json_safe(line.document())) for line in lines]


def _task_state(context: WebContext, task: StoredDocument, actions: list[str]) -> TaskState:
    view_state, home = court_state(context), context.court.home
    result = read_json(home.result(task.id))
    soldiers = view_state.roster.of_task(task.id)
    entry = index_fields(task.document)
    return TaskState(
        task=json_safe(task.document),
        problem=None if task.problem is None else valid_text(task.problem),
        locked_by=task.locked_by,
        result=json_safe(result) if isinstance(result, dict) else None,
        shown_status=str(task.document.get("status") or task.state),
        question=open_question(home, task.id) if "answer" in actions else None,
        answer=None,
        subject=json_safe(entry["subject"]),
        title=json_safe(entry["title"]),
        duration_seconds=_duration(result, soldiers, context.clock()),
        related=[],
        linked=[],
        soldiers=[_soldier(one) for one in soldiers],
        spent=_task_cost(home, task.id),
        actions=actions,
    )


def _duration(result: Any, soldiers: list[Soldier], now: float) -> float | None:
    """Return how long a task took by its result; for one at work, the time since its first soldier started."""
    if isinstance(result, dict) and isinstance(taken := result.get("duration_seconds"), int | float):
        return round(float(taken), 3)
    started = [one.started_at for one in soldiers if one.started_at is not None]
    return round(max(now - min(started), 0.0), 3) if started and any(one.at_work for one in soldiers) else None


def _soldier(soldier: Soldier) -> SoldierState:
    return SoldierState(
        id=soldier.id,
        engine=soldier.order.engine,
        model=soldier.order.model,
        pid=soldier.pid,
        alive=soldier.at_work,
        started_at=None if soldier.started_at is None else timestamp(soldier.started_at),
    )


def _task_cost(home: Home, task_id: str) -> TaskCost:
    runs: dict[str, tuple[float, int]] = {}  # by run: a line that was written twice counts once
    for _, line in ledger_lines(home.ledger, {task_id}):
        tokens = line.get("tokens")
        total = tokens.get("total") if isinstance(tokens, dict) else 0
        cost = line.get("cost_usd")
        runs[str(line.get("run_id"))] = (
            float(cost) if isinstance(cost, int | float) else 0.0,
            total if isinstance(total, int) else 0,
        )
    return TaskCost(
        cost_usd=sum(cost for cost, _ in runs.values()), tokens=sum(total for _, total in runs.values()), runs=len(runs)
    )
